"""Plain words on the screen."""

from __future__ import annotations

from memtui.widgets import text
from memtui.widgets.panel import Painted
from memtui.widgets.raster import Line


class Words(Painted):
    """One line of words in one style."""

    view: str

    def __init__(self, role: str = "text", view: str = "", **options) -> None:
        super().__init__(view, **options)
        self.role = role
        self._usual = role

    def show(self, view: str, role: str = "") -> None:
        """Other words, perhaps in another style."""
        self.role = role or self._usual
        self.view = view
        self.repaint()

    def paint(self, width: int, height: int) -> list[Line]:
        return [[(text.sentence(text.clean(self.view), width), self.look[self.role])]]


class Notice(Painted):
    """A sentence in the middle, wrapped, where nothing else has room."""

    view: str

    def paint(self, width: int, height: int) -> list[Line]:
        rows: list[str] = []
        for word in text.clean(self.view).split():
            if rows and len(rows[-1]) + 1 + len(word) <= width:
                rows[-1] += " " + word
            else:
                rows.append(word)
        top = max(0, (height - len(rows)) // 2)
        style = self.look["text"]
        return [[] for _ in range(top)] + [[(text.fit(row.center(width), width), style)] for row in rows]
