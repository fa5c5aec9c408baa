"""A panel of rows with a header line: the rows scroll, and the selection stays with its row.

``LazyRows`` are created when they come into sight. ``CursorPanel`` has its own cursor, moved by the arrow keys.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from textual import events
from textual.message import Message

from memtui.widgets.panel import Panel
from memtui.widgets.raster import Line


class RowPanel(Panel):
    """A panel whose view has ``rows``, each with a ``key``."""

    class Selected(Message):
        """A row was clicked."""

        def __init__(self, panel: RowPanel, key: Hashable) -> None:
            super().__init__()
            self.panel, self.key = panel, key

    def __init__(self, view: Any = None, **options: Any) -> None:
        super().__init__(view, **options)
        self.top = 0
        self.selected: Any = None  # key of a row: the selection stays with its range when the order changes

    def footing_right(self, width: int) -> Line:
        rows, seen = len(self.view.rows), self.in_sight
        if rows <= seen:
            return []
        return [(f"{self.top + 1}-{min(rows, self.top + seen)} of {rows}", self.draw_style["dim"])]

    @property
    def in_sight(self) -> int:
        """Return the number of rows that have room."""
        return max(1, self.size.height - 3)

    def paint(self, width: int, height: int) -> list[Line]:
        self.top = max(0, min(self.top, len(self.view.rows) - self.in_sight))
        return super().paint(width, height)

    # Moving about

    def deselect(self) -> None:
        """Choose no row."""
        if self.selected is not None:
            self.selected = None
            if self.view is not None:
                self.repaint()

    def move(self, by: int) -> None:
        """Move the selection by rows, keeping it in sight."""
        rows = self.view.rows if self.view is not None else ()
        if not rows:
            return
        index = index_of(rows, self.selected)
        index = (0 if by > 0 else len(rows) - 1) if index is None else index + by
        index = max(0, min(len(rows) - 1, index))
        self.selected = rows[index].key
        if index < self.top:
            self.top = index
        elif index >= self.top + self.in_sight:
            self.top = index - self.in_sight + 1
        self.repaint()

    def page(self, by: int) -> None:
        """Move by a screenful."""
        self.move(by * max(1, self.in_sight - 1))

    def scroll_rows(self, by: int) -> None:
        """Scroll without moving the selection."""
        self.top = max(0, self.top + by)
        self.repaint()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_rows(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_rows(-3)

    def on_click(self, event: events.Click) -> None:
        index = self.top + event.y - 2
        if self.view is not None and 2 <= event.y < 2 + self.in_sight and index < len(self.view.rows):
            self.selected = self.view.rows[index].key
            self.repaint()
            self.post_message(self.Selected(self, self.selected))


T = TypeVar("T")


class LazyRows(Sequence[T], Generic[T]):
    """A row for each of some numbers, which are the keys of the rows.

    Args:
        numbers: i8[rows], rising.
        make: creates the row of a number; called for rows in sight only.
    """

    def __init__(self, numbers: NDArray[np.int64], make: Callable[[int], T]) -> None:
        self.numbers, self._make = numbers, make

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._make(number) for number in self.numbers[index].tolist()]
        return self._make(int(self.numbers[index]))

    def index_of(self, number: object) -> int | None:
        """Return the index of the row of a number; None without such a row."""
        if not isinstance(number, int):
            return None
        index = self.last_until(number)
        return index if index >= 0 and self.numbers[index] == number else None

    def last_until(self, number: int) -> int:
        """Return the index of the last row whose number is at most ``number``; -1 without such a row."""
        return int(np.searchsorted(self.numbers, number, side="right")) - 1


def index_of(rows: Sequence[Any], key: Hashable) -> int | None:
    """Return the index of the row with a key; None without such a row."""
    if isinstance(rows, LazyRows):
        return rows.index_of(key)
    return next((index for index, row in enumerate(rows) if row.key == key), None)


PAGE = 10


class CursorPanel(Panel):
    """A panel with a cursor. Subclasses define its moves up and down, left and right."""

    @property
    def in_sight(self) -> int:
        """Return the number of steps that make a page."""
        return PAGE

    def move(self, by: int) -> None:
        """Move down, or up below 0."""
        raise NotImplementedError

    def sideways(self, by: int) -> None:
        """Move to the right, or to the left below 0."""
        raise NotImplementedError
