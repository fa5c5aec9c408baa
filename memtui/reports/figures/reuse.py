"""Reuse distances of the whole session, and the miss ratio that they imply, between their two bounds."""

from __future__ import annotations

import numpy as np

from memtui.analysis.miss_ratio import MissRatioCurve, are_one_figure
from memtui.analysis.reuse_histogram import BIN_EDGES, BINS_PER_OCTAVE, BOUNDS, ExactReuse, bin_of
from memtui.core.fast_numpy import intervals_s
from memtui.core.units import between, percent, size
from memtui.reports.figures import provenance
from memtui.reports.figures.axes import AXIS_PT, Axes, Scale, captioned, footnote, octave_scale, share_scale
from memtui.reports.figures.svg import COLUMN_PT, SMALL_PT, Drawing
from memtui.reports.source import ReportSource

POINTS = 400  # of the curve
BARS = 60
_LEFT, _RIGHT, _TOP, _HEIGHT, _BETWEEN = 38.0, 10.0, 12.0, 62.0, 36.0


def draw(reader: ReportSource, exact: ExactReuse) -> Drawing | None:
    """Return a histogram above a miss-ratio curve, on one axis of sizes; None when no page was touched twice."""
    shares = {bound: _shares(exact, bound) for bound in BOUNDS}
    used = np.flatnonzero(sum(shares.values()))
    if not len(used):
        return None
    lines = provenance.lines(reader, COLUMN_PT - 8, *_notes(reader, exact))
    bottom = _TOP + 2 * _HEIGHT + _BETWEEN
    drawing = captioned(bottom, "Reuse distances and miss ratio", " ".join(provenance.sentences(reader)), lines)
    across = octave_scale(float(BIN_EDGES[used[0]]) / 2, float(BIN_EDGES[min(int(used[-1]) + 2, len(BIN_EDGES) - 1)]))
    box = (_LEFT, COLUMN_PT - _LEFT - _RIGHT)
    edges, shares = _bars(shares, across)
    most = max(float(values.max()) for values in shares.values())
    upper = Axes(drawing, box[0], _TOP, box[1], _HEIGHT, across, share_scale(most))
    _histogram(upper, edges, shares)
    lower = Axes(drawing, box[0], _TOP + _HEIGHT + _BETWEEN, box[1], _HEIGHT, across, share_scale(1.0))
    _curve(lower, MissRatioCurve.of(exact), across)
    footnote(drawing, lines, bottom + AXIS_PT)
    return drawing


def _notes(reader: ReportSource, exact: ExactReuse) -> list[str]:
    """Return the notes of the figure on its touches."""
    returning, first = exact.touches - exact.first_touches, exact.first_touches
    lengths = intervals_s(reader.samples.intervals_ns(), reader.hello.options.interval_ns)
    window = between(*(f"{interval:.3g} s" for interval in lengths))
    notes = [
        f"A touch is one per page and window of {window}. Order inside a window is not known, so distances and "
        "miss ratio lie between the two bounds shown"
        + (
            ", and the miss ratio where the third line is if the order is random."
            if exact.estimated is not None
            else "."
        )
    ]
    half = exact.quantile(0.5)
    if half:
        estimate = exact.estimate(0.5)
        random = estimate is not None and not are_one_figure(*half)
        about = f" (about {size(estimate)} if the order inside windows is random)" if random else ""
        notes.append(
            f"Half of the {returning} returning touches came back within {size(half[0])} to {size(half[1])}{about}; "
            f"{first} first touches ({percent(first / (first + returning))} of all) have no distance and always miss."
        )
    return notes


def _shares(exact: ExactReuse, bound: str) -> np.ndarray:
    """Return the share of all touches, first ones included, in each bin of the histogram."""
    distances, counts = exact.entries(bound)
    bins = np.zeros(len(BIN_EDGES))
    np.add.at(bins, bin_of(distances), counts)
    return bins / max(exact.touches, 1)


