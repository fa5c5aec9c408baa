"""A heat map of the accesses of one process: addresses down and time across."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.heat_map import Layout
from memtui.core.samples import Process
from memtui.core.units import size
from memtui.reports.charts.model import HEAT_TICKS
from memtui.reports.figures import png, provenance
from memtui.reports.figures.axes import AXIS_PT, Axes, captioned, footnote, time_scale
from memtui.reports.figures.svg import COLUMN_PT, SMALL_PT, Drawing, fit, text_width
from memtui.reports.process_heat import process_heat
from memtui.reports.source import ReportSource, not_stored_bytes

ROWS, SUBROWS = 26, 12  # a row is as high as its label, a subrow is one pixel
COLUMNS = 1024  # 400 to an inch of the picture's width
_LEFT, _RIGHT, _TOP = 62.0, 8.0, 14.0
_ROW_PT = 6.6
# From "mapped, not touched" to "all of it touched": darker in print, too.
_ANCHORS = ((240, 236, 228), (252, 214, 150), (246, 162, 78), (222, 88, 38), (158, 28, 48), (58, 10, 40))
_PALETTE = [(255, 255, 255), *png.ramp(_ANCHORS, 255)]


def draw(reader: ReportSource, process: Process) -> Drawing | None:
    """Return the heat map of one process; None when no page of it was ever stored.

    Args:
        reader: the session.
        process: the process.
    """
    heat = process_heat(reader, process, rows=ROWS, subrows=SUBROWS, columns=COLUMNS)
    if heat is None:
        return None
    samples, share, layout = reader.samples, heat.share, heat.layout
    start_ns, end_ns = float(samples.start_ns[0]), float(samples.end_ns[-1])
    height = len(share) // SUBROWS * _ROW_PT
    across = time_scale((end_ns - start_ns) / 1e9)
    notes = ["Colour: share of the pages of a place touched in a window, mean where windows share a column."]
    notes.append(_left_out(reader, process, heat.left_out))
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
