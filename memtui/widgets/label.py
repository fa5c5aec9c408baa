"""Widgets of text: one line, or a sentence in the middle."""

from __future__ import annotations

from typing import Any

from memtui.widgets import text
from memtui.widgets.panel import CachedWidget, centred
from memtui.widgets.raster import Line


class TextLine(CachedWidget):
    """One line of text in one style."""

    view: str

    def __init__(self, role: str = "text", view: str = "", **options: Any) -> None:
        super().__init__(view, **options)
        self.role = role
        self._usual = role

    def show(self, view: str, role: str = "") -> None:
        """Show another text, in the usual style or in that of ``role``."""
        self.role = role or self._usual
        self.view = view
        self.repaint()

    def paint(self, width: int, height: int) -> list[Line]:
        return [[(text.sentence(text.clean(self.view), width), self.draw_style[self.role])]]


class Notice(CachedWidget):
    """A sentence in the middle, wrapped, where nothing else has room."""

    view: str

    def paint(self, width: int, height: int) -> list[Line]:
        return centred(self.view, width, height, self.draw_style["text"])
