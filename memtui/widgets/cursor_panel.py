"""A panel with a cursor of its own: what the arrow keys move."""

from __future__ import annotations

from memtui.widgets.panel import Panel

PAGE = 10


class CursorPanel(Panel):
    """Subclasses say what up and down, left and right are."""

    @property
    def in_sight(self) -> int:
        """Steps of a page."""
        return PAGE

    def move(self, by: int) -> None:
        """Down, or up below 0."""
        raise NotImplementedError

    def sideways(self, by: int) -> None:
        """To the right, or to the left below 0."""
        raise NotImplementedError
