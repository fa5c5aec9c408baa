"""What the program printed: the end of its log, in place of the panels."""

from __future__ import annotations

from textual import events
from textual.message import Message

from memtui.widgets import text
from memtui.widgets.panel import Panel
from memtui.widgets.raster import Line
from memtui.widgets.views.memory import OutputView


class OutputPane(Panel):
    """Rows as they are; whoever made the view has wrapped them and taken out what a terminal would act on."""

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
            line += [("  ", self.look["dim"]), ("End", self.look["key"]), (" follows it again", self.look["dim"])]
        return line

    def heading_right(self, width: int) -> Line:
        return [(self.back, self.look["key"]), (": back", self.look["dim"])]

    def footing(self) -> Line:
        view = self.view
        if not view.path:
            return []
        words = f"{text.size(view.size_bytes)} in {text.clean(view.path)}"
        if view.older:
            words = f"older output is in the file only, {words}"
        room = max(20, self.size.width - 32)
        return [(text.fit(words, min(room, text.width(words))), self.look["dim"])]

    def footing_right(self, width: int) -> Line:
        view = self.view
        if len(view.rows) >= view.total:
            return []
        return [(f"{view.first + 1}-{view.first + len(view.rows)} of {view.total}", self.look["dim"])]

    def paint_inside(self, width: int, height: int) -> list[Line]:
        if self.view.note:
            return self.message(self.view.note, width, height)
        if not self.view.path:
            return []  # it is on its way
        if not self.view.rows:
            return self.message("the program has printed nothing yet", width, height)
        return [[(row, self.look["text"])] for row in self.view.rows[:height]]

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.post_message(self.Scrolled(3))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.post_message(self.Scrolled(-3))
