"""What a process touched by address and time: the heat map of a figure, and of a program that asks for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.distinct_labels import Labelled, distinct_labels
from memtui.analysis.heat_map import HeatMap, HeatRange, Layout, bin_column, blocks_of
from memtui.analysis.range_uses import uses_of
from memtui.core.samples import Process
from memtui.core.units import short_size
from memtui.reports.source import ReportSource
from memtui.session.vma_row import VmaRow

SAMPLES_PER_BATCH = 64
LEAST_SHARE = 0.01  # of the touched bytes of the busiest process: a process with less is left out
MOST_RANGES = 14  # of the address axis; each takes a row at least
SLACK = 1.0  # of a window: a pause up to this before a window is drawn as part of it


@dataclass(frozen=True, slots=True, eq=False)
class ProcessHeat:
    """The touched share of each bin of addresses in each column of time.

    Attributes:
        layout: the addresses from the top.
        share: f4[bins, columns], 0 to 1, of the rows in use; nan in gaps, and where no page set was stored.
        edges_ns: f8[columns + 1], rising, of CLOCK_MONOTONIC.
        left_out: how many ranges have too little to be shown.
    """

    layout: Layout
    share: NDArray[np.float32]
    edges_ns: NDArray[np.float64]
    left_out: int


def process_heat(
    reader: ReportSource, process: Process, *, rows: int, subrows: int, columns: int
) -> ProcessHeat | None:
    """Return the heat map of a process over the whole session; None when no page of it was ever stored.

    Args:
        reader: the session.
        process: the process.
        rows: rows of addresses, of which each range takes at least one.
        subrows: bins in a row.
        columns: columns of time.

    Raises:
        SessionError: the session is damaged.
    """
    touched, blocks = _touched(reader, process)
    if not touched:
        return None
    drawn = _hottest(touched, min(MOST_RANGES, rows))
    uses = uses_of(reader.drawn_rows(process.key))
    named = [Labelled(_label(v, uses), v.perms, v.start) for v, _ in drawn]
    labels = distinct_labels(named, addresses=reader.shows_distances)
    ranges = [HeatRange(v.id, v.start, v.end, text, most) for (v, most), text in zip(drawn, labels, strict=True)]
    layout = Layout.build(ranges, rows, subrows, touched_blocks=blocks)
    return _filled(reader, process, layout, columns, len(touched) - len(drawn))


def busiest(reader: ReportSource) -> list[Process]:
    """Return the processes whose touched pages are stored and that touched much, the busiest first."""
    if not reader.hello.pages.ok or not len(reader.samples):
        return []
    total: dict[int, int] = defaultdict(int)
    for row in reader.process_samples(int(reader.samples.sample[0]), int(reader.samples.sample[-1])):
        total[row["process"]] += row["stored_bytes"] or 0
    most = max(total.values(), default=0)
    processes = [p for p in reader.processes() if total[p.key] and total[p.key] >= LEAST_SHARE * most]
    return sorted(processes, key=lambda p: -total[p.key])


def _label(row: VmaRow, uses: Mapping[int, str]) -> str:
    return row.file_name or row.name or uses.get(row.id) or f"anon {short_size(row.end - row.start)}"


def _touched(reader: ReportSource, process: Process) -> tuple[list[tuple[VmaRow, int]], NDArray[np.uint64]]:
    """Return every range that was ever touched, with its maximum in one window, and the touched blocks."""
    most: dict[int, int] = {}
    samples = reader.samples.sample
    blocks: NDArray[np.uint64] = np.empty(0, np.uint64)
    for first in range(0, len(samples), SAMPLES_PER_BATCH):
        part = samples[first : first + SAMPLES_PER_BATCH]
        _, ids, touched = reader.vma_wss(int(part[0]), int(part[-1]))
        for row, value in zip(ids.tolist(), touched.tolist(), strict=True):
            most[row] = max(most.get(row, 0), value)
        for sample in part.tolist():
            pages = reader.page_set(sample, process.key)
            if pages is not None:
                blocks = blocks_of(pages, blocks)
    rows = [(v, most[v.id]) for v in reader.drawn_rows(process.key) if not v.filtered and most.get(v.id, 0) > 0]
    return rows if len(blocks) else [], blocks


def _hottest(rows: list[tuple[VmaRow, int]], most_ranges: int) -> list[tuple[VmaRow, int]]:
    """Return the hottest ranges: a row for every small library would leave none for the memory that matters."""
    order = sorted(rows, key=lambda row: (-row[1], row[0].start))[:most_ranges]
    return [row for n, row in enumerate(order) if n < 3 or row[1] >= LEAST_SHARE * order[0][1]]


def _filled(reader: ReportSource, process: Process, layout: Layout, columns: int, left_out: int) -> ProcessHeat:
    samples = reader.samples
    starts, ends = samples.start_ns.astype(np.float64), samples.end_ns.astype(np.float64)
    # Between two windows the target is paused: that time belongs to the next window.
    pause = starts[1:] - ends[:-1]
    starts[1:] = np.where(pause <= SLACK * (ends - starts)[1:], ends[:-1], starts[1:])
    picture = HeatMap(layout, np.linspace(starts[0], ends[-1], columns + 1))
    for index, sample in enumerate(samples.sample.tolist()):
        pages = reader.page_set(sample, process.key)
        if pages is not None:
            picture.add(float(starts[index]), float(ends[index]), bin_column(pages, layout))
    rows = max((band.row + band.rows for band in layout.bands), default=0)
    return ProcessHeat(layout, picture.share()[: rows * layout.subrows], picture.edges_ns, left_out)
