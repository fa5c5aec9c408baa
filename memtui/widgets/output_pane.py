"""What the program printed: the end of its log, in place of the panels."""

from __future__ import annotations

from textual import events
from textual.message import Message

from memtui.widgets import text
from memtui.widgets.panel import Panel
from memtui.widgets.raster import Line
from memtui.widgets.views.memory import OutputView


class OutputPane(Panel):
    """Rows as the view has them: wrapped, and without control sequences of a terminal."""

    view: OutputView
    title = "output of the program"
    back = "o"  # the key that closes it

    class Scrolled(Message):
        """The wheel was turned, by a count of rows."""

        def __init__(self, by: int) -> None:
            super().__init__()
            self.by = by

    def heading(self) -> Line:
        line = super().heading()
        if self.view.rows and not self.view.follows:
            line += [
                ("  ", self.draw_style["dim"]),
                ("End", self.draw_style["key"]),
                (" follows it again", self.draw_style["dim"]),
            ]
        return line

    def heading_right(self, width: int) -> Line:
        return [(self.back, self.draw_style["key"]), (": back", self.draw_style["dim"])]

    def footing(self) -> Line:
        view = self.view
        if not view.path:
            return []
        caption = f"{text.size(view.size_bytes)} in {text.clean(view.path)}"
        if view.older:
            caption = f"older output is in the file only, {caption}"
        room = max(20, self.size.width - 32)
        return [(text.fit(caption, min(room, text.width(caption))), self.draw_style["dim"])]

    def footing_right(self, width: int) -> Line:
        view = self.view
        if len(view.rows) >= view.total:
            return []
        return [(f"{view.first + 1}-{view.first + len(view.rows)} of {view.total}", self.draw_style["dim"])]

    def paint_inside(self, width: int, height: int) -> list[Line]:
        if self.view.note:
            return self.message(self.view.note, width, height)
        if not self.view.path:
            return []  # it is on its way
        if not self.view.rows:
            return self.message("the program has printed nothing yet", width, height)
        return [[(row, self.draw_style["text"])] for row in self.view.rows[:height]]

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.post_message(self.Scrolled(3))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.post_message(self.Scrolled(-3))
