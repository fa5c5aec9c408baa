"""The picture of the heat map: page sets are decoded once, columns cached for a layout, within a time budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.access_counts import SUMMED_SAMPLES, TouchSum, bin_sum
from memtui.analysis.heat_map import HeatRange, Layout, bin_column
from memtui.analysis.tensor_pages import NO_KIND, bin_kinds
from memtui.core.fast_numpy import union1d
from memtui.core.lru_cache import LruCache
from memtui.core.page_set import PageSet, parts_of
from memtui.core.page_sizes import BLOCK_SHIFT, PAGE_BYTES
from memtui.core.units import size
from memtui.session.session import Session
from memtui.tui.presenters.address_cursor import SUBROWS, AddressCursor, Interval, Stack
from memtui.tui.presenters.heat_columns import (
    Column,
    covering_window,
    joined,
    mean_column,
    picked_windows,
    sampled_windows,
    stored_samples,
    window_stride,
)
from memtui.tui.presenters.heat_rows import (
    GROUP_SHIFT,
    ProcessRange,
    groups_of,
    heat_band,
    ranges_to_draw,
    rounded_weight,
    row_counts,
)
from memtui.tui.presenters.tensor_locations import Placed
from memtui.tui.presenters.time_budget import TimeBudget
from memtui.widgets.views.memory import HeatBand, HeatCursor, HeatView, TimeAxis

KEEP_COLUMNS, KEEP_SETS = 4096, 1024
KEEP_PAST = 256  # of a live picture, windows that have left it: more of them are dropped
KEEP_SETS_BYTES, KEEP_SUMS_BYTES, KEEP_GROUPS = 256 << 20, 64 << 20, 256  # of them all: a set may be 64 MiB
LAYOUT_SHARE = 0.02  # of a CPU for new layouts of a live picture, which renew all columns

# The inputs of a layout: cells, the zoom, and (process, start, end, label, weight) of each range.
_LayoutKey = tuple[int, Interval | None, tuple[tuple[int, int, int, str, int], ...]]


class HeatColumns:
    """Creates heat views and caches their parts."""

    def __init__(self) -> None:
        self._sets: LruCache[tuple[int, int], PageSet | None] = LruCache(KEEP_SETS, KEEP_SETS_BYTES)
        self._with_pages: LruCache[int, frozenset[int]] = LruCache(KEEP_SETS)  # processes that have any, by sample
        # By their samples.
        self._sums: LruCache[tuple[int, int], dict[int, TouchSum]] = LruCache(KEEP_COLUMNS, KEEP_SUMS_BYTES)
        self._columns: LruCache[int, Column] = LruCache(KEEP_COLUMNS)  # by sample
        self._keep_windows = 0  # of more in ``_with_pages`` those that left the picture are dropped
        self._bins: dict[int, Column] = {}  # finished columns of the picture by their number on the grid
        self._grid: tuple[float, int] = (0.0, 0)
        self._stride = 0
        self._groups: dict[int, NDArray[np.uint64]] = {}  # process -> groups of blocks seen touched
        self.cursor: AddressCursor | None = None  # the cursor, once it is used
        self.zooms: list[Interval] = []  # the last one is in sight
        self._key: _LayoutKey = (0, None, ())
        self._laid_out_s = self._layout_cost_s = 0.0  # when, and what it and its columns took of a CPU
        self._waits = False  # for a new layout
        self._settled = True  # all columns of the layout were made once
        self._stack = Stack()
        self._blanks: dict[int, Column] = {}  # of each process in it: what a window without its pages shows
        self._ranges: list[ProcessRange] = []
        self._bands: tuple[HeatBand, ...] = ()
        self._grown = self._decoded = False
        self._hottest: AddressCursor | None = None
        self._wanted: int | None = None  # a range that the cursor is to be put on
        self.keep: int | None = None  # a range that is drawn however small it is
        self.tensors: dict[int, Placed] | None = None  # by process: their kinds colour the rows
        self._kinds: tuple[Stack, tuple[tuple[int, int], ...], NDArray[np.uint8]] | None = None

    def forget(self) -> None:
        """Drop the columns of the picture: there are more samples between those in it."""
        self._bins.clear()

    def view(
        self,
        reader: Session,
        axis: TimeAxis,
        ranges: Sequence[ProcessRange],
        columns: int,
        cells: int,
        budget: TimeBudget,
        touched: Mapping[int, int],
        mapped: Callable[[int, int, int], int],
        *,
        live: bool = False,
    ) -> tuple[HeatView, bool]:
        """Return the picture, and whether it is complete; columns beyond the budget are nan until the next call.

        ``touched`` are bytes by range in the window at the cursor, of which the hottest range is named.
        ``mapped(process, start, end)`` counts the ranges in a part of memory. ``live``: the next view comes soon, so a
        layout may wait: where processes come and go, each window would require a new layout.
        """
        start_s = time.thread_time()
        self._ranges = list(ranges)
        self._forget_processes()
        ranges = self._in_sight()
        drawn = ranges_to_draw(ranges, cells, self.keep)
        as_drawn = {r.key: r for r in (*ranges, *drawn)}.values()  # under the name of its row
        hottest = max((r for r in as_drawn if touched.get(r.key, 0) > 0), key=lambda r: touched[r.key], default=None)
        self._lay_out(drawn, cells, mapped, live=live)
        picture, complete = self._picture(reader, axis, columns, cells, budget)
        if live and len(self._with_pages) > self._keep_windows:
            self._forget_windows(reader, axis)
        parts = [f"hottest {hottest.label} {size(touched[hottest.key])}"] if hottest else []
        if hidden := len(ranges) - sum(r.process in self._blanks for r in drawn):
            parts.append(f"{hidden} small ones not drawn")
        share = np.array(picture).T if picture else np.empty((0, 0), np.float32)
        self._decoded = complete
        if not self._settled:
            self._layout_cost_s += time.thread_time() - start_s
            self._settled = complete
        zoom = size(self._stack.bytes_shown) if self.zooms else ""
        cursor = self._cursor(reader, axis, hottest)
        view = HeatView(axis, share, self._bands, " · ".join(parts), cursor=cursor, zoom=zoom)
        if hottest:
            view = replace(view, hottest=HeatBand(0, 0, hottest.label, who=hottest.who))
        if self.tensors is not None:
            view = replace(view, by_kind=True, kinds=self._row_kinds(cells))
        return view, complete and (self._waits or not self._grown)

    def _forget_processes(self) -> None:
        """Forget the accessed groups of processes that are not drawn any more."""
        if len(self._groups) > KEEP_GROUPS:
            drawn = {r.process for r in self._ranges}
            self._groups = {process: groups for process, groups in self._groups.items() if process in drawn}

    def _forget_windows(self, reader: Session, axis: TimeAxis) -> None:
        """Drop what is decoded of windows that have left a live picture, whose place is taken by new ones for hours."""
        samples = reader.samples
        first = max(0, int(np.searchsorted(samples.end_ns, axis.start_ns)) - 1)
        oldest = int(samples.sample[first])
        self._with_pages.drop(lambda sample: sample < oldest)
        self._columns.drop(lambda sample: sample < oldest)
        self._sets.drop(lambda key: key[0] < oldest)
        self._keep_windows = 2 * len(self._with_pages) + KEEP_PAST

    def _in_sight(self) -> Sequence[ProcessRange]:
        """Return the ranges in the zoom; all of them without one."""
        if not self.zooms:
            return self._ranges
        zoom = self.zooms[-1]
        return [r for r in self._ranges if r.process == zoom.process and r.start < zoom.end and r.end > zoom.start]

    def _row_kinds(self, cells: int) -> NDArray[np.uint8] | None:
        """Return the kinds of the pixel rows, cached for a layout and map; None where no tensor is known."""
        if not self.tensors:
            return None
        of = tuple((process, placed.number) for process, placed in sorted(self.tensors.items()))
        if self._kinds is None or self._kinds[0] is not self._stack or self._kinds[1] != of:
            kinds = np.full(cells * SUBROWS, NO_KIND, np.uint8)
            for process, layout, top in self._stack.layouts:
                if process in self.tensors:
                    part = bin_kinds(layout, self.tensors[process].tensors)
                    kinds[top * SUBROWS : top * SUBROWS + len(part)] = part
            self._kinds = self._stack, of, kinds
        return self._kinds[2]

    # The cursor

    def move_cursor(self, by: int) -> None:
        """Move the cursor by rows; the first move puts it on the hottest range."""
        here = self._stack.row_of(self.cursor) if self.cursor is not None else None
        if here is None:
            self.cursor = self._start
        else:
            self.cursor = self._stack.cursor_of_row(self._stack.row_after(here, by)) or self.cursor

    def unpoint(self) -> None:
        """Remove the cursor: the caption names the hottest range again."""
        self.cursor = None

    def point(self, row: int) -> None:
        """Put the cursor on a row of cells, or on the next one that shows memory."""
        self.cursor = self._stack.cursor_of_row(self._stack.row_after(row, 0)) or self.cursor

    def point_to_range(self, key: int, process: int, start: int, end: int) -> None:
        """Put the cursor on a range, if it is drawn; a zoom into other memory ends."""
        seen = self.zooms[-1] if self.zooms else None
        if seen is not None and not (seen.process == process and seen.start < end and start < seen.end):
            self.zooms.clear()
        self._wanted = key

    def zoom_in(self) -> bool:
        """Show less memory around the cursor; False where nothing smaller can be shown."""
        if self.cursor is None:
            self.cursor = self._start
        row = self._stack.row_of(self.cursor) if self.cursor is not None else None
        closer = self._stack.around(row) if row is not None else None
        if closer is None:
            return False
        self.zooms.append(closer)
        return True

    def pan(self, by: float) -> None:
        """Move the part of memory in sight by a share of it, and the cursor with it; without zoom the cursor alone."""
        if not self.zooms:
            self.move_cursor(int(by * self._stack.rows) or (1 if by > 0 else -1))
            return
        seen = self.zooms[-1]
        size_bytes = seen.end - seen.start
        by_bytes = int(by * size_bytes) // PAGE_BYTES * PAGE_BYTES
        own = [r for r in self._ranges if r.process == seen.process]
        low, high = min((r.start for r in own), default=0), max((r.end for r in own), default=1 << 47)
        start = min(max(low, seen.start + by_bytes), max(low, high - size_bytes))
        wanted = Interval(seen.process, start, start + size_bytes)
        if not any(r.start < wanted.end and r.end > wanted.start for r in own):  # a hole: on to what lies behind it
            if by > 0:
                start = min(r.start for r in own if r.start >= wanted.start)
            else:
                start = max(r.end for r in own if r.end <= wanted.end) - size_bytes
            wanted = Interval(seen.process, start, start + size_bytes)
        self.zooms[-1] = wanted
        if self.cursor is not None:
            self.cursor = AddressCursor(seen.process, max(0, self.cursor.address + wanted.start - seen.start))

    @property
    def _start(self) -> AddressCursor | None:
        """Return where a cursor starts: on the hottest range, or at the top."""
        return self._hottest or self._stack.cursor_of_row(self._stack.row_after(0, 0))

    def _cursor(self, reader: Session, axis: TimeAxis, hottest: ProcessRange | None) -> HeatCursor | None:
        self._hottest = AddressCursor(hottest.process, hottest.start) if hottest else None
        if self._wanted is not None:
            self.cursor, self._wanted = self._stack.cursor_of_range(self._wanted) or self.cursor, None
        row = self._stack.row_of(self.cursor) if self.cursor is not None else None
        if row is None or self.cursor is None:
            return None
        samples = reader.samples
        index = int(np.searchsorted(samples.end_ns, axis.cursor_ns, side="right")) - 1
        pieces = self._stack.pieces(row)
        if index < 0 or not pieces:
            return None
        start, end = min(pieces)
        process = self.cursor.process
        pages = self.page_set(reader, int(samples.sample[index]), process)
        inside = (r for r in self._ranges if r.process == process and r.start < end and r.end > start)
        placed = (self.tensors or {}).get(process)  # where rows show kinds
        name = (placed.largest_in(start, end) if placed else "") or min(inside, key=lambda r: r.end - r.start).label
        return HeatCursor(
            row,
            start,
            name,
            (int(samples.end_ns[index]) - axis.origin_ns) / 1e9,
            self._stack.touched(row, pages) if pages is not None else None,
            sum(high - low for low, high in pieces),
        )

    # The address axis

    def _lay_out(
        self, ranges: Sequence[ProcessRange], cells: int, mapped: Callable[[int, int, int], int], *, live: bool
    ) -> None:
        """Lay out the ranges again when the ranges, their rounded weights or the accessed groups changed."""
        zoom = self.zooms[-1] if self.zooms else None
        key = (cells, zoom, tuple((r.process, r.start, r.end, r.label, rounded_weight(r.weight_bytes)) for r in ranges))
        # New groups wait until all columns in sight are decoded: one new layout for all of them, not one for each.
        if key == self._key and not (self._grown and self._decoded):
            return
        now_s = time.monotonic()
        due_s = self._laid_out_s + self._layout_cost_s / LAYOUT_SHARE
        self._waits = live and key[:2] == self._key[:2] and now_s < due_s
        if self._waits:
            return
        self._laid_out_s, self._layout_cost_s, self._settled = now_s, 0.0, False
        self._key, self._grown = key, False
        self._columns.clear()
        self._bins.clear()
        bands: list[HeatBand] = []
        self._stack, self._blanks, top_row = Stack(), {}, 0
        processes = sorted({r.process for r in ranges})
        heights = row_counts(
            [sum(rounded_weight(r.weight_bytes) for r in ranges if r.process == p) for p in processes], cells
        )
        for process, rows in zip(processes, heights, strict=True):
            if not rows:
                continue
            own = [
                HeatRange(r.key, r.start, r.end, r.label, rounded_weight(r.weight_bytes))
                for r in ranges
                if r.process == process
            ]
            layout = Layout.build(
                own,
                rows,
                SUBROWS,
                touched_blocks=self._touched(process),
                interval=(zoom.start, zoom.end) if zoom else None,
            )
            self._stack.layouts.append((process, layout, top_row))
            self._blanks[process] = bin_column(None, layout)
            for before, band in zip((None, *layout.bands), layout.bands, strict=False):
                who = next(r.who for r in ranges if r.process == process)
                bands.append(heat_band(band, top_row, mapped(process, band.start, band.end), before, who))
            top_row += rows
        self._bands = tuple(bands)

    def _touched(self, process: int) -> NDArray[np.uint64] | None:
        groups = self._groups.get(process)
        return None if groups is None else parts_of(groups, GROUP_SHIFT)

    def _add_groups(self, process: int, groups: NDArray[np.uint64]) -> None:
        """Add accessed groups of a process; a new group requires a new layout."""
        cached = self._groups.get(process)
        if cached is None or not len(cached):
            self._groups[process], self._grown = groups, bool(len(groups))
            return
        index = np.minimum(np.searchsorted(cached, groups), len(cached) - 1)
        if (cached[index] != groups).any():
            self._groups[process], self._grown = union1d(cached, groups), True

    # Columns

    def _picture(
        self, reader: Session, axis: TimeAxis, columns: int, cells: int, budget: TimeBudget
    ) -> tuple[list[Column], bool]:
        """Return all columns of the picture, nan where there was no time left, and whether there was time for all."""
        width, first = axis.bins(columns)
        if self._grid != (width, axis.origin_ns):
            self._grid, self._stride = (width, axis.origin_ns), 0
            self._bins.clear()
        ends = reader.samples.end_ns
        edges_ns = axis.origin_ns + (first + np.arange(columns + 1)) * width
        bounds = np.searchsorted(ends, edges_ns, side="right").tolist()
        self._stride = window_stride(ends[bounds[0] : bounds[-1]], width, self._stride)
        blank = np.full(cells * SUBROWS, np.nan, np.float32)
        picture: list[Column] = [blank] * columns
        complete = True
        # The right edge first: it matters most when time runs out.
        for column in range(columns - 1, -1, -1):
            cached = self._bins.get(first + column)
            if cached is not None:
                picture[column] = cached
                continue
            low, high = bounds[column], bounds[column + 1]
            parts = self._parts(reader, low, high, edges_ns[column : column + 2], budget)
            done = [part for part in parts if part is not None]
            picture[column] = mean_column(done) if done else blank
            if reader.hello.options.samples_pages:  # one window has more than all of a bin, or nothing of it
                picture[column] = np.minimum(picture[column], np.float32(1))
            if len(done) < len(parts):
                complete = False
            elif high < len(ends):  # a later window is known, so this bin will not change
                self._bins[first + column] = picture[column]
        if len(self._bins) > 4 * columns:
            self._bins.clear()
        return picture, complete

    def _parts(
        self, reader: Session, low: int, high: int, edges_ns: NDArray[np.floating], budget: TimeBudget
    ) -> list[Column | None]:
        """Return the parts whose mean is a column of the picture; None: a part for which there is no time.

        ``low`` to before ``high``: the windows that end in the column; ``edges_ns``: its start and end.
        """
        if parts := self._summed(reader, low, high, budget):
            return parts
        number = reader.samples.sample
        windows = picked_windows(low, high, self._stride) or covering_window(reader.samples, low, edges_ns)
        if reader.hello.options.samples_pages:
            windows = sampled_windows(windows)
        samples = [int(number[index]) for index in windows]
        if samples and reader.downsampled_to_bytes is not None:
            samples = stored_samples(reader, samples, int(number[max(low, high - 1)]))
        return [self._column(reader, sample, budget) for sample in samples]

    def _column(self, reader: Session, sample: int, budget: TimeBudget) -> Column | None:
        if sample in self._columns:
            return self._columns[sample]
        if budget.spent:
            return None
        # Of thousands of processes that ended, few are in a window: the others cost no query and no column.
        there = self._processes(reader, sample)
        parts = [
            bin_column(self.page_set(reader, sample, process), layout) * self._scale(reader, sample, process)
            if process in there
            else self._blanks[process]
            for process, layout, _ in self._stack.layouts
        ]
        column = joined(parts, self._key[0] * SUBROWS)
        self._columns.put(sample, column)
        return column

    def _scale(self, reader: Session, sample: int, process: int) -> np.float32:
        """Return the factor from a sampled part of the memory to all of it: 1 where all memory is read."""
        if not reader.hello.options.samples_pages:
            return np.float32(1)
        seen = self.page_set(reader, sample, process)
        (stored,) = (
            row["stored_bytes"] for row in reader.processes.samples(sample, sample) if row["process"] == process
        )
        return np.float32(stored / seen.size_bytes if stored and seen is not None and seen.size_bytes else 1)

    def page_set(self, reader: Session, sample: int, process: int) -> PageSet | None:
        """Return the touched pages of a window, decoded once."""
        if process not in self._processes(reader, sample):
            return None
        key = sample, process
        if key not in self._sets:
            pages = reader.pages.page_set(sample, process)
            if pages is not None:
                self._add_groups(process, groups_of(pages))
            self._sets.put(key, pages, pages.memory_bytes if pages is not None else 0)
        return self._sets[key]

    def _processes(self, reader: Session, sample: int) -> frozenset[int]:
        """Return the processes of which pages of a window are stored."""
        if sample not in self._with_pages:
            self._with_pages.put(sample, reader.pages.processes(sample))
        return self._with_pages[sample]

    def _summed(self, reader: Session, low: int, high: int, budget: TimeBudget) -> list[Column | None]:
        """Return the column of samples, given by index, from stored sums; empty without sums.

        None: a part for which there is no time.
        """
        number = reader.samples.sample  # of a session that is glanced at, only some are there yet
        key = int(number[low - 1]) + 1 if low else 0, int(number[high - 1]) if high else 0
        if high <= low or key[1] - key[0] + 1 < SUMMED_SAMPLES[0]:
            return []
        if key not in self._sums:
            if budget.spent:
                return [None]
            sums = reader.pages.sums(*key)
            for process, touched in sums.items():
                self._add_groups(process, touched.blocks(BLOCK_SHIFT + GROUP_SHIFT))
            self._sums.put(key, sums, sum(touched.memory_bytes for touched in sums.values()))
        sums = self._sums[key]
        if not sums:
            return []
        last = min(key[1], reader.samples.newest)
        parts = [
            bin_sum(sums.get(process), layout) * self._scale(reader, last, process)
            for process, layout, _ in self._stack.layouts
        ]
        return [joined(parts, self._key[0] * SUBROWS)]
