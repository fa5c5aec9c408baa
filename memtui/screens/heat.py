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

PER_COLUMN = 2  # windows looked at for one column of cells; more would cost and not show
KEEP_COLUMNS = 4096
KEEP_SETS = 1024


class HeatColumns:
    """Makes heat views and keeps what they are made of, least recently used out first."""

    def __init__(self) -> None:
        self._columns: OrderedDict[int, NDArray[np.float32]] = OrderedDict()
        self._sets: OrderedDict[tuple[int, int], PageSet | None] = OrderedDict()
        self._rows: HeatRows | None = None
        self._ranges: tuple[HeatRange, ...] = ()

    def view(
        self, reader: Any, axis: TimeAxis, ranges: Sequence[HeatRange], columns: int, cells: int, deadline: float
    ) -> tuple[HeatView, bool]:
        """The picture, and whether it is complete; what the deadline cuts off is nan until the next call."""
        rows = self._layout(tuple(ranges), cells)
        share = np.full((rows.cells * 2, columns), np.nan, np.float32)
        complete = True
        for column, wanted in self._newest_first(reader, axis, columns):
            found = []
            for place in wanted:
                made = self._column(reader, rows, int(reader.samples.sample[place]), deadline)
                if made is not None:
                    found.append(made)
                else:
                    complete = False
            if found:
                share[:, column] = found[0] if len(found) == 1 else np.mean(found, axis=0)
        hottest = max(ranges, key=lambda r: r.weight, default=None)
        caption = f"hottest {hottest.label} {text.size(hottest.weight)}" if hottest and hottest.weight else ""
        return HeatView(axis, share, rows.bands, caption), complete

    def _layout(self, ranges: tuple[HeatRange, ...], cells: int) -> HeatRows:
        if self._rows is None or ranges != self._ranges or self._rows_for != cells:
            rows = lay_out(ranges, cells)
            if self._rows is None or rows.key != self._rows.key:
                self._columns.clear()
                self._rows = rows
            self._ranges, self._rows_for = ranges, cells
        return self._rows

    _rows_for = -1

    @staticmethod
    def _newest_first(reader: Any, axis: TimeAxis, columns: int) -> list[tuple[int, list[int]]]:
        """(column, numbers of samples to look at), the right edge first: that is where the eye is."""
        ends, starts = reader.samples.end_ns, reader.samples.start_ns
        if not len(ends):
            return []
        width, first = axis.bins(columns)
        edges = axis.origin_ns + (first + np.arange(columns + 1)) * width
        place = np.searchsorted(ends, edges, side="right")
        out: list[tuple[int, list[int]]] = []
        for column in range(columns - 1, -1, -1):
            low, high = int(place[column]), int(place[column + 1])
            if high > low:
                pick = np.unique(np.linspace(low, high - 1, min(PER_COLUMN, high - low)).round().astype(int))
                out.append((column, pick.tolist()))
            elif low < len(ends):
                # Narrower than a window: the window it lies in; half a window of slack bridges the target's pause.
                slack = (ends[low] - starts[low]) / 2
                if starts[low] - slack <= (edges[column] + edges[column + 1]) / 2:
                    out.append((column, [low]))
        return out

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
