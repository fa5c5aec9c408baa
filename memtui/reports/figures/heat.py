"""A heat map of the accesses of one process: addresses down and time across."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.distinct_labels import Labelled, distinct_labels
from memtui.analysis.heat_map import HeatMap, HeatRange, Layout, bin_column, blocks_of
from memtui.core.samples import Process
from memtui.core.units import size
from memtui.reports.charts.model import HEAT_TICKS
from memtui.reports.figures import png, provenance
from memtui.reports.figures.axes import AXIS_PT, Axes, captioned, footnote, time_scale
from memtui.reports.figures.svg import COLUMN_PT, SMALL_PT, Drawing, fit, text_width
from memtui.reports.source import ReportSource, not_stored_bytes
from memtui.session.vma_row import VmaRow

ROWS, SUBROWS = 26, 12  # a row is as high as its label, a subrow is one pixel
COLUMNS = 1024  # 400 to an inch of the picture's width
SAMPLES_PER_BATCH = 64
LEAST_SHARE = 0.01  # of the touched bytes of the busiest process: a process with less gets no figure
MOST_PROCESSES = 8
MOST_RANGES = 14  # of the address axis; each takes a row at least
SLACK = 1.0  # of a window: a pause up to this before a window is drawn as part of it
Label = Callable[[VmaRow], str]
_LEFT, _RIGHT, _TOP = 62.0, 8.0, 14.0
_ROW_PT = 6.6
# From "mapped, not touched" to "all of it touched": darker in print, too.
_ANCHORS = ((240, 236, 228), (252, 214, 150), (246, 162, 78), (222, 88, 38), (158, 28, 48), (58, 10, 40))
_PALETTE = [(255, 255, 255), *png.ramp(_ANCHORS, 255)]


def busiest(reader: ReportSource) -> list[Process]:
    """Return the processes whose touched pages are stored and worth a figure, the busiest first."""
    if not reader.hello.pages.ok or not len(reader.samples):
        return []
    total: dict[int, int] = defaultdict(int)
    for row in reader.process_samples(int(reader.samples.sample[0]), int(reader.samples.sample[-1])):
        total[row["process"]] += row["stored_bytes"] or 0
    most = max(total.values(), default=0)
    processes = [p for p in reader.processes() if total[p.key] and total[p.key] >= LEAST_SHARE * most]
    return sorted(processes, key=lambda p: -total[p.key])[:MOST_PROCESSES]


def draw(reader: ReportSource, process: Process, label: Label) -> Drawing | None:
    """Return the heat map of one process; None when no page of it was ever stored.

    Args:
        reader: the session.
        process: the process.
        label: returns the label of a range at the address axis.
    """
    samples = reader.samples
    rows, blocks = _touched(reader, process)
    if not rows:
        return None
    drawn = _hottest(rows)
    named = [Labelled(label(v), v.perms, v.start) for v, _ in drawn]
    labels = distinct_labels(named, addresses=reader.shows_distances)
    ranges = [HeatRange(v.id, v.start, v.end, text, most) for (v, most), text in zip(drawn, labels, strict=True)]
    layout = Layout.build(ranges, ROWS, SUBROWS, touched_blocks=blocks)
    start_ns, end_ns = float(samples.start_ns[0]), float(samples.end_ns[-1])
    share = _picture(reader, process, layout)
    height = len(share) // SUBROWS * _ROW_PT
    across = time_scale((end_ns - start_ns) / 1e9)
    notes = ["Colour: share of the pages of a place touched in a window, mean where windows share a column."]
    notes.append(_left_out(reader, process, len(rows) - len(drawn)))
    lines = provenance.lines(reader, COLUMN_PT - 8, *notes)
    name = f"Touched pages of process {process.pid} by address and time"
    drawing = captioned(_TOP + height, name, " ".join(provenance.sentences(reader)), lines)
    axes = Axes(drawing, _LEFT, _TOP, COLUMN_PT - _LEFT - _RIGHT, height, across)
    drawing.image(axes.left, axes.top, axes.width, axes.height, png.encode(_pixels(share), _PALETTE))
    _bands(axes, layout, reader.shows_distances)
    axes.edges()
    axes.label_across(f"time ({across.unit})")
    _color_bar(axes, f"pid {process.pid}")
    footnote(drawing, lines, axes.bottom + AXIS_PT)
    return drawing


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


def _hottest(rows: list[tuple[VmaRow, int]]) -> list[tuple[VmaRow, int]]:
    """Return the hottest ranges: a row for every small library would leave none for the memory that matters."""
    order = sorted(rows, key=lambda row: (-row[1], row[0].start))[:MOST_RANGES]
    return [row for n, row in enumerate(order) if n < 3 or row[1] >= LEAST_SHARE * order[0][1]]


def _picture(reader: ReportSource, process: Process, layout: Layout) -> NDArray[np.float32]:
    """Return the touched shares, f4[bins, COLUMNS], of the rows in use."""
    samples = reader.samples
    starts, ends = samples.start_ns.astype(np.float64), samples.end_ns.astype(np.float64)
    # Between two windows the target is paused: that time belongs to the next window.
    pause = starts[1:] - ends[:-1]
    starts[1:] = np.where(pause <= SLACK * (ends - starts)[1:], ends[:-1], starts[1:])
    picture = HeatMap(layout, np.linspace(starts[0], ends[-1], COLUMNS + 1))
    for index, sample in enumerate(samples.sample.tolist()):
        pages = reader.page_set(sample, process.key)
        if pages is not None:
            picture.add(float(starts[index]), float(ends[index]), bin_column(pages, layout))
    rows = max((band.row + band.rows for band in layout.bands), default=0)
    return picture.share()[: rows * SUBROWS]


def _left_out(reader: ReportSource, process: Process, small: int) -> str:
    note = "Drawn is memory touched in the session, in rows by the square root of the most that was touched of it"
    if small:
        note += f"; not drawn: {small} range{'s' * (small > 1)} with less"
    if str(reader.hello.options.filter) != "none":
        note += f"; left out by the filter: {reader.hello.options.filter}"
        not_stored = not_stored_bytes(reader, process.key)
        note += f" (at most {size(not_stored.max())} of a window)" if len(not_stored) else ""
    return note + "."


def _pixels(share: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return colour numbers. The square root keeps sparse touches visible, down to one page in hundreds."""
    finite = np.isfinite(share)
    level = np.ceil(np.sqrt(np.clip(np.nan_to_num(share), 0, 1)) * 254 - 1e-6)
    return np.where(finite, 1 + level, 0).astype(np.uint8)


