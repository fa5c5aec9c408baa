"""The first line: whom we watch, where in time we are, and what is wrong with what is measured."""

from __future__ import annotations

from textual import events

from memtui.widgets import text
from memtui.widgets.panel import CachedWidget, Panel, line_width
from memtui.widgets.raster import Line
from memtui.widgets.ticks import TICKS
from memtui.widgets.views.memory import HeaderView, State


class HeaderLine(CachedWidget):
    """One line. What matters least gives way first; off the live edge a timeline takes the room to the right."""

    view: HeaderView
    _bar_at = _bar_cells = 0  # where the timeline stands

    def on_click(self, event: events.Click) -> None:
        cell = event.x - self._bar_at
        if self.view is not None and 0 <= cell < self._bar_cells:
            seconds = (cell + 0.5) / self._bar_cells * self.view.duration_s
            self.post_message(Panel.TimeAsked(self.view.origin_ns + seconds * 1e9))

    def paint(self, width: int, height: int) -> list[Line]:
        look = self.look
        # The program's own name is the first to go where the costs would not fit.
        for brand in (" memtui  ", " "):
            left = self._left(brand, width)
            free = width - line_width(left) - 2
            right, whole = self._right(free)
            if whole:
                break
        pad = max(1, width - line_width(left) - line_width(right) - 1)
        self._bar_at = line_width(left) + pad
        line = [*left, (" " * pad, look["text"]), *right, (" ", look["text"])]
        return [line]

    def _left(self, brand: str, width: int) -> Line:
        view, look = self.view, self.look
        left: Line = [(brand, look["dim"])]
        name = text.clean(view.command)
        room = max(8, min(40, width - 60))
        left.append((text.fit(name, min(room, text.width(name))), look["bright"]))
        left.append((f"  pid {view.pid}" if width >= 100 else f" {view.pid}", look["text"]))
        if view.others:
            left.append((f" +{view.others}", look["dim"]))
        return [*left, ("   " if width >= 100 else "  ", look["dim"]), *self._state()]

    def _right(self, free: int) -> tuple[Line, bool]:
        """Return what stands to the right, and whether it is all there is to say."""
        view, look = self.view, self.look
        self._bar_cells = 0
        if view.notice:
            return [(text.sentence(text.clean(view.notice), max(0, free)), look["warning"])], True
        if view.state not in (State.PAUSED, State.PLAYING):
            return self._costs(free)
        right, whole = self._costs(free - (10 * (free >= 40) if view.warnings else max(16, free // 3)))
        bar = free - line_width(right) - 2
        if bar >= 8:
            self._bar_cells = min(bar, 120)
            right = [*self._timeline(self._bar_cells), ("  ", look["dim"]), *right]
        return right, whole

    def _state(self) -> Line:
        view, look = self.view, self.look
        now, whole = text.clock(view.position_s), text.clock(view.duration_s)
        if view.state is State.LIVE:
            return [("● LIVE ", look["live"]), (now, look["text"])]
        if view.state is State.ENDED:
            return [("■ ended ", look["ended"]), (whole, look["text"]), (f" {text.clean(view.ended)}", look["dim"])]
        sign = "❚❚" if view.state is State.PAUSED else "▶ "
        line: Line = [(f"{sign} ", look["paused"]), (now, look["bright"]), (f" of {whole}", look["text"])]
        line.append((f" x{view.speed:g}".ljust(6), look["dim"]))
        return line

    def _timeline(self, width: int) -> Line:
        view, look = self.view, self.look
        cells = width
        whole = max(view.duration_s, 1e-9)
        done = min(cells - 1, int(view.position_s / whole * cells))
        glyphs = ["━"] * done + ["●"] + ["─"] * (cells - done - 1)
        roles = ["paused"] * done + ["bright"] + ["faint"] * (cells - done - 1)
        for mark in view.marks:
            place = int((mark.t_ns - view.origin_ns) / 1e9 / whole * cells)
            place = min(place, cells - 1)
            if 0 <= place != done and mark.kind in TICKS:
                if roles[place] == "key":
                    continue  # what the user wrote down stays in sight
                glyphs[place], roles[place] = TICKS[mark.kind], "key" if mark.kind == "mark" else "warning"
        line: Line = []
        for glyph, role in zip(glyphs, roles, strict=True):
            if line and line[-1][1] is look[role]:
                line[-1] = (line[-1][0] + glyph, look[role])
            else:
                line.append((glyph, look[role]))
        return line

    def _costs(self, room: int) -> tuple[Line, bool]:
        """Return what is wrong, then what else matters at first sight, as many words as fit; and whether that is all.

        How it is measured, and the single costs, are the details' (``widgets.plain_lines``).
        """
        view, look = self.view, self.look
        words = [
            (1, f"slows it by about {text.percent(view.lost)}" if view.lost is not None else ""),
            (2, f"next window in {view.wait_s} s" if view.wait_s is not None else ""),
        ]
        words = [(rank, word) for rank, word in words if word]
        warning = next((w for w in view.warnings if text.width(w) <= room), "")
        room -= text.width(warning) + 3 * bool(warning)

        def need() -> int:
            return sum(text.width(word) + 3 for _, word in words) - 3

        whole = need() <= room and bool(warning) == bool(view.warnings)
        while words and need() > room:
            words.remove(max(words))
        line: Line = [(warning, look["warning"])] if warning else []
        if words:
            line.append((" · " * bool(line) + " · ".join(word for _, word in words), look["dim"]))
        return line, whole
