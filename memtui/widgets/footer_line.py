"""The last line: keys that work here, and where the recording is stored; for a moment, why a key did nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from textual import events

from memtui.widgets import text
from memtui.widgets.panel import CachedWidget, line_width
from memtui.widgets.raster import Line
from memtui.widgets.views.memory import FooterView


@dataclass(frozen=True)
class Key:
    """A key in the footer: what to press, its label, the screen's action, and when the key gives way (1 stays)."""

    keys: str
    label: str
    action: str
    rank: int


KEYS = (
    Key("space", "pause", "toggle_pause", 1),
    Key("t/T", "step", "step(1)", 3),
    Key("[ ]", "speed", "faster(1)", 7),
    Key("+ -", "span", "widen(-1)", 6),
    Key("/", "filter", "filter", 2),
    Key("s", "sort", "sort", 4),
    Key("f", "filters", "toggle_filters", 5),
    Key("z", "zoom", "zoom(1)", 6),
    Key("m", "miss ratio", "miss_ratio", 8),
    Key("p", "processes", "processes", 8),
    Key("w", "tensors", "tensors", 8),
    Key("j", "jump", "jump", 8),
    Key("v", "verdict", "verdict", 3),
    Key("h", "how", "details", 5),
    Key("i", "interval", "interval", 4),
    Key(":", "find", "palette", 6),
    Key("?", "help", "help", 1),
    Key("d", "detach", "app.detach", 3),
    Key("q", "quit", "app.quit", 1),
)
SMALL_KEYS = (
    Key("space", "pause", "toggle_pause", 1),
    Key("t/T", "step", "step(1)", 2),
    Key("1-4", "panel", "next_panel", 1),
    Key("p", "processes", "processes", 4),
    Key("w", "tensors", "tensors", 3),
    Key("v", "verdict", "verdict", 4),
    Key("h", "how", "details", 5),
    Key("?", "help", "help", 1),
    Key("d", "detach", "app.detach", 3),
    Key("q", "quit", "app.quit", 1),
)


class FooterLine(CachedWidget):
    """One line. Keys can be clicked; those of the highest rank give way first."""

    view: FooterView
    small = False
    pause_label = "pause"
    message, _role = "", "warning"
    owns_recording = True  # this screen began the recording, and quitting ends it

    def __init__(self, view: FooterView | None = None, **options: Any) -> None:
        super().__init__(view or FooterView(), **options)
        self._key_spans: list[tuple[int, int, str]] = []

    def adapt(self, *, small: bool, pause_label: str) -> None:
        """Show other keys on a small screen, another label of the pause key while paused."""
        if (small, pause_label) != (self.small, self.pause_label):
            self.small, self.pause_label = small, pause_label
            self.repaint()

    def show_message(self, message: str, role: str = "warning") -> None:
        """Show a sentence in place of the keys; an empty one shows the keys again."""
        if (message, role) != (self.message, self._role):
            self.message, self._role = message, role
            self.repaint()

    def paint(self, width: int, height: int) -> list[Line]:
        view, draw_style = self.view, self.draw_style
        if self.message:
            self._key_spans = []
            line_text = text.fit(text.clean(self.message), max(0, width - 2))
            return [[(f" {line_text}".ljust(width), draw_style[self._role])]]
        detaches = view.recording and self.owns_recording
        useless = {name for name, there in (("d", detaches), ("w", view.traced), ("i", view.recording)) if not there}
        keys = [key for key in (SMALL_KEYS if self.small else KEYS) if key.keys not in useless]
        where = ""
        if view.recorded_bytes is not None:
            where = f"{'rec ' if view.recording else ''}{text.size_column(view.recorded_bytes)}"

        def need() -> int:
            return sum(len(k.keys) + len(self._label(k)) + 3 for k in keys) + 2

        while need() + len(where) > width and any(key.rank > 1 for key in keys):
            keys.remove(max(keys, key=lambda key: key.rank))
        line: Line = [(" ", draw_style["dim"])]
        self._key_spans = []
        for key in keys:
            start = line_width(line)
            line += [(key.keys, draw_style["key"]), (f" {self._label(key)}  ", draw_style["dim"])]
            self._key_spans.append((start, line_width(line) - 2, key.action))
        room = width - line_width(line) - len(where) - 2
        path = text.clean(view.path)
        if path and room >= 12:
            path = path if text.width(path) <= room else path.rpartition("/")[2]
            where += " " + text.fit(path, min(room, text.width(path)))
        pad = max(0, width - line_width(line) - text.width(where) - 1)
        return [[*line, (" " * pad, draw_style["dim"]), (where, draw_style["dim"])]]

    def _label(self, key: Key) -> str:
        if key.action == "app.quit" and self.view.recording and not self.owns_recording:
            return "leave, it goes on"
        return self.pause_label if key.action == "toggle_pause" else key.label

    async def on_click(self, event: events.Click) -> None:
        for start, end, action in self._key_spans:
            if start <= event.x < end:
                await self.screen.run_action(action)
