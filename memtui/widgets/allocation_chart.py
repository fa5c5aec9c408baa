"""The memory of one training step, allocation by allocation: an area for each kind of tensor, on top of each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from textual import events
from textual.message import Message

from memtui.analysis.trace_index import StepIndex
from memtui.widgets import raster, text
from memtui.widgets.panel import Panel
from memtui.widgets.raster import Line
from memtui.widgets.stacked_area import AXIS, Stacked
from memtui.widgets.tensor_kinds import by_letter, legend


class AllocationChart(Panel):
    """``view`` is a step; ``row`` the allocation under the cursor."""

    view: StepIndex
    row = 0
    title = "allocations"
    note = "nothing was allocated in this step"  # shown in place of an empty picture
    total_label = "held"  # what the footing calls the bytes at the cursor

    def __init__(self, view: StepIndex | None = None, **options: Any) -> None:
        super().__init__(view, **options)
        self._picture: tuple[tuple[object, ...], NDArray[np.int64], Stacked] | None = None

    class Pointed(Message):
        """A column was clicked."""

        def __init__(self, row: int) -> None:
            super().__init__()
            self.row = row

    @property
    def columns(self) -> int:
        """Return how many there is room for."""
        return max(1, self.size.width - 2 - AXIS)

    def point(self, row: int) -> None:
        """Put the cursor on an allocation."""
        if row != self.row:
            self.row = row
            self.repaint()

    def on_click(self, event: events.Click) -> None:
        super().on_click(event)
        column = event.x - 1 - AXIS
        if self.view and 0 <= column < self.columns:
            self.post_message(self.Pointed(int(_rows_of(self.view, _column_starts(self.view, self.columns))[column])))

    def heading_right(self, width: int) -> Line:
        """Return what is held at the cursor."""
        if not len(self.view):
            return []
        return legend(self.view.usage_by_category(self.row).tolist(), self.draw_style, width - len(self.title) - 8)

    def footing(self) -> Line:
        """Return what happened at the cursor."""
        if not len(self.view):
            return []
        trace, row = self.view.trace, self.row
        before = row < trace.existing
        delta = self.view.start_bytes if before else int(trace.delta_bytes[row])
        done = "there before" if before else "freed" if delta < 0 else "allocated" if delta else "no memory"
        what = trace.name(int(trace.op[row])).rpartition("/")[2] or done
        layer = "" if before else trace.name(int(self.view.layer[row]))
        where = f" {'of' if delta < 0 else 'in'} layer {layer}" if layer else ""
        return [(text.clean(f"{row + 1} of {len(trace)}: {text.change(delta)} {what}{where}"), self.draw_style["text"])]

    def footing_right(self, width: int) -> Line:
        if not len(self.view):
            return []
        return [
            (f"{self.total_label} ", self.draw_style["dim"]),
            (text.size(int(self.view.usage_bytes[self.row])), self.draw_style["bright"]),
        ]

    def paint_inside(self, width: int, height: int) -> list[Line]:
        index, draw_style = self.view, self.draw_style
        columns, rows = width - AXIS, height - 1
        if not len(index) or columns < 8 or rows < 2:
            return self.message(self.note, width, height)
        starts, picture = self._drawn(columns, rows)
        cursor, peak = (np.searchsorted(starts, (self.row, index.peak_row), side="right") - 1).tolist()
        return picture.lines(cursor, peak, index.peak_bytes, draw_style)

    def _drawn(self, columns: int, rows: int) -> tuple[NDArray[np.int64], Stacked]:
        """Return the first row of each column, and the picture; both are cached for a step and a size."""
        index, draw_style = self.view, self.draw_style
        key = index, columns, rows, by_letter(draw_style)
        if self._picture is None or self._picture[0] != key:
            starts = _column_starts(index, columns)
            by_category = np.array([index.usage_by_category(row) for row in _rows_of(index, starts).tolist()])
            self._picture = (
                key,
                starts,
                Stacked.of(by_category, rows, raster.nice_ceiling(float(index.peak_bytes)), draw_style),
            )
        return self._picture[1:]


def _column_starts(index: StepIndex, columns: int) -> NDArray[np.int64]:
    """Return the first row of each column; all allocations that existed at the start of the step are one row."""
    first = index.start_row
    return first + np.arange(columns) * (len(index) - first) // columns


def _rows_of(index: StepIndex, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row that stands for each column: the one with the most memory, so that no peak is lost."""
    usage, ends = index.usage_bytes, np.maximum(np.append(starts[1:], len(index)), starts + 1)
    return np.array([a + int(np.argmax(usage[a:b])) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)])
