"""Columns of the heat map: decoded once, kept by layout and sample, made within a time budget."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.pageset import PageSet
from memtui.screens.heat_rows import HeatRange, HeatRows, lay_out
from memtui.views import HeatView, TimeAxis
from memtui.widgets import text

KEEP_COLUMNS = 4096
KEEP_SETS = 1024


class HeatColumns:
    """Makes heat views and keeps what they are made of, least recently used out first."""

    def __init__(self) -> None:
        self._columns: OrderedDict[int, NDArray[np.float32]] = OrderedDict()
        self._sets: OrderedDict[tuple[int, int], PageSet | None] = OrderedDict()
        self._rows: HeatRows | None = None
        self._rows_for = -1
        self._ranges: tuple[HeatRange, ...] = ()
        self._bins: dict[int, NDArray[np.float32]] = {}  # finished columns of cells by their number on the grid
        self._grid: tuple[float, int] = (0.0, 0)

    def view(
        self, reader: Any, axis: TimeAxis, ranges: Sequence[HeatRange], columns: int, cells: int, deadline: float
    ) -> tuple[HeatView, bool]:
        """The picture, and whether it is complete; what the deadline cuts off is nan until the next call."""
        rows = self._layout(tuple(ranges), cells)
        width, first = axis.bins(columns)
        if self._grid != (width, axis.origin_ns):
            self._grid = width, axis.origin_ns
            self._bins.clear()
        blank = np.full(rows.cells * 2, np.nan, np.float32)
        ends, starts = reader.samples.end_ns, reader.samples.start_ns
        edges = axis.origin_ns + (first + np.arange(columns + 1)) * width
        place = np.searchsorted(ends, edges, side="right").tolist()
        picture: list[NDArray[np.float32]] = [blank] * columns
        complete = True
        # The right edge first: that is where the eye is when time runs out.
        for column in range(columns - 1, -1, -1):
            kept = self._bins.get(first + column)
            if kept is not None:
                picture[column] = kept
            else:
                low, high = place[column], place[column + 1]
                wanted = _picked(low, high) or _held(low, starts, ends, edges[column : column + 2])
                found = [self._column(reader, rows, int(reader.samples.sample[n]), deadline) for n in wanted]
                done = [one for one in found if one is not None]
                made: NDArray[np.float32] = blank if not done else np.mean(done, axis=0)
                if len(done) < len(found):
                    complete = False
                elif high < len(ends):  # a later window is known, so this bin will not change
                    self._bins[first + column] = made
                picture[column] = made
        if len(self._bins) > 4 * columns:
            self._bins.clear()
        hottest = max(ranges, key=lambda r: r.weight, default=None)
        caption = f"hottest {hottest.label} {text.size(hottest.weight)}" if hottest and hottest.weight else ""
        share = np.array(picture).T if picture else np.empty((0, 0), np.float32)
        return HeatView(axis, share, rows.bands, caption), complete

    def _layout(self, ranges: tuple[HeatRange, ...], cells: int) -> HeatRows:
        if self._rows is None or ranges != self._ranges or self._rows_for != cells:
            rows = lay_out(ranges, cells)
            if self._rows is None or rows.key != self._rows.key:
                self._columns.clear()
                self._bins.clear()
                self._rows = rows
            self._ranges, self._rows_for = ranges, cells
        return self._rows

    def _column(self, reader: Any, rows: HeatRows, sample: int, deadline: float) -> NDArray[np.float32] | None:
        kept = self._columns.get(sample)
        if kept is not None:
            self._columns.move_to_end(sample)
            return kept
        if time.perf_counter() > deadline:
            return None
        pages = {process: self._page_set(reader, sample, process) for process in rows.processes}
        made = rows.column(pages)
        self._columns[sample] = made
        if len(self._columns) > KEEP_COLUMNS:
            self._columns.popitem(last=False)
        return made

    def _page_set(self, reader: Any, sample: int, process: int) -> PageSet | None:
        key = sample, process
        if key in self._sets:
            self._sets.move_to_end(key)
            return self._sets[key]
        pages = reader.page_set(sample, process)
        self._sets[key] = pages
        if len(self._sets) > KEEP_SETS:
            self._sets.popitem(last=False)
        return pages


def _picked(low: int, high: int) -> tuple[int, ...]:
    """Windows looked at for one column: two of the many it may cover; more would cost and hardly show."""
    if high - low < 2:
        return (low,) if high > low else ()
    quarter = (high - low) // 4
    return low + quarter, high - 1 - quarter


def _held(low: int, starts: np.ndarray, ends: np.ndarray, edges: np.ndarray) -> tuple[int, ...]:
    """A column narrower than a window shows the one it lies in; a quarter of slack bridges the target's pause."""
    if low < len(ends) and starts[low] - (ends[low] - starts[low]) / 4 <= edges.mean():
        return (low,)
    return ()
