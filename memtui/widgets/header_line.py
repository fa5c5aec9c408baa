"""The first line: the recorded process, the position in time, and warnings about the measurement."""

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
    _bar_start = _bar_cells = 0  # where the timeline stands

    def on_click(self, event: events.Click) -> None:
        cell = event.x - self._bar_start
        if self.view is not None and 0 <= cell < self._bar_cells:
            seconds = (cell + 0.5) / self._bar_cells * self.view.duration_s
            self.post_message(Panel.TimeClicked(self.view.origin_ns + seconds * 1e9))

    def paint(self, width: int, height: int) -> list[Line]:
        draw_style = self.draw_style
        # The program's own name is the first to go where the costs would not fit.
        for brand in (" memtui  ", " "):
            left = self._left(brand, width)
            free = width - line_width(left) - 2
            right, whole = self._right(free)
            if whole:
                break
        pad = max(1, width - line_width(left) - line_width(right) - 1)
        self._bar_start = line_width(left) + pad
        line = [*left, (" " * pad, draw_style["text"]), *right, (" ", draw_style["text"])]
        return [line]

    def _left(self, brand: str, width: int) -> Line:
        view, draw_style = self.view, self.draw_style
        left: Line = [(brand, draw_style["dim"])]
        name = text.clean(view.command)
        room = max(8, min(40, width - 60))
        left.append((text.fit(name, min(room, text.width(name))), draw_style["bright"]))
        left.append((f"  pid {view.pid}" if width >= 100 else f" {view.pid}", draw_style["text"]))
        if view.others:
            left.append((f" +{view.others}", draw_style["dim"]))
        return [*left, ("   " if width >= 100 else "  ", draw_style["dim"]), *self._state()]

    def _right(self, free: int) -> tuple[Line, bool]:
        """Return the right part of the line, and whether the part is complete."""
        view, draw_style = self.view, self.draw_style
        self._bar_cells = 0
        if view.notice:
            return [(text.sentence(text.clean(view.notice), max(0, free)), draw_style["warning"])], True
        if view.state not in (State.PAUSED, State.PLAYING):
            return self._costs(free)
        right, whole = self._costs(free - (10 * (free >= 40) if view.warnings else max(16, free // 3)))
        bar = free - line_width(right) - 2
        if bar >= 8:
            self._bar_cells = min(bar, 120)
            right = [*self._timeline(self._bar_cells), ("  ", draw_style["dim"]), *right]
        return right, whole

    def _state(self) -> Line:
        view, draw_style = self.view, self.draw_style
        now, whole = text.clock(view.position_s), text.clock(view.duration_s)
        if view.state is State.LIVE:
            return [("● LIVE ", draw_style["live"]), (now, draw_style["text"])]
        if view.state is State.ENDED:
            return [
                ("■ ended ", draw_style["ended"]),
                (whole, draw_style["text"]),
                (f" {text.clean(view.ended)}", draw_style["dim"]),
            ]
        sign = "❚❚" if view.state is State.PAUSED else "▶ "
        line: Line = [
            (f"{sign} ", draw_style["paused"]),
            (now, draw_style["bright"]),
            (f" of {whole}", draw_style["text"]),
        ]
        line.append((f" x{view.speed:g}".ljust(6), draw_style["dim"]))
        return line

    def _timeline(self, width: int) -> Line:
        view, draw_style = self.view, self.draw_style
        cells = width
        whole = max(view.duration_s, 1e-9)
        done = min(cells - 1, int(view.position_s / whole * cells))
        glyphs = ["━"] * done + ["●"] + ["─"] * (cells - done - 1)
        roles = ["paused"] * done + ["bright"] + ["faint"] * (cells - done - 1)
        for tick in view.ticks:
            cell = int((tick.t_ns - view.origin_ns) / 1e9 / whole * cells)
            cell = min(cell, cells - 1)
            if 0 <= cell != done and tick.kind in TICKS:
                if roles[cell] == "key":
                    continue  # what the user wrote down stays in sight
                glyphs[cell], roles[cell] = TICKS[tick.kind], "key" if tick.kind == "mark" else "warning"
        line: Line = []
        for glyph, role in zip(glyphs, roles, strict=True):
            if line and line[-1][1] is draw_style[role]:
                line[-1] = (line[-1][0] + glyph, draw_style[role])
            else:
                line.append((glyph, draw_style[role]))
        return line

    def _costs(self, room: int) -> tuple[Line, bool]:
        """Return a warning and the costs that matter most, as many as fit; and whether all of them fit.

        How memory is measured, and the single costs, are in the details (``widgets.sentence_lines``).
        """
        view, draw_style = self.view, self.draw_style
        warning = next((w for w in view.warnings if text.width(w) <= room), "")
        room -= text.width(warning) + 3 * bool(warning)
        lost = "" if view.lost is None else f"slows it by {text.about_percent(view.lost)}"
        traced = "" if view.traced is None else f"tracing by {text.about_percent(view.traced)} more"
        if view.lost is not None and view.traced is not None and text.width(f"{lost} · {traced}") > room:
            lost, traced = f"slows it by {text.about_percent(view.lost + view.traced)}", ""
        parts = [
            (1, lost),
            (2, traced),
            (3, f"next window in {view.wait_s} s" if view.wait_s is not None else ""),
        ]
        parts = [(rank, word) for rank, word in parts if word]

        def need() -> int:
            return sum(text.width(word) + 3 for _, word in parts) - 3

        whole = need() <= room and bool(warning) == bool(view.warnings)
        while parts and need() > room:
            parts.remove(max(parts))
        line: Line = [(warning, draw_style["warning"])] if warning else []
        if parts:
            line.append((" · " * bool(line) + " · ".join(word for _, word in parts), draw_style["dim"]))
        return line, whole
