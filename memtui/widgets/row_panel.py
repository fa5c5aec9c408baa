"""A panel of rows with a header line: scrolled, one of them chosen, the choice staying with its row.

``LazyRows`` are made when they come into sight. ``CursorPanel`` has a cursor of its own, moved by the arrow keys.
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
        return [(f"{self.top + 1}-{min(rows, self.top + seen)} of {rows}", self.look["dim"])]

    @property
    def in_sight(self) -> int:
        """Return rows there is room for."""
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
        place = place_of(rows, self.selected)
        place = (0 if by > 0 else len(rows) - 1) if place is None else place + by
        place = max(0, min(len(rows) - 1, place))
        self.selected = rows[place].key
        if place < self.top:
            self.top = place
        elif place >= self.top + self.in_sight:
            self.top = place - self.in_sight + 1
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
        place = self.top + event.y - 2
        if self.view is not None and 2 <= event.y < 2 + self.in_sight and place < len(self.view.rows):
            self.selected = self.view.rows[place].key
            self.repaint()
            self.post_message(self.Selected(self, self.selected))


T = TypeVar("T")


class LazyRows(Sequence[T], Generic[T]):
    """A row for each of some numbers, which are the keys of the rows.

    Args:
        numbers: i8[rows], rising.
        make: the row of a number; asked for rows in sight only.
    """

    def __init__(self, numbers: NDArray[np.int64], make: Callable[[int], T]) -> None:
        self.numbers, self._make = numbers, make

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            return [self._make(number) for number in self.numbers[place].tolist()]
        return self._make(int(self.numbers[place]))

    def place(self, number: object) -> int | None:
        """Return where the row of a number is."""
        if not isinstance(number, int):
            return None
        index = self.last_until(number)
        return index if index >= 0 and self.numbers[index] == number else None

    def last_until(self, number: int) -> int:
        """Place of the last row whose number is not above that; -1: there is none."""
        return int(np.searchsorted(self.numbers, number, side="right")) - 1


def place_of(rows: Sequence[Any], key: Hashable) -> int | None:
    """Return where the row with a key is; None: nowhere."""
    if isinstance(rows, LazyRows):
        return rows.place(key)
    return next((place for place, row in enumerate(rows) if row.key == key), None)


PAGE = 10


class CursorPanel(Panel):
    """Subclasses say what up and down, left and right are."""

    @property
    def in_sight(self) -> int:
        """Return steps of a page."""
        return PAGE

    def move(self, by: int) -> None:
        """Move down, or up below 0."""
        raise NotImplementedError

    def sideways(self, by: int) -> None:
        """Move to the right, or to the left below 0."""
        raise NotImplementedError
