"""A plan over the ops: bytes in fast memory under their limit, and below it where each tensor is when."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

import numpy as np
from rich.style import Style

from memtui.core.units import short_size
from memtui.widgets import raster, text
from memtui.widgets.raster import Line
from memtui.widgets.row_panel import CursorPanel
from memtui.widgets.views.placement import HERE_FAST, HERE_SLOW, NOT_HERE, TimelineRow, TimelineView

_INTO, _OUT = True, False
_HEAT = 7  # of what is in slow memory


class PlacementTimeline(CursorPanel):
    """A row for each tensor, the ops from left to right. The cursor is a tensor and an op."""

    view: TimelineView
    title = "where tensors are"

    def __init__(self, view: TimelineView | None = None, **options: Any) -> None:
        super().__init__(view, **options)
        self.row = self.op = self.top = 0

    @property
    def selected(self) -> TimelineRow | None:
        rows = self.view.rows
        return rows[min(self.row, len(rows) - 1)] if rows else None

    def move(self, by: int) -> None:
        self.row = max(0, min(len(self.view.rows) - 1, self.row + by))
        self.repaint()

    def sideways(self, by: int) -> None:
        self.op = max(0, min(len(self.view.ops) - 1, self.op + by))
        self.repaint()

    @property
    def in_sight(self) -> int:
        return max(1, self.size.height - 3 - self._chart_rows(self.size.height - 2))

    @staticmethod
    def _chart_rows(height: int) -> int:
        return max(3, min(8, height // 4))

    def heading_right(self, width: int) -> Line:
        draw_style = self.draw_style
        if not self.view.rows:
            return []
        fast, slow, into, out = _glyphs(draw_style.ascii_only)
        return [
            (fast * 2, draw_style["cool"]), (" fast  ", draw_style["dim"]),
            (slow * 2, draw_style.heat[_HEAT]), (" slow  ", draw_style["dim"]),
            (into, draw_style["bright"]), (" moved in  ", draw_style["dim"]),
            (out, draw_style["bright"]), (" out", draw_style["dim"]),
        ]  # fmt: skip

    def footing(self) -> Line:
        return [(self.view.title, self.draw_style["dim"])] if self.view.title else []

    def footing_right(self, width: int) -> Line:
        rows = len(self.view.rows)
        return (
            [(f"{self.top + 1}-{min(rows, self.top + self.in_sight)} of {rows}", self.draw_style["dim"])]
            if rows
            else []
        )

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view, draw_style = self.view, self.draw_style
        if not view.rows:
            return self.message(view.note or "nothing has a choice", width, height)
        label = max(16, min(34, width // 4))
        columns = self._columns(width - label - 1)
        lines = self._chart(columns, label, self._chart_rows(height))
        seen = max(1, height - len(lines))
        self.top = max(0, min(self.top, self.row, len(view.rows) - seen))
        self.top = max(self.top, self.row - seen + 1)
        here = next(n for n, (first, last) in enumerate(columns) if first <= min(self.op, len(view.ops) - 1) <= last)
        count = min(len(view.rows) - self.top, seen)
        names = text.in_column(view.rows, self.top, lambda row: row.name, [label - 8] * count)
        for n in range(self.top, self.top + count):
            row = view.rows[n]
            chosen = n == self.row
            line: Line = [
                (
                    f"{short_size(row.size_bytes):>6} {names[n - self.top]} ",
                    draw_style["selected" if chosen else "text"],
                )
            ]
            lines.append(line + self._bar(row, columns, here))
        return lines

    def _columns(self, cells: int) -> list[tuple[int, int]]:
        """Return first and last op of each column of cells: several cells an op, or several ops a cell."""
        ops = len(self.view.ops)
        wide = max(1, cells // ops)
        if cells >= ops:
            return [(k, k) for k in range(ops) for _ in range(wide)]
        edges = [n * ops // cells for n in range(cells + 1)]
        return [(a, max(a, b - 1)) for a, b in pairwise(edges)]

    def _chart(self, columns: list[tuple[int, int]], label: int, rows: int) -> list[Line]:
        """Return bytes in fast memory as an area, and the limit as a line."""
        view, draw_style = self.view, self.draw_style
        most = raster.nice_ceiling(float(max(view.limit_bytes, *view.fast_bytes, 1)), headroom=1.02)
        values = np.array([max(view.fast_bytes[first : last + 1]) for first, last in columns], float) / most
        glyphs = raster.ASCII_VERTICAL if draw_style.ascii_only else raster.VERTICAL
        codes = raster.bars(values, rows, glyphs=glyphs)
        styles = np.zeros(codes.shape, np.int64)
        limit = rows - 1 - min(rows - 1, int(view.limit_bytes / most * rows))
        free = codes[limit] == ord(" ")
        codes[limit][free], styles[limit][free] = ord("-" if draw_style.ascii_only else "┄"), 1
        labels = [f"{short_size(most)} ", *[""] * (rows - 1)]
        labels[limit] = f"limit {short_size(view.limit_bytes)} "
        lines = raster.lines(codes, styles, [draw_style["cool"], draw_style["warning"]])
        return [
            [(f"{axis_label:>{label}}", draw_style["dim"]), *line]
            for axis_label, line in zip(labels, lines, strict=True)
        ]

    def _bar(self, row: TimelineRow, columns: list[tuple[int, int]], here: int) -> Line:
        draw_style = self.draw_style
        fast, slow, into, out = _glyphs(draw_style.ascii_only)
        styles = {HERE_FAST: draw_style["cool"], HERE_SLOW: draw_style.heat[_HEAT], NOT_HERE: draw_style["faint"]}
        glyphs = {HERE_FAST: fast, HERE_SLOW: slow, NOT_HERE: " "}
        cells = []
        before = (-1, -1)
        for n, (first, last) in enumerate(columns):
            part = row.where[first : last + 1]
            pool = next((p for p in (HERE_SLOW, HERE_FAST) if p in part), NOT_HERE)
            glyph, style = glyphs[pool], styles[pool]
            ways = {way for op, way, _ in row.moves if first <= op <= last} if (first, last) != before else set()
            if ways:
                glyph, style = into if _INTO in ways else out, draw_style["bright"]
            elif n == here and pool == NOT_HERE:
                glyph = "|" if draw_style.ascii_only else "┊"
            before = first, last
            cells.append((glyph, style))
        return [("".join(g for g, _ in run), style) for style, run in _runs(cells)]


def _runs(cells: list[tuple[str, Style]]) -> list[tuple[Style, list[tuple[str, Style]]]]:
    return [(style, list(run)) for style, run in groupby(cells, key=lambda cell: cell[1])]


def _glyphs(ascii_only: bool) -> tuple[str, ...]:
    """Return fast, slow, moved in, moved out."""
    return tuple("#=^v" if ascii_only else "█▒▲▼")
