"""A table of rows to choose from, on the line API: only the rows in sight are made."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from textual import events
from textual.message import Message

from memtui.core.shorten import share_room
from memtui.widgets import text
from memtui.widgets.raster import Line
from memtui.widgets.row_panel import LazyRows, RowPanel, place_of


@dataclass(frozen=True, slots=True)
class Column:
    """Columns of a higher rank give way first; 1 stays.

    ``cells`` of a column of figures (``right``) are what it has. One of words has as many where there is room, more
    where its words need more, and less where others need the room more; 0: what the others leave, up to ``most``
    where its words do not need more.
    """

    name: str
    cells: int
    right: bool = False
    rank: int = 1
    most: int = 0  # 0: all of it


@dataclass(frozen=True, slots=True)
class Row:
    """``key`` stays the same when the order changes; ``role`` is the style of a row that is not selected."""

    key: Hashable
    cells: tuple[str, ...]
    role: str = "text"


@dataclass(frozen=True, slots=True)
class ListingView:
    """All rows of a table, and what is said where there are none."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Row] = ()
    note: str = ""
    hidden: int = 0  # rows that the typed text hides
    added: int = 0  # rows at the end that came while the order was kept


class Listing(RowPanel):
    """A list in which a row is always selected, and stays so when others come and go."""

    view: ListingView

    class Opened(Message):
        """The selected row was clicked again."""

    def __init__(self, view: ListingView, **options: Any) -> None:
        super().__init__(view, **options)
        self._columns: tuple[Column, ...] = ()
        self._needs: list[int] = []  # cells of each column so far: a width that follows what is in sight would jump
        self._hidden: Hashable = None  # the row that was selected until a typed text hid it, and is when it is back

    @property
    def selected_row(self) -> Row | None:
        """Return the row that Enter opens."""
        place = place_of(self.view.rows, self.selected)
        return None if place is None else self.view.rows[place]

    def show(self, view: ListingView) -> None:
        place = self._place
        if place_of(view.rows, self._hidden) is not None:
            self.selected, self._hidden = self._hidden, None
        elif view.rows and place_of(view.rows, self.selected) is None:
            self._hidden = self.selected if self._hidden is None else self._hidden
            self.selected = view.rows[min(place, len(view.rows) - 1)].key
        super().show(view)

    def select(self, key: Hashable) -> None:
        """Choose a row that somebody else knows of."""
        self._hidden = None
        if key != self.selected:
            self.selected = key
            self.repaint()

    @property
    def _place(self) -> int:
        return place_of(self.view.rows, self.selected) or 0

    def move(self, by: int) -> None:
        self._hidden = None
        super().move(by)

    def scroll_rows(self, by: int) -> None:
        """Move the selection with the wheel: it is always in sight."""
        self.move(by)

    def heading(self) -> Line:
        view, look = self.view, self.look
        line: Line = [(view.title, look["title"]), (f"  {len(view.rows)}", look["dim"])]
        if view.hidden:
            line.append((f", {view.hidden} without that text", look["dim"]))
        if view.added:
            line.append((f", {view.added} new at the end", look["live"]))
        return line

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view, look = self.view, self.look
        if not view.rows:
            return self.message(view.note, width, height)
        seen = max(1, height - 1)
        self.top = max(0, min(self.top, self._place, len(view.rows) - seen))
        self.top = max(self.top, self._place - seen + 1)
        shown = list(view.rows[self.top : self.top + seen])
        # A name is compared with all others, not only with those in sight, where that costs little.
        few = not isinstance(view.rows, LazyRows) and len(view.rows) <= text.COMPARED
        several = list(view.rows) if few else shown
        first = 0 if several is shown else self.top
        words = [[text.clean(row.cells[i]) for row in several] for i in range(len(view.columns))]
        places = self._places(width, words)
        lines: list[Line] = [[(" ", look["dim"]), *((self._cell(c.name, c, n), look["dim"]) for _, c, n in places)]]
        cut = [words[i] if c.right else text.shortened(words[i], n - 2) for i, c, n in places]
        for at, row in enumerate(shown, first):
            style = look["selected"] if self.chosen and row.key == self.selected else look[row.role]
            cells = (self._cell(column[at], c, n) for column, (_, c, n) in zip(cut, places, strict=True))
            lines.append([(" ", style), *((cell, style) for cell in cells)])
        return lines

    def _places(self, width: int, words: list[list[str]]) -> list[tuple[int, Column, int]]:
        """(index, column, cells) of the columns that have room: those of words share by need what figures leave."""
        if self._columns != self.view.columns:
            self._columns, self._needs = self.view.columns, [text.width(c.name) for c in self.view.columns]
        self._needs = [
            max([need, *map(text.width, column)]) for need, column in zip(self._needs, words, strict=True)
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
            at = next((i for i, c in flexible.items() if not c.cells), -1)
            if at >= 0:
                cells[at] = max(cells[at], min(cells[at] + spare, flexible[at].most or width))
        return [(i, c, cells.get(i, c.cells)) for i, c in columns]

    @staticmethod
    def _cell(words: str, column: Column, cells: int) -> str:
        return text.fit(words, cells - 2, right=column.right) + "  "

    def on_click(self, event: events.Click) -> None:
        """Open a row on a click. It comes before the click of every panel of rows, which selects."""
        self._hidden = None
        at = self.top + event.y - 2
        if self.chosen and event.y >= 2 and at < len(self.view.rows) and self.view.rows[at].key == self.selected:
            self.post_message(self.Opened())