def _bands(axes: Axes, layout: Layout, name_gaps: bool) -> None:
    """Draw names on the address axis, lines between ranges, and gaps marked as such."""
    draw, row_height = axes.drawing, _ROW_PT
    for band in layout.bands:
        top, height = axes.top + band.row * row_height, band.rows * row_height
        middle = top + height / 2
        if band.kind == "gap":
            draw.rect(axes.left, top, axes.width, height, "ground")
            text = f"gap of {size(band.size_bytes)}" if name_gaps else "gap"
            centre = axes.left + axes.width / 2
            side = (axes.width - text_width(text, SMALL_PT)) / 2 - 3
            draw.text(centre, middle + 1.9, text, size=SMALL_PT, anchor="middle", fill="dim")
            for left in (axes.left, axes.left + axes.width - side):
                draw.line(left, middle, left + side, middle, "grid", 0.6, "2 2")
            continue
        label = f"{band.ranges} others" if band.kind == "more" else band.label
        draw.text(axes.left - 4, middle + 1.9, fit(label, _LEFT - 8, SMALL_PT), size=SMALL_PT, anchor="end")
        draw.line(axes.left - 2.5, top, axes.left, top, "ink", 0.4)
        if band.row:
            draw.line(axes.left, top, axes.left + axes.width, top, "ground", 0.5)
    draw.line(axes.left - 2.5, axes.bottom, axes.left, axes.bottom, "ink", 0.4)


def _color_bar(axes: Axes, name: str) -> None:
    """Draw the legend of the colours, above the picture."""
    draw, width = axes.drawing, 84.0
    left, y = axes.left + axes.width - width - 12, axes.top - 8
    draw.text(4, y + 4.2, name, size=SMALL_PT + 0.5)
    draw.text(left - 4, y + 4.2, "touched share", size=SMALL_PT + 0.5, anchor="end")
    bar = np.arange(1, 256, dtype=np.uint8)[None, :]
    draw.image(left, y, width, 4.5, png.encode(bar, _PALETTE))
    for share in HEAT_TICKS:
        x = left + width * np.sqrt(share)
        draw.line(x, y, x, y + 4.5, "ink", 0.3)
        draw.text(x, y - 1.2, f"{share * 100:.0f}" + " %" * (share == 1), size=SMALL_PT - 0.5, anchor="middle")
