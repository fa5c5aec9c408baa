"""A table of rows to choose from, on the line API: only the rows in sight are painted."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from textual import events
from textual.message import Message

from memtui.core.shorten import share_room
from memtui.widgets import text
from memtui.widgets.raster import Line
from memtui.widgets.row_panel import LazyRows, RowPanel, index_of


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Columns of a higher rank give way first; rank 1 stays.

    A column of figures (``right``) has exactly ``cells``. A column of texts has ``cells`` where there is room, more
    where its texts are longer, and fewer where other columns need the room more; with 0 it takes what the others
    leave, up to ``most`` where its texts are not longer.
    """

    name: str
    cells: int
    right: bool = False
    rank: int = 1
    most: int = 0  # 0: no limit


@dataclass(frozen=True, slots=True)
class Row:
    """``key`` stays the same when the order changes; ``role`` is the style of a row that is not selected."""

    key: Hashable
    cells: tuple[str, ...]
    role: str = "text"


@dataclass(frozen=True, slots=True)
class ListingView:
    """All rows of a table, and a ``note`` that is shown in an empty one."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Row] = ()
    note: str = ""
    hidden: int = 0  # rows that the typed text hides
    added: int = 0  # new rows at the end, added while the order is frozen
    counted: bool = True  # the number of rows stands behind the title


class Listing(RowPanel):
    """A list in which a row is always selected, and stays selected when others come and go."""

    view: ListingView

    class Opened(Message):
        """The selected row was clicked again."""

    def __init__(self, view: ListingView, **options: Any) -> None:
        super().__init__(view, **options)
        self._columns: tuple[Column, ...] = ()
        self._needs: list[int] = []  # cells of each column so far: a width by the rows in sight would jump
        self._hidden: Hashable = None  # the row that was selected before a typed text hid it, to be selected again

    @property
    def selected_row(self) -> Row | None:
        """Return the row that Enter opens."""
        index = index_of(self.view.rows, self.selected)
        return None if index is None else self.view.rows[index]

    def show(self, view: ListingView) -> None:
        index = self._index
        if index_of(view.rows, self._hidden) is not None:
            self.selected, self._hidden = self._hidden, None
        elif view.rows and index_of(view.rows, self.selected) is None:
            self._hidden = self.selected if self._hidden is None else self._hidden
            self.selected = view.rows[min(index, len(view.rows) - 1)].key
        super().show(view)

    def select(self, key: Hashable) -> None:
        """Select a row by its key."""
        self._hidden = None
        if key != self.selected:
            self.selected = key
            self.repaint()

    @property
    def _index(self) -> int:
        return index_of(self.view.rows, self.selected) or 0

    def move(self, by: int) -> None:
        self._hidden = None
        super().move(by)

    def scroll_rows(self, by: int) -> None:
        """Move the selection with the wheel: the selection is always in sight."""
        self.move(by)

    def heading(self) -> Line:
        view, draw_style = self.view, self.draw_style
        line: Line = [(view.title, draw_style["title"]), (f"  {len(view.rows)}" * view.counted, draw_style["dim"])]
        if view.hidden:
            line.append((f", {view.hidden} without that text", draw_style["dim"]))
        if view.added:
            line.append((f", {view.added} new at the end", draw_style["live"]))
        return line

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view, draw_style = self.view, self.draw_style
        if not view.rows:
            return self.message(view.note, width, height)
        seen = max(1, height - 1)
        self.top = max(0, min(self.top, self._index, len(view.rows) - seen))
        self.top = max(self.top, self._index - seen + 1)
        shown = list(view.rows[self.top : self.top + seen])
        # A name is compared with all others, not only with those in sight, where that costs little.
        few = not isinstance(view.rows, LazyRows) and len(view.rows) <= text.COMPARED
        several = list(view.rows) if few else shown
        first = 0 if several is shown else self.top
        cell_texts = [[text.clean(row.cells[i]) for row in several] for i in range(len(view.columns))]
        fitted = self._fit_columns(width, cell_texts)
        lines: list[Line] = [
            [(" ", draw_style["dim"]), *((self._cell(c.name, c, n), draw_style["dim"]) for _, c, n in fitted)]
        ]
        cut = [cell_texts[i] if c.right else text.shortened(cell_texts[i], n - 2) for i, c, n in fitted]
        for index, row in enumerate(shown, first):
            style = draw_style["selected"] if self.chosen and row.key == self.selected else draw_style[row.role]
            cells = (self._cell(column[index], c, n) for column, (_, c, n) in zip(cut, fitted, strict=True))
            lines.append([(" ", style), *((cell, style) for cell in cells)])
        return lines

    def _fit_columns(self, width: int, cell_texts: list[list[str]]) -> list[tuple[int, Column, int]]:
        """Return (index, column, cells) of the columns that have room: texts share by need what figures leave."""
        if self._columns != self.view.columns:
            self._columns, self._needs = self.view.columns, [text.width(c.name) for c in self.view.columns]
        self._needs = [
            max([need, *map(text.width, column)]) for need, column in zip(self._needs, cell_texts, strict=True)
        ]  # fmt: skip
        columns = list(enumerate(self.view.columns))
        while sum(c.cells or 16 for _, c in columns) + 1 > width and any(c.rank > 1 for _, c in columns):
            columns.remove(max(columns, key=lambda column: column[1].rank))
        room = width - 1 - sum(c.cells for _, c in columns if c.right)
        flexible = {i: c for i, c in columns if not c.right}
        needs = [self._needs[i] + 2 for i in flexible]
        wishes = [max(c.cells, need) for c, need in zip(flexible.values(), needs, strict=True)]
        shares = wishes if sum(wishes) <= room else share_room(needs, room)
        cells = dict(zip(flexible, shares, strict=True))
        if spare := room - sum(shares):
            filler = next((i for i, c in flexible.items() if not c.cells), -1)
            if filler >= 0:
                cells[filler] = max(cells[filler], min(cells[filler] + spare, flexible[filler].most or width))
        return [(i, c, cells.get(i, c.cells)) for i, c in columns]

    @staticmethod
    def _cell(cell_text: str, column: Column, cells: int) -> str:
        return text.fit(cell_text, cells - 2, right=column.right) + "  "

    def on_click(self, event: events.Click) -> None:
        """Open the selected row on a click. This handler runs before that of ``RowPanel``, which selects."""
        self._hidden = None
        index = self.top + event.y - 2
        if self.chosen and event.y >= 2 and index < len(self.view.rows) and self.view.rows[index].key == self.selected:
            self.post_message(self.Opened())
