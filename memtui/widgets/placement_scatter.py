"""Two ways of timing against each other, on equal logarithmic axes, with the line of equal times."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from memtui.core.units import duration_ns
from memtui.widgets import raster, text
from memtui.widgets.raster import Line
from memtui.widgets.row_panel import CursorPanel
from memtui.widgets.views.placement import ScatterPoint, ScatterView

AXIS = 10
_LINE, _POINT, _UNJUDGED, _OUTLIER, _HERE = range(5)
_BRAILLE = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], np.uint32)  # by row and column of a cell


class PlacementScatter(CursorPanel):
    """Points above the line take longer in the compared way of timing. The cursor moves from point to point."""

    view: ScatterView
    title = "do they agree"

    def __init__(self, view: ScatterView | None = None, **options: Any) -> None:
        super().__init__(view, **options)
        self.point_index = 0

    @property
    def selected(self) -> ScatterPoint | None:
        points = self.view.points
        return points[min(self.point_index, len(points) - 1)] if points else None

    def move(self, by: int) -> None:
        """Move along the points: up is slower, so the next point up is the next slower one."""
        self.point_index = max(0, min(len(self.view.points) - 1, self.point_index - by))
        self.repaint()

    def sideways(self, by: int) -> None:
        self.move(-by)

    def heading_right(self, width: int) -> Line:
        draw_style, glyphs = self.draw_style, _glyphs(self.draw_style.ascii_only)
        return [
            (glyphs["line"], draw_style["cool"]),
            (" equal  ", draw_style["dim"]),
            (glyphs["outlier"], draw_style["warning"]),
            (" far from the others  ", draw_style["dim"]),
            (glyphs["unjudged"], draw_style["faint"]),
            (" below the noise floor", draw_style["dim"]),
        ]

    def footing(self) -> Line:
        return [(f"across: {self.view.across}, up: {self.view.up}", self.draw_style["dim"])] if self.view.points else []

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view, draw_style = self.view, self.draw_style
        columns, rows = width - AXIS - 1, height - 1
        points = [p for p in view.points if p.x_ns > 0 and p.y_ns > 0]
        if not points or columns < 8 or rows < 3:
            return self.message(view.note or "no pair was timed in both ways", width, height)
        logs = [math.log10(value) for p in points for value in (p.x_ns, p.y_ns)]
        low, high = min(logs), max(logs)
        margin = 0.04 * (high - low) or 0.5
        low, high = low - margin, high + margin
        glyphs = _glyphs(draw_style.ascii_only)
        codes = np.full((rows, columns), ord(" "), np.uint32)
        styles = np.full((rows, columns), _LINE, np.int64)
        for x in range(columns):
            y = rows - 1 - int((x + 0.5) / columns * rows)
            codes[y, x] = ord(glyphs["line"])
        for point in sorted(points, key=lambda p: (p.outlier, p.judged)):
            along = (math.log10(point.x_ns) - low) / (high - low)
            upward = 1 - (math.log10(point.y_ns) - low) / (high - low)
            x, y = int(along * columns * 2), int(upward * rows * 4)
            style = _OUTLIER if point.outlier else _POINT if point.judged else _UNJUDGED
            cell = y // 4, x // 2
            if point is self.selected:
                codes[cell], styles[cell] = ord(glyphs["here"]), _HERE
            elif styles[cell] == _HERE:
                continue
            elif style != _POINT or draw_style.ascii_only:
                codes[cell] = ord(
                    glyphs["outlier" if style == _OUTLIER else "unjudged" if style == _UNJUDGED else "point"]
                )
                styles[cell] = style
            else:
                before = int(codes[cell]) - 0x2800 if codes[cell] >= 0x2800 else 0
                codes[cell], styles[cell] = 0x2800 + (before | int(_BRAILLE[y % 4, x % 2])), style
        lines = raster.lines(codes, styles, [draw_style[r] for r in ("cool", "text", "faint", "warning", "cursor")])
        labels = ["", *[""] * (rows - 2), ""]
        labels[0], labels[rows // 2], labels[-1] = (
            duration_ns(10**exponent) for exponent in (high, (low + high) / 2, low)
        )
        painted = [
            [(f"{label:>{AXIS - 1}} ", draw_style["dim"]), *line] for label, line in zip(labels, lines, strict=True)
        ]
        ends = duration_ns(10**low), duration_ns(10 ** ((low + high) / 2)), duration_ns(10**high)
        below = ends[0] + ends[1].center(columns - len(ends[0]) - len(ends[2])) + ends[2]
        return [*painted, [(" " * AXIS + text.fit(below, columns), draw_style["dim"])]]


def _glyphs(ascii_only: bool) -> dict[str, str]:
    names = ("line", "point", "unjudged", "outlier", "here")
    return dict(zip(names, ".o,x@" if ascii_only else "┈•·×◉", strict=True))
