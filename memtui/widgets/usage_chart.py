"""The memory of tensors over time: an area for each kind, on top of each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from textual import events

from memtui.widgets import raster, text
from memtui.widgets.panel import Panel, axis_labels
from memtui.widgets.raster import Line
from memtui.widgets.stacked_area import AXIS, Stacked
from memtui.widgets.tensor_kinds import legend
from memtui.widgets.views.training import TrainingView


class UsageChart(Panel):
    """Of each column the fullest moment is drawn, so that no peak is lost."""

    view: TrainingView
    title = "tensors"

    def on_click(self, event: events.Click) -> None:
        super().on_click(event)
        self.post_clicked_time(event, self.view.axis, AXIS)

    def heading_right(self, width: int) -> Line:
        """Return the bytes of each kind at the cursor."""
        if self.view.index < 0:
            return []
        return legend(self.view.allocated_bytes[self.view.index].tolist(), self.draw_style, width - len(self.title) - 8)

    def footing(self) -> Line:
        return [(axis_labels(self.view.axis)[0], self.draw_style["dim"])]

    def footing_middle(self, width: int) -> Line:
        view, draw_style = self.view, self.draw_style
        if view.index < 0:
            return [(axis_labels(view.axis)[1], draw_style["dim"])]
        op = text.clean(view.op.rpartition("/")[2])
        op_text = f" at {text.fit(op, 40).rstrip()}" if op else ""
        usage = text.size(int(view.allocated_bytes[view.index].sum()))
        return [("held here ", draw_style["dim"]), (usage, draw_style["bright"]), (op_text, draw_style["dim"])]

    def footing_right(self, width: int) -> Line:
        return [(axis_labels(self.view.axis)[2], self.draw_style["dim"])]

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view, draw_style = self.view, self.draw_style
        columns, rows = width - AXIS, height - 1
        if columns < 8 or rows < 2:
            return self.message("", width, height)
        if not len(view.start_ns):
            return self.message(view.note or _unseen(view), width, height)
        shown = fullest_by_column(view, columns)
        seen = shown >= 0
        usage = np.where(seen[:, None], view.allocated_bytes[shown], 0)
        total = usage.sum(axis=1)
        peak_bytes = int(total.max())
        picture = Stacked.of(usage, rows, raster.nice_ceiling(float(peak_bytes), headroom=1.02), draw_style)
        cursor = view.axis.column(view.axis.cursor_ns, columns) if view.axis.shows_cursor else None
        return picture.lines(cursor, int(np.argmax(total)), peak_bytes, draw_style)


def fullest_by_column(view: TrainingView, columns: int) -> NDArray[np.int64]:
    """Return i8[columns]: the stretch of each column with the most bytes; -1 where none was seen."""
    width, first = view.axis.bins(columns)
    start = np.floor((view.start_ns - view.axis.origin_ns) / width).astype(np.int64) - first
    end = np.ceil((view.end_ns - view.axis.origin_ns) / width).astype(np.int64) - first
    start, end = np.clip(start, 0, columns), np.clip(np.maximum(end, start + 1), 0, columns)
    order = np.argsort(view.allocated_bytes.sum(axis=1), kind="stable")
    order = order[end[order] > start[order]]
    many = end[order] - start[order]
    columns_of = np.repeat(start[order] - np.cumsum(many) + many, many) + np.arange(many.sum())
    fullest = np.full(columns, -1, np.int64)
    fullest[columns_of] = np.repeat(order, many)  # of several the last one stays: the fullest
    return fullest


def _unseen(view: TrainingView) -> str:
    if view.reason:
        return f"tensors are seen in recorded steps only: {view.reason}"
    return "nothing was seen in this time"
