"""What tensors hold over time: an area for each kind, on top of each other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from textual import events

from memtui.widgets import raster, text
from memtui.widgets.panel import Panel, axis_words
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
        self.ask_for_time(event, self.view.axis, AXIS)

    def heading_right(self, width: int) -> Line:
        """Return what is held at the cursor."""
        if self.view.at < 0:
            return []
        return legend(self.view.held_bytes[self.view.at].tolist(), self.look, width - len(self.title) - 8)

    def footing(self) -> Line:
        return [(axis_words(self.view.axis)[0], self.look["dim"])]

    def footing_middle(self, width: int) -> Line:
        view, look = self.view, self.look
        if view.at < 0:
            return [(axis_words(view.axis)[1], look["dim"])]
        op = text.clean(view.op.rpartition("/")[2])
        words = f" at {text.fit(op, 40).rstrip()}" if op else ""
        held = text.size(int(view.held_bytes[view.at].sum()))
        return [("held here ", look["dim"]), (held, look["bright"]), (words, look["dim"])]

    def footing_right(self, width: int) -> Line:
        return [(axis_words(self.view.axis)[2], self.look["dim"])]

    def paint_inside(self, width: int, height: int) -> list[Line]:
        view, look = self.view, self.look
        columns, rows = width - AXIS, height - 1
        if columns < 8 or rows < 2:
            return self.message("", width, height)
        if not len(view.start_ns):
            return self.message(view.note or _unseen(view), width, height)
        shown = fullest_by_column(view, columns)
        seen = shown >= 0
        held = np.where(seen[:, None], view.held_bytes[shown], 0)
        total = held.sum(axis=1)
        peak_bytes = int(total.max())
        picture = Stacked.of(held, rows, raster.nice_ceiling(float(peak_bytes), headroom=1.02), look)
        cursor = view.axis.column(view.axis.cursor_ns, columns) if view.axis.marks_cursor else None
        return picture.lines(cursor, int(np.argmax(total)), peak_bytes, look)


def fullest_by_column(view: TrainingView, columns: int) -> NDArray[np.int64]:
    """i8[columns]: of each the stretch that held most; -1 where none was seen."""
    width, first = view.axis.bins(columns)
    begin = np.floor((view.start_ns - view.axis.origin_ns) / width).astype(np.int64) - first
    end = np.ceil((view.end_ns - view.axis.origin_ns) / width).astype(np.int64) - first
    begin, end = np.clip(begin, 0, columns), np.clip(np.maximum(end, begin + 1), 0, columns)
    order = np.argsort(view.held_bytes.sum(axis=1), kind="stable")
    order = order[end[order] > begin[order]]
    many = end[order] - begin[order]
    place = np.repeat(begin[order] - np.cumsum(many) + many, many) + np.arange(many.sum())
    found = np.full(columns, -1, np.int64)
    found[place] = np.repeat(order, many)  # of several the last one stays, which held most
    return found


def _unseen(view: TrainingView) -> str:
    if view.reason:
        return f"tensors are seen in recorded steps only: {view.reason}"
    return "nothing was seen in this time"
