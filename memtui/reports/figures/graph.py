"""Working set and resident set over time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.resident import MEANING, RSS, resident
from memtui.analysis.resident_readings import Readings, resident_readings
from memtui.core.samples import Event
from memtui.core.units import duration
from memtui.reports.figures import provenance
from memtui.reports.figures.axes import AXIS_PT, Axes, bytes_scale, captioned, footnote, time_scale
from memtui.reports.figures.svg import COLUMN_PT, SMALL_PT, Drawing, fit, text_width
from memtui.reports.memory_summary import memory_uses
from memtui.reports.source import ReportSource

Floats = NDArray[np.float64]
BINS = 420  # more windows than this would lie on one another: two to a point of the picture's width
APART = 3.0  # ratio of RSS to working set from which on each has a picture of its own
SLACK = 1.0  # of a window: a shorter time between two windows is the pause of the target, not a gap
MAX_ANNOTATIONS = 24
_LEFT, _RIGHT, _TOP = 38.0, 8.0, 8.0
_LABEL_PT = 14.0  # a label needs this room


def draw(reader: ReportSource) -> Drawing | None:
    """Return the graph; None when there is no sample."""
    samples = reader.samples
    if not len(samples):
        return None
    uses = memory_uses(reader)
    resident_memory = resident(samples, reader.processes(), uses)
    readings = resident_readings(samples, resident_memory, uses)
    windows = Readings(samples.wss_bytes[:], samples.end_ns[:], samples.start_ns[:], samples.end_ns[:])
    wss, rss = _Line.of(windows), _Line.of(readings)
    apart = wss.has_values and rss.has_values and rss.most > APART * wss.most
    heights = [42.0, 84.0] if apart else [96.0]
    notes = []
    if wss.binned or rss.binned:
        notes.append(f"line: mean of the values in each {duration(wss.step_s)}; band: least to most of them")
    if resident_memory.name != RSS:
        notes.append(f"{resident_memory.name}: {MEANING[resident_memory.name]}")
    hello = reader.hello
    if not hello.wss.ok:
        notes.append(f"no working set: {hello.wss.reason}")
    lines = provenance.lines(reader, COLUMN_PT - 8, *notes)
    bottom = _TOP + sum(heights) + 10 * (len(heights) - 1)
    title = "Working set and resident set over time" if wss.has_values else "Resident set over time"
    drawing = captioned(bottom, title, " ".join(provenance.sentences(reader)), lines)
    across = time_scale((max(samples.end_ns[-1], readings.end_ns[-1]) - samples.start_ns[0]) / 1e9)
    box = (_LEFT, COLUMN_PT - _LEFT - _RIGHT)
    if apart:
        upper = Axes(drawing, box[0], _TOP, box[1], heights[0], across, bytes_scale(rss.most, 2))
        lower = Axes(drawing, box[0], _TOP + heights[0] + 10, box[1], heights[1], across, bytes_scale(wss.most * 1.02))
        _panel(upper, resident_memory.name, [(rss, "rss", "")])
        _panel(lower, "working set", [(wss, "wss", "")])
        upper.label_across("", numbers=False)
        all_axes = [upper, lower]
    else:
        most = max(line.most for line in (wss, rss) if line.has_values) if wss.has_values or rss.has_values else 1.0
        axes = Axes(drawing, box[0], _TOP, box[1], heights[0], across, bytes_scale(most * 1.02))
        both = ((rss, "rss", resident_memory.name), (wss, "wss", "WSS"))
        shown = [(line, role, name) for line, role, name in both if line.has_values]
        _panel(axes, "memory" if wss.has_values else resident_memory.name, shown)
        all_axes = [axes]
    _annotations(all_axes, reader.events(0, 2**62), int(samples.start_ns[0]))
    all_axes[-1].label_across(f"time ({across.unit})")
    footnote(drawing, lines, bottom + AXIS_PT)
    return drawing


@dataclass(frozen=True, slots=True)
class _Line:
    """A size over time: start and end of each piece in seconds, its mean, and the least and most of its windows."""

    start_s: Floats
    end_s: Floats
    mean: Floats
    low: Floats
    high: Floats
    binned: bool
    step_s: float

    @classmethod
    def of(cls, readings: Readings) -> _Line:
        origin, values = readings.start_ns[0], readings.bytes
        start, end = (readings.start_ns - origin) / 1e9, (readings.end_ns - origin) / 1e9
        if len(values) <= BINS:
            return cls(start, end, values, values, values, False, 0.0)
        edges = np.linspace(0.0, float(end[-1]), BINS + 1)
        parts = np.full((3, BINS), np.nan)
        bins = np.searchsorted(edges, end, side="left") - 1
        for i in np.flatnonzero(np.bincount(np.maximum(bins, 0), minlength=BINS)).tolist():
            in_bin = values[bins == i]
            in_bin = in_bin[np.isfinite(in_bin)]
            if len(in_bin):
                parts[:, i] = in_bin.mean(), in_bin.min(), in_bin.max()
        return cls(edges[:-1], edges[1:], parts[0], parts[1], parts[2], True, float(edges[1]))

    @property
    def has_values(self) -> bool:
        return bool(np.isfinite(self.mean).any())

    @property
    def most(self) -> float:
        return float(np.nanmax(self.high)) if self.has_values else 0.0

    def runs(self) -> Iterator[slice]:
        """Yield the pieces without a hole between them."""
        finite = np.isfinite(self.mean)
        length = self.end_s - self.start_s
        joined = finite[1:] & finite[:-1] & (self.start_s[1:] - self.end_s[:-1] <= SLACK * length[1:])
        cuts = (np.flatnonzero(~joined) + 1).tolist()
        for low, high in pairwise([0, *cuts, len(finite)]):
            if finite[low]:
                yield slice(low, high)


def _panel(axes: Axes, name: str, lines: list[tuple[_Line, str, str]]) -> None:
    """Draw one graph with its axis; several lines are named at their right end."""
    axes.grid()
    for line, role, _ in lines:
        for run in line.runs():
            x, low, high = _steps(axes, line, run)
            if line.binned:
                band = [*zip(x, high, strict=True), *zip(x[::-1], low[::-1], strict=True)]
                axes.drawing.polygon(band, f"{role}-area")
            elif len(lines) == 1 or role == "wss":
                floor = [(x[-1], axes.bottom), (x[0], axes.bottom)]
                axes.drawing.polygon([*zip(x, high, strict=True), *floor], f"{role}-area")
    for line, role, _ in lines:
        for run in line.runs():
            x, _, _ = _steps(axes, line, run)
            y = np.repeat([axes.y(v) for v in line.mean[run]], 2)
            axes.drawing.polyline(zip(x, y.tolist(), strict=True), role)
    axes.edges()
    unit = axes.up.unit if axes.up else ""
    axes.label_up(f"{name} ({unit})")
    if len(lines) > 1:
        _legend(axes, [(role, label) for _, role, label in lines])


def _steps(axes: Axes, line: _Line, run: slice) -> tuple[list[float], list[float], list[float]]:
    """Return the corners of a stepped band: two for each window."""
    x = [corner for pair in zip(line.start_s[run], line.end_s[run], strict=True) for corner in map(axes.x, pair)]
    low, high = (np.repeat([axes.y(v) for v in part[run]], 2).tolist() for part in (line.low, line.high))
    return x, low, high


def _legend(axes: Axes, entries: list[tuple[str, str]]) -> None:
    """Name the lines above the picture, at its right end."""
    x = axes.left + axes.width
    for role, label in entries:
        x -= text_width(label, SMALL_PT + 0.5)
        axes.drawing.text(x, axes.top - 2, label, size=SMALL_PT + 0.5)
        axes.drawing.line(x - 10, axes.top - 4, x - 2, axes.top - 4, role, 1.2)
        x -= 16


def _annotations(all_axes: list[Axes], events: list[Event], origin_ns: int) -> None:
    """Draw the annotations of the user on the time axis, with text where there is room before the next one."""
    annotations = [event for event in events if event.kind == "mark"][:MAX_ANNOTATIONS]
    across = [all_axes[0].x((annotation.t_ns - origin_ns) / 1e9) for annotation in annotations]
    for x in across:
        for axes in all_axes:
            axes.drawing.line(x, axes.top, x, axes.bottom, "mark", 0.5, "2 1.5")
    drawing, top, edge = all_axes[0].drawing, all_axes[0].top, all_axes[0].left + all_axes[0].width
    ends = [*across[1:], edge] if across else []
    for annotation, x, end in zip(annotations, across, ends, strict=True):
        if end - x < _LABEL_PT:
            continue
        text = fit(annotation.text, min(110.0, end - x - 3), SMALL_PT)
        # On a background: a curve may run behind the text.
        drawing.rect(x + 0.75, top + 0.5, text_width(text, SMALL_PT) + 1.5, SMALL_PT + 1.5, "ground", 0.85)
        drawing.text(x + 1.5, top + SMALL_PT, text, size=SMALL_PT, fill="mark")
