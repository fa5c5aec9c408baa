"""A table of rows to choose from, on the line API: only the rows in sight are made."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from textual import events
from textual.message import Message

from memtui.widgets import text
from memtui.widgets.panel import Panel
from memtui.widgets.raster import Line


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


class Listing(Panel):
    """A list with one selected row, which stays selected when others come and go."""

    view: ListingView

    class Opened(Message):
        """The selected row was clicked again."""

    def __init__(self, view: ListingView, **options) -> None:
        super().__init__(view, **options)
        self.top, self.at = 0, 0

    @property
    def selected_row(self) -> Row | None:
        """The row that Enter opens."""
        return self.view.rows[self.at] if self.at < len(self.view.rows) else None

    def show(self, view: ListingView) -> None:
        row = self.selected_row
        keys = [r.key for r in view.rows]
        if row is not None and row.key in keys:
            self.at = keys.index(row.key)
        self.at = max(0, min(self.at, len(keys) - 1))
        super().show(view)

    def move(self, by: int) -> None:
        """Choose another row."""
        self.at = max(0, min(self.at + by, len(self.view.rows) - 1))
        self.repaint()

    @property
    def page(self) -> int:
        """Rows in sight."""
        return max(1, self.size.height - 3)

    def heading(self) -> Line:
        view, look = self.view, self.look
        line: Line = [(view.title, look["title"]), (f"  {len(view.rows)}", look["dim"])]
        if view.hidden:
            line.append((f", {view.hidden} without that text", look["dim"]))
        return line

    def footing_right(self, width: int) -> Line:
        rows = len(self.view.rows)
        if rows <= self.page:
            return []
        return [(f"{self.top + 1}-{min(rows, self.top + self.page)} of {rows}", self.look["dim"])]

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view, look = self.view, self.look
        if not view.rows:
            return self.message(view.note, width, height)
        seen = max(1, height - 1)
        self.top = max(0, min(self.top, self.at, len(view.rows) - seen))
        self.top = max(self.top, self.at - seen + 1)
        places = self._places(width)
        lines: list[Line] = [[(" ", look["dim"]), *((self._cell(c.name, c, n), look["dim"]) for _, c, n in places)]]
        for at in range(self.top, min(self.top + seen, len(view.rows))):
            row = view.rows[at]
            style = look["selected"] if self.chosen and at == self.at else look[row.role]
            cells = (look.plain(self._cell(text.clean(row.cells[i]), c, n)) for i, c, n in places)
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
        at = self.top + event.y - 2
        again = self.chosen and at == self.at
        if event.y - 2 >= 0 and at < len(self.view.rows):
            self.at = at
            self.repaint()
            if again:
                self.post_message(self.Opened())

    def on_mouse_scroll_down(self) -> None:
        self.move(3)

    def on_mouse_scroll_up(self) -> None:
        self.move(-3)
