"""The memory that a file tells of, as far as it was read."""

from __future__ import annotations

import numpy as np

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.widgets import raster, text
from memtui.widgets.panel import Panel
from memtui.widgets.raster import Line
from memtui.widgets.stacked_area import AXIS, Stacked

_UNKNOWN = CATEGORIES.index("unknown")


class ReadingChart(Panel):
    """``view``: the most bytes in use in each of equally many events, in the order of the file."""

    view: tuple[int, ...]
    title = "in use, as far as the file was read"
    note = "reading ..."

    def paint_inside(self, width: int, height: int) -> list[Line]:
        columns, rows = width - AXIS, height - 1
        points = np.array(self.view, np.int64)
        if not len(points) or columns < 8 or rows < 2:
            return self.message(self.note, width, height)
        # A part of the columns is enough for few points; of many, the fullest of each column is drawn.
        starts = np.arange(min(columns, len(points))) * len(points) // min(columns, len(points))
        usage = np.zeros((columns, len(CATEGORIES)), np.int64)
        shown = np.maximum.reduceat(points, starts)
        usage[:, _UNKNOWN] = shown[np.arange(columns) * len(shown) // columns]
        peak_bytes = int(points.max())
        picture = Stacked.of(usage, rows, raster.nice_ceiling(float(max(peak_bytes, 1))), self.draw_style)
        return picture.lines(None, int(np.argmax(usage[:, _UNKNOWN])), peak_bytes, self.draw_style)

    def heading_right(self, width: int) -> Line:
        peak = f"peak so far {text.size(max(self.view))}" if self.view else ""
        return [(peak, self.draw_style["bright"])] if peak else []