def _bars(shares: dict[str, np.ndarray], across: Scale) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return edges f8[n + 1] and shares of bars wide enough to be seen; each ends at a power of two or inside one."""
    octaves = np.log2(across.high / across.low)
    merge = next(m for m in (1, 2, 4, 8) if octaves * BINS_PER_OCTAVE / m <= BARS or m == 8)
    # Bin k ends at edge k, so bin 0 stands alone and the others make whole groups after it.
    starts = np.concatenate(([0], np.arange(1, len(BIN_EDGES), merge)))
    first = BIN_EDGES[0] / 2 ** (merge / BINS_PER_OCTAVE)
    edges = np.concatenate(([first], BIN_EDGES[starts[1:] - 1], [BIN_EDGES[-1]])).astype(float)
    return edges, {bound: np.add.reduceat(values, starts) for bound, values in shares.items()}


def _histogram(axes: Axes, edges: np.ndarray, shares: dict[str, np.ndarray]) -> None:
    axes.grid()
    outline: list[tuple[float, float]] = [(axes.x(edges[0]), axes.bottom)]
    for number in range(len(edges) - 1):
        left, right = axes.x(edges[number]), axes.x(edges[number + 1])
        if right <= axes.left or right <= left:
            continue
        top = axes.y(shares["upper"][number])
        if shares["upper"][number]:
            axes.drawing.rect(left + 0.15, top, right - left - 0.3, axes.bottom - top, "bound-area")
        y = axes.y(shares["lower"][number])
        outline += [(left, y), (right, y)]
    axes.drawing.polyline(outline, "bound", 0.7)
    axes.edges()
    axes.label_up("touches (%)")
    axes.label_across("reuse distance (bytes of other pages touched)")
    _legend(axes, "upper bound", "lower bound")


def _curve(axes: Axes, curve: MissRatioCurve, across: Scale) -> None:
    axes.grid()
    sizes = np.geomspace(across.low, across.high, POINTS)
    # Each size at which the curve falls has two points, so that steps are vertical.
    low, high = curve.miss_ratio_at(np.floor(sizes).astype(np.int64))
    x = [axes.x(s) for s in sizes]
    below, above = [axes.y(v) for v in low], [axes.y(v) for v in high]
    band = [*zip(x, above, strict=True), *zip(x[::-1], below[::-1], strict=True)]
    axes.drawing.polygon(band, "bound-area")
    axes.drawing.polyline(zip(x, above, strict=True), "bound", 0.8)
    axes.drawing.polyline(zip(x, below, strict=True), "bound", 0.8, "2 1.2")
    estimate = curve.estimate_at(np.floor(sizes).astype(np.int64))
    if estimate is not None:
        axes.drawing.polyline(zip(x, map(axes.y, estimate), strict=True), "estimate", 1.0)
    axes.edges()
    axes.label_up("miss ratio (%)")
    axes.label_across("size of an LRU memory (bytes)")
    _bounds(axes, estimate is not None)


def _legend(axes: Axes, filled: str, line: str) -> None:
    draw, y, right = axes.drawing, axes.top - 4, axes.left + axes.width
    draw.text(right, y + 2, line, size=SMALL_PT + 0.5, anchor="end")
    draw.line(right - 48, y, right - 40, y, "bound", 0.8)
    draw.text(right - 56, y + 2, filled, size=SMALL_PT + 0.5, anchor="end")
    draw.rect(right - 104, y - 2.5, 7, 5, "bound-area")


def _bounds(axes: Axes, has_estimate: bool) -> None:
    draw, y, right = axes.drawing, axes.top - 4, axes.left + axes.width
    draw.text(right, y + 2, "lower bound", size=SMALL_PT + 0.5, anchor="end")
    draw.line(right - 48, y, right - 40, y, "bound", 0.8, "2 1.2")
    draw.text(right - 56, y + 2, "upper bound", size=SMALL_PT + 0.5, anchor="end")
    draw.line(right - 105, y, right - 97, y, "bound", 0.8)
    if has_estimate:
        draw.text(right - 113, y + 2, "random order", size=SMALL_PT + 0.5, anchor="end")
        draw.line(right - 166, y, right - 158, y, "estimate", 1.0)
