"""Ops by configurations, coloured by how much slower each is than with everything in fast memory."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from rich.style import Style

from memtui.core.units import duration_ns
from memtui.widgets import raster, text
from memtui.widgets.panel import line_width
from memtui.widgets.raster import Line
from memtui.widgets.row_panel import CursorPanel
from memtui.widgets.style import DrawStyle
from memtui.widgets.views.placement import MatrixCell, MatrixRow, MatrixView

CELL = 5
TIME = 9
SHORT_TITLE = "slow-down"
HOTTEST = 16.0  # times as slow, and more
_UNKNOWN = "·"


class PlacementMatrix(CursorPanel):
    """A row for each op; the cursor is a cell. Columns are numbered: what they mean differs from op to op."""

    view: MatrixView
    title = "times as long as all in fast memory"

    def __init__(self, view: MatrixView | None = None, **options: Any) -> None:
        super().__init__(view, **options)
        self.row = self.column = self.top = self.left = 0

    @property
    def selected(self) -> tuple[MatrixRow, MatrixCell] | None:
        """Return op and configuration under the cursor."""
        if not self.view.rows:
            return None
        row = self.view.rows[min(self.row, len(self.view.rows) - 1)]
        return row, row.cells[min(self.column, len(row.cells) - 1)]

    def move(self, by: int) -> None:
        self.row = max(0, min(len(self.view.rows) - 1, self.row + by))
        self.repaint()

    def sideways(self, by: int) -> None:
        selected = self.selected
        if selected is not None:
            last = len(selected[0].cells) - 1
            self.column = max(0, min(last, min(self.column, last) + by))
            self.repaint()

    @property
    def in_sight(self) -> int:
        """Return rows there is room for."""
        return max(1, self.size.height - 3)

    def heading(self) -> Line:
        """Return a shorter title where the pool and the way of timing would have no room beside the long one."""
        wide = self.size.width - line_width(self.heading_right(self.size.width)) - 8 >= len(self.title)
        return [(self.title if wide else SHORT_TITLE, self.draw_style["title"])]

    def heading_right(self, width: int) -> Line:
        """Return pool and way of timing; the scale and what is measured where there is room for them."""
        view, draw_style = self.view, self.draw_style
        if not view.rows:
            return []
        room = width - 8 - len(SHORT_TITLE)
        pool = text.fit(
            text.clean(view.slow), min(text.width(text.clean(view.slow)), max(8, room - len(view.mode) - 6))
        )
        line: Line = [(f"{pool} · {view.mode} · ", draw_style["dim"])]
        progress: Line = (
            [(f"{view.measured} of {view.of} measured · ", draw_style["warning"])] if view.measured < view.of else []
        )
        scale: Line = [
            (f" {ratio}{'+' if ratio == HOTTEST else ''} ", on_heat(draw_style, level(ratio)))
            for ratio in (1, 2, 4, 8, 16)
        ]
        for more in ([*progress, *scale], scale):
            if line_width([*line, *more]) <= room:
                return [*line, *more]
        return [(f"{pool} · {view.mode}", draw_style["dim"])]

    def footing_right(self, width: int) -> Line:
        rows = len(self.view.rows)
        if rows <= self.in_sight:
            return []
        return [(f"{self.top + 1}-{min(rows, self.top + self.in_sight)} of {rows}", self.draw_style["dim"])]

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view, draw_style = self.view, self.draw_style
        selected = self.selected
        if selected is None:
            return self.message(view.note or "no op", width, height)
        most = max(len(row.cells) for row in view.rows)
        spare = width - TIME - 2 - most * CELL  # what configurations leave, where all of them are in sight
        label = max(12, min(max(len(row.op) for row in view.rows) + 1, max(min(34, width // 3), spare)))
        shown = max(1, (width - label - TIME - 2) // CELL)
        seen = max(1, height - 1)
        self.top = max(0, min(self.top, self.row, len(view.rows) - seen))
        self.top = max(self.top, self.row - seen + 1)
        column = min(self.column, len(selected[0].cells) - 1)
        self.left = max(0, min(self.left, column, most - shown), column - shown + 1)
        head = "".join(f"{n:>{CELL}}" for n in range(self.left, min(most, self.left + shown)))
        lines: list[Line] = [[(f" {'op':{label}}{'all fast':>{TIME}} {head}", draw_style["dim"])]]
        count = min(len(view.rows) - self.top, seen)
        names = text.in_column(view.rows, self.top, lambda row: row.op, [label] * count)
        for n in range(self.top, self.top + count):
            row = view.rows[n]
            style = draw_style["selected"] if n == self.row else draw_style["text"]
            line: Line = [(f" {names[n - self.top]}{duration_ns(row.cells[0].time_ns):>{TIME}} ", style)]
            for index in range(self.left, min(len(row.cells), self.left + shown)):
                here = n == self.row and index == column
                line.append(self._cell(row.cells[index], here))
            lines.append(line)
        return lines

    def _cell(self, cell: MatrixCell, here: bool) -> tuple[str, Style]:
        draw_style = self.draw_style
        label = _UNKNOWN if cell.ratio is None else ratio_text(cell.ratio)
        style = draw_style["dim"] if cell.ratio is None else on_heat(draw_style, level(cell.ratio))
        if here:
            return f"[{label:>{CELL - 2}}]", style + Style(bold=True)
        return f"{label:>{CELL - 1}} ", style


def ratio_text(ratio: float) -> str:
    """Return a ratio in three cells at most."""
    return f"{ratio:.1f}" if ratio < 9.95 else f"{ratio:.0f}" if ratio < 999.5 else "999"


def level(ratio: float) -> int:
    """Return the heat of a ratio: 0 up to 1.05, 9 from ``HOTTEST`` on; equal factors are equal steps."""
    if ratio <= 1.05:
        return 0
    return max(1, min(raster.LEVELS, math.ceil(raster.LEVELS * math.log(ratio) / math.log(HOTTEST))))


@lru_cache(256)
def on_heat(draw_style: DrawStyle, level: int) -> Style:
    """Return the style of a text on a ground as hot as a level, or on the usual ground without 256 colours."""
    style = draw_style.heat[level]
    if draw_style.color != "256" or style.color is None:
        return style
    red, green, blue = style.color.get_truecolor()
    bright = 0.299 * red + 0.587 * green + 0.114 * blue > 110
    return Style(color="color(16)" if bright else "color(252)", bgcolor=style.color)
