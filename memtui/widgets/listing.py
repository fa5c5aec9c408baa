"""A table of rows to choose from, on the line API: only the rows in sight are made."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from textual import events
from textual.message import Message

from memtui.widgets import text
from memtui.widgets.raster import Line
from memtui.widgets.rows import RowPanel


@dataclass(frozen=True, slots=True)
class Column:
    """``cells`` 0: what the others leave. Columns of a higher rank give way first; 1 stays."""

    name: str
    cells: int
    right: bool = False
    rank: int = 1


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
    rows: tuple[Row, ...] = ()
    note: str = ""
    hidden: int = 0  # rows that the typed text hides


class Listing(RowPanel):
    """A list in which a row is always selected, and stays so when others come and go."""

    view: ListingView

    class Opened(Message):
        """The selected row was clicked again."""

    def __init__(self, view: ListingView, **options: Any) -> None:
        super().__init__(view, **options)
        self._hidden: Hashable = None  # the row that was selected until a typed text hid it, and is when it is back

    @property
    def selected_row(self) -> Row | None:
        """The row that Enter opens."""
        return next((row for row in self.view.rows if row.key == self.selected), None)

    def show(self, view: ListingView) -> None:
        place, keys = self._place, [row.key for row in view.rows]
        if self._hidden in keys:
            self.selected, self._hidden = self._hidden, None
        elif keys and self.selected not in keys:
            self._hidden = self._hidden or self.selected
            self.selected = keys[min(place, len(keys) - 1)]
        super().show(view)

    @property
    def _place(self) -> int:
        return next((at for at, row in enumerate(self.view.rows) if row.key == self.selected), 0)

    def move(self, by: int) -> None:
        self._hidden = None
        super().move(by)

    def scroll_rows(self, by: int) -> None:
        """The wheel moves the selection: it is always in sight."""
        self.move(by)

    def heading(self) -> Line:
        view, look = self.view, self.look
        line: Line = [(view.title, look["title"]), (f"  {len(view.rows)}", look["dim"])]
        if view.hidden:
            line.append((f", {view.hidden} without that text", look["dim"]))
        return line

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view, look = self.view, self.look
        if not view.rows:
            return self.message(view.note, width, height)
        seen = max(1, height - 1)
        self.top = max(0, min(self.top, self._place, len(view.rows) - seen))
        self.top = max(self.top, self._place - seen + 1)
        places = self._places(width)
        lines: list[Line] = [[(" ", look["dim"]), *((self._cell(c.name, c, n), look["dim"]) for _, c, n in places)]]
        for row in view.rows[self.top : self.top + seen]:
            style = look["selected"] if self.chosen and row.key == self.selected else look[row.role]
            cells = (self._cell(text.clean(row.cells[i]), c, n) for i, c, n in places)
            lines.append([(" ", style), *((cell, style) for cell in cells)])
        return lines

    def _places(self, width: int) -> list[tuple[int, Column, int]]:
        """(index, column, cells) of the columns that have room."""
        columns = list(enumerate(self.view.columns))
        while sum(c.cells or 16 for _, c in columns) + 1 > width and any(c.rank > 1 for _, c in columns):
            columns.remove(max(columns, key=lambda column: column[1].rank))
        rest = max(4, width - 1 - sum(c.cells for _, c in columns))
        return [(i, c, c.cells or rest) for i, c in columns]

    @staticmethod
    def _cell(words: str, column: Column, cells: int) -> str:
        return text.fit(words, cells - 2, right=column.right) + "  "

    def on_click(self, event: events.Click) -> None:
        """Comes before that of every panel of rows, which selects."""
        self._hidden = None
        at = self.top + event.y - 2
        if self.chosen and event.y >= 2 and at < len(self.view.rows) and self.view.rows[at].key == self.selected:
            self.post_message(self.Opened())
