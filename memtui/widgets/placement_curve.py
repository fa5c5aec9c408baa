"""The time of a step by fast memory: plans as a line of steps, first touch as points above it."""

from __future__ import annotations

from typing import Any

import numpy as np

from memtui.core.units import duration_ns, short_size
from memtui.widgets import raster, text
from memtui.widgets.raster import Line
from memtui.widgets.row_panel import CursorPanel
from memtui.widgets.views.placement import CurvePoint, CurveView

AXIS = 10
_FAST, _STEP, _PLAN, _TOUCH, _BOTH, _HERE = range(6)


class PlacementCurve(CursorPanel):
    """The cursor is a limit that was solved; between two limits the plan of the smaller one applies."""

    view: CurveView
    title = "time of a step by fast memory"

    def __init__(self, view: CurveView | None = None, **options: Any) -> None:
        super().__init__(view, **options)
        self.point_index = 0

    @property
    def selected(self) -> CurvePoint | None:
        points = self.view.points
        return points[min(self.point_index, len(points) - 1)] if points else None

    def move(self, by: int) -> None:
        self.sideways(by)

    def sideways(self, by: int) -> None:
        self.point_index = max(0, min(len(self.view.points) - 1, self.point_index + by))
        self.repaint()

    def heading_right(self, width: int) -> Line:
        draw_style = self.draw_style
        fast, step, plan, touch, both, _ = _glyphs(draw_style.ascii_only)
        if not self.view.points:
            return []
        return [
            (plan + step, draw_style["focus"]),
            (" plan  ", draw_style["dim"]),
            (touch, draw_style["warning"]),
            (" first touch  ", draw_style["dim"]),
            (both, draw_style["focus"]),
            (" both  ", draw_style["dim"]),
            (fast, draw_style["cool"]),
            (" all fast", draw_style["dim"]),
        ]

    def footing(self) -> Line:
        return [(self.view.title, self.draw_style["dim"])] if self.view.title else []

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view, draw_style = self.view, self.draw_style
        columns, rows = width - AXIS - 1, height - 1
        if not view.points or columns < 8 or rows < 3:
            return self.message(view.note or "no point", width, height)
        times_ns = [ns for p in view.points for ns in (p.plan_ns, p.touch_ns) if ns is not None]
        low = min(*times_ns, view.all_fast_ns) if view.all_fast_ns else min(times_ns)
        low, high = 0.97 * low, 1.02 * max(times_ns)
        most = max(p.limit_bytes for p in view.points) or 1

        def row_of(ns: float) -> int:
            return rows - 1 - min(rows - 1, max(0, int((ns - low) / ((high - low) or 1) * rows)))

        def column_of(limit_bytes: int) -> int:
            return min(columns - 1, round(limit_bytes / most * (columns - 1)))

        fast, step, plan, touch, both, here = (ord(glyph) for glyph in _glyphs(draw_style.ascii_only))
        codes = np.full((rows, columns), ord(" "), np.uint32)
        styles = np.zeros((rows, columns), np.int64)
        if view.all_fast_ns:
            codes[row_of(view.all_fast_ns)], styles[row_of(view.all_fast_ns)] = fast, _FAST
        ends = [column_of(p.limit_bytes) for p in view.points[1:]] + [columns]
        for point, end in zip(view.points, ends, strict=True):
            x, y = column_of(point.limit_bytes), row_of(point.plan_ns)
            codes[y, x:end], styles[y, x:end] = step, _STEP
        for point in view.points:
            x = column_of(point.limit_bytes)
            if point.touch_ns is not None:
                codes[row_of(point.touch_ns), x], styles[row_of(point.touch_ns), x] = touch, _TOUCH
            y = row_of(point.plan_ns)
            as_touch = point.touch_ns is not None and row_of(point.touch_ns) == y
            codes[y, x], styles[y, x] = (both, _BOTH) if as_touch else (plan, _PLAN)
        chosen = self.selected
        if chosen is not None:
            spot = row_of(chosen.plan_ns), column_of(chosen.limit_bytes)
            codes[spot], styles[spot] = here, _HERE
        lines = raster.lines(
            codes, styles, [draw_style[r] for r in ("cool", "faint", "focus", "warning", "focus", "cursor")]
        )
        labels = [""] * rows
        labels[0], labels[rows // 2], labels[-1] = (duration_ns(ns) for ns in (high, (low + high) / 2, low))
        painted = [
            [(f"{label:>{AXIS - 1}} ", draw_style["dim"]), *line] for label, line in zip(labels, lines, strict=True)
        ]
        half, whole = short_size(most / 2), short_size(most)
        below = "0" + half.center(columns - 1 - len(whole)) + whole
        return [*painted, [(" " * AXIS + text.fit(below, columns), draw_style["dim"])]]


def _glyphs(ascii_only: bool) -> tuple[str, ...]:
    """Return all fast, between two points, plan, first touch, both, cursor."""
    return tuple(".-ox#@" if ascii_only else "┈─●×■◉")
