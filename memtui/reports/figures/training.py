"""The progress of a training, the memory of its tensors over time, and the recorded step with the highest peak."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.core.units import size
from memtui.reports.figures import provenance
from memtui.reports.figures.axes import (
    AXIS_PT,
    Axes,
    Scale,
    bytes_scale,
    captioned,
    footnote,
    number_scale,
    row_scale,
    share_scale,
    time_scale,
)
from memtui.reports.figures.svg import COLUMN_PT, SMALL_PT, Drawing, wrap
from memtui.reports.source import ReportSource
from memtui.reports.training_summary import fullest_device, usage_in_step

Floats = NDArray[np.float64]
BINS = 420  # more points than twice this would lie on one another
_LEFT, _RIGHT, _TOP, _HEIGHT, _APART = 38.0, 8.0, 8.0, 70.0, 12.0


def draw(reader: ReportSource) -> Iterator[tuple[str, Drawing]]:
    """Yield (name, figure) of every figure that the session has data for. Raises SessionError."""
    for name, drawing in (
        ("learning", _learning(reader)),
        ("tensors", _tensors(reader)),
        ("allocations", _step(reader)),
    ):
        if drawing is not None:
            yield name, drawing


def _learning(reader: ReportSource) -> Drawing | None:
    """Return loss and accuracy of the first process that reports them."""
    points = reader.learning()
    points = [point for point in points if point.pid == points[0].pid]
    seconds = (np.array([point.t_ns for point in points], np.float64) - _origin_ns(reader)) / 1e9
    loss, accuracy = (_with_nan([getattr(point, name) for point in points]) for name in ("loss", "accuracy"))
    panels = []
    if np.isfinite(loss).any():
        panels.append(("loss", number_scale(float(np.nanmax(loss))), loss, "wss"))
    if np.isfinite(accuracy).any():
        panels.append(("accuracy (%)", share_scale(1.0), accuracy / 100, "rss"))
    if not panels:
        return None
    across = time_scale(float(seconds.max()))
    drawing, all_axes = _canvas(reader, "Loss and accuracy over time", across, [up for _, up, _, _ in panels], [])
    for axes, (name, _, values, role) in zip(all_axes, panels, strict=True):
        axes.grid()
        finite = np.isfinite(values)
        corners = zip(map(axes.x, seconds[finite].tolist()), map(axes.y, values[finite].tolist()), strict=True)
        drawing.polyline(corners, role)
        axes.edges()
        axes.label_up(name)
    all_axes[-1].label_across(f"time ({across.unit})")
    return drawing


def _tensors(reader: ReportSource) -> Drawing | None:
    """Return the peak memory of tensors in each stretch, of the first process that trains, on its fullest device."""
    pid = next((row.pid for row in reader.training()), None)
    device = MAIN_MEMORY if pid is None else fullest_device(reader, pid)
    parts = [reader.training_progress(row) for row in reader.training(device=device) if row.pid == pid]
    parts = [part for part in parts if len(part.usage.start_ns)]
    if not parts:
        return None
    start_s, end_s = (
        (np.concatenate([getattr(part.usage, name) for part in parts]) - _origin_ns(reader)) / 1e9
        for name in ("start_ns", "end_ns")
    )
    usage_bytes = np.concatenate([part.usage.total_bytes for part in parts]).astype(np.float64)
    across = time_scale(float(end_s.max()))
    note = "What tensors held at the fullest moment of each stretch of time, as far as the cheap view sees."
    drawing, (axes,) = _canvas(
        reader, f"Memory of tensors{_on(device)} over time", across, [bytes_scale(float(usage_bytes.max()))], [note]
    )
    _area(axes, *_downsampled(start_s, usage_bytes), until=float(end_s.max()))
    axes.label_up(f"tensors ({axes.up.unit if axes.up else ''})")
    axes.label_across(f"time ({across.unit})")
    return drawing


def _step(reader: ReportSource) -> Drawing | None:
    """Return allocations and frees of the recorded step with the highest peak, in their order."""
    steps = reader.allocation_steps()
    if not steps:
        return None
    most = max(steps, key=lambda step: step.peak_bytes)
    trace = reader.step_trace(most)
    usage_bytes = usage_in_step(trace)
    if not len(usage_bytes):
        return None
    across = row_scale(len(usage_bytes))
    notes = [f"At its peak {size(trace.peak_bytes)}, {size(trace.peak_above_start_bytes)} above the start."]
    where = (
        "Allocations of a file"
        if reader.imported() is not None
        else f"Allocations of step {most.step}{_on(most.device)}"
    )
    drawing, (axes,) = _canvas(reader, where, across, [bytes_scale(float(usage_bytes.max()))], notes)
    _area(
        axes, *_downsampled(np.arange(len(usage_bytes), dtype=np.float64), usage_bytes), until=float(len(usage_bytes))
    )
    axes.label_up(f"held ({axes.up.unit if axes.up else ''})")
    axes.label_across("allocations and frees, in their order")
    return drawing


def _on(device: str) -> str:
    return "" if device == MAIN_MEMORY else f" on {device}"


def _canvas(
    reader: ReportSource, title: str, across: Scale, ups: list[Scale], notes: list[str]
) -> tuple[Drawing, list[Axes]]:
    """Return a drawing with axes for each vertical scale, the title above and the notes below."""
    width = COLUMN_PT - 8
    lines = [line for text in (f"{title}.", *notes) for line in wrap(text, width, SMALL_PT, provenance.LINES)]
    if reader.imported() is None:
        lines += provenance.lines(reader, width)
    else:  # there were no windows
        lines += wrap(f"{reader.short_title}: {reader.hello.target.command}", width, SMALL_PT, provenance.LINES)
    bottom = _TOP + len(ups) * _HEIGHT + (len(ups) - 1) * _APART
    drawing = captioned(bottom, title, " ".join(lines), lines)
    all_axes = [
        Axes(drawing, _LEFT, _TOP + row * (_HEIGHT + _APART), COLUMN_PT - _LEFT - _RIGHT, _HEIGHT, across, up)
        for row, up in enumerate(ups)
    ]
    for axes in all_axes[:-1]:
        axes.label_across("", numbers=False)
    footnote(drawing, lines, bottom + AXIS_PT)
    return drawing, all_axes


def _area(axes: Axes, starts: Floats, values: Floats, *, until: float) -> None:
    """Draw steps, filled down to the axis."""
    axes.grid()
    edges = np.append(starts, until)
    x = [axes.x(value) for value in np.repeat(edges, 2)[1:-1].tolist()]
    y = [axes.y(value) for value in np.repeat(values, 2).tolist()]
    points = list(zip(x, y, strict=True))
    axes.drawing.polygon([*points, (x[-1], axes.bottom), (x[0], axes.bottom)], "wss-area")
    axes.drawing.polyline(points, "wss")
    axes.edges()


def _downsampled(x: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return the minimum and the maximum of each of ``BINS`` pieces of many points, so that no peak is lost."""
    if len(values) <= 2 * BINS:
        return x, values
    indices: list[int] = []
    for piece in np.array_split(np.arange(len(values)), BINS):
        indices += sorted({int(piece[np.argmin(values[piece])]), int(piece[np.argmax(values[piece])])})
    return x[indices], values[indices]


def _with_nan(values: list[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _origin_ns(reader: ReportSource) -> int:
    return int(reader.samples.start_ns[0]) if len(reader.samples) else reader.hello.clock.monotonic_ns
