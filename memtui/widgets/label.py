"""Plain words on the screen."""

from __future__ import annotations

from typing import Any

from memtui.widgets import text
from memtui.widgets.panel import CachedWidget, centred
from memtui.widgets.raster import Line


class Words(CachedWidget):
    """One line of words in one style."""

    view: str

    def __init__(self, role: str = "text", view: str = "", **options: Any) -> None:
        super().__init__(view, **options)
        self.role = role
        self._usual = role

    def show(self, view: str, role: str = "") -> None:
        """Show other words, perhaps in another style."""
        self.role = role or self._usual
        self.view = view
        self.repaint()

    def paint(self, width: int, height: int) -> list[Line]:
        return [[(text.sentence(text.clean(self.view), width), self.look[self.role])]]


class Notice(CachedWidget):
    """A sentence in the middle, wrapped, where nothing else has room."""

    view: str

    def paint(self, width: int, height: int) -> list[Line]:
        return centred(self.view, width, height, self.look["text"])
