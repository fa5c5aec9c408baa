"""Lines of several sessions over one another."""

from __future__ import annotations

import numpy as np
from rich.style import Style

from memtui.core.options import LETTERS
from memtui.widgets import raster, text
from memtui.widgets.line_chart import Curve, drawn
from memtui.widgets.panel import Panel, line_width
from memtui.widgets.stacked_area import AXIS
from memtui.widgets.style import DrawStyle
from memtui.widgets.views.comparison import OverlayView

_ACROSS = {
    "iterations": "iterations",
    "s": "seconds",
    "%": "allocations and frees of one iteration, in their order",
    "share": "share of the session",
    "bytes": "memory",
}


def run_styles(draw_style: DrawStyle) -> list[Style]:
    """Return a style for each session, in their order: as different as the theme allows."""
    first = (draw_style["rss"], draw_style.heat[6], draw_style["live"], draw_style["key"])
    return [*first, draw_style["focus"], draw_style["warning"], draw_style["bright"], draw_style["dim"]]


class OverlayChart(Panel):
    """Of each column the largest value is drawn, so that no peak is lost."""

    view: OverlayView

    def heading(self) -> raster.Line:
        return [(self.view.title, self.draw_style["title"])]

    def heading_right(self, width: int) -> raster.Line:
        """Return the largest value of each session.

        A curve that is not a size gives its last value. Where room is short, letters stand alone.
        """
        line: raster.Line = []
        letters: raster.Line = []
        styles = run_styles(self.draw_style)
        for letter, curve, style in zip(LETTERS, self.view.lines, styles, strict=False):
            if np.isfinite(curve.y).any():
                last = float(np.nanmax(curve.y)) if self.view.unit == "bytes" else float(curve.y[-1])
                line += [(f"  {letter} ", style), (self._value(last), self.draw_style["text"])]
                letters.append((f" {letter}", style))
        fits = line_width(self.heading()) + line_width(line) + 8 <= width
        return line if fits else letters

    def footing(self) -> raster.Line:
        return [("0", self.draw_style["dim"])]

    def footing_middle(self, width: int) -> raster.Line:
        return [(_ACROSS[self.view.across], self.draw_style["dim"])]

    def footing_right(self, width: int) -> raster.Line:
        most = self._most
        if self.view.across == "bytes":
            return [(text.size(most), self.draw_style["dim"])]
        unit = " %" if self.view.across in ("%", "share") else ""
        return [(f"{most:,.0f}{unit}" if most >= 10 else f"{most:.1f}{unit}", self.draw_style["dim"])]

    @property
    def _most(self) -> float:
        return max((float(curve.x[-1]) for curve in self.view.lines if len(curve.x)), default=1.0) or 1.0

    def _value(self, value: float) -> str:
        if self.view.unit == "bytes":
            return text.size(round(value))
        return f"{value:.1f} %" if self.view.unit == "%" else f"{value:.4g}"

    def paint_inside(self, width: int, height: int) -> list[raster.Line]:
        view, draw_style = self.view, self.draw_style
        columns, rows = width - AXIS, height
        if columns < 8 or rows < 2:
            return self.message("", width, height)
        if not any(np.isfinite(curve.y).any() for curve in view.lines):
            return self.message("not in these sessions", width, height)
        top = self._top()
        curves = []
        for letter, curve, style in zip(LETTERS, view.lines, run_styles(draw_style), strict=False):
            curves.append(Curve(_columns(curve.x, curve.y, self._most, 2 * columns, view.unit) / top, style, letter))
        labels = [""] * rows
        labels[0], labels[-1] = self._label(top), "0"
        if rows >= 5:
            labels[rows // 2] = self._label(top / 2)
        return [
            [(labels[row].rjust(AXIS - 1) + " ", draw_style["dim"]), *line]
            for row, line in enumerate(drawn(curves, rows, columns, draw_style, letters=draw_style.color == "none"))
        ]

    def _label(self, value: float) -> str:
        if self.view.unit == "bytes":
            return text.short_size(value)
        return f"{value:.0f}%" if self.view.unit == "%" else f"{value:.3g}"

    def _top(self) -> float:
        if self.view.unit == "%":
            return 100.0
        most = max((float(np.nanmax(curve.y)) for curve in self.view.lines if np.isfinite(curve.y).any()), default=1.0)
        if self.view.unit == "bytes":
            return raster.nice_ceiling(most, headroom=1.02)
        return most * 1.02 or 1.0


def _columns(x: np.ndarray, y: np.ndarray, most: float, count: int, unit: str) -> np.ndarray:
    """Return f8[count]: of bytes the most in each column, of other units the last; gaps repeat the value before."""
    out = np.full(count, np.nan)
    if not len(x):
        return out
    column = np.clip((x / most * count).astype(np.int64), 0, count - 1)
    order = np.argsort(x, kind="stable")
    column, y = column[order], y[order]
    last = np.searchsorted(column, np.arange(count), side="right") - 1
    inside = np.arange(int(column[0]), int(column[-1]) + 1)
    out[inside] = y[last[inside]]
    if unit == "bytes":
        np.fmax.at(out, column, y)
    return out
