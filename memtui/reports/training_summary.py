"""The training steps of a session: their number, their duration, and the memory of their tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import StepTrace
from memtui.analysis.peak_segment import representative_step, segment_label, segment_of
from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.core.units import duration, size
from memtui.reports.allocation_summary import LITTLE
from memtui.reports.source import ReportSource
from memtui.session.tables.allocations import RecordedStep
from memtui.session.tables.learning import About, LearningPoint
from memtui.session.tables.training import ProgressRow

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class StepLengths:
    """Percentiles of the lengths of training steps, ns."""

    p5: float
    median: float
    p95: float


@dataclass(frozen=True, slots=True)
class DevicePeak:
    """The peak memory of tensors on a device other than main memory, as far as the cheap view sees."""

    device: str
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """The training steps of one process without its first step, whose start is unknown.

    Attributes:
        pid: the process.
        steps: number of steps.
        step_ns: their durations.
        view, reason: what the cheap view sees; why it is off.
        view_fraction: share of the time that the cheap view took, an estimate.
        recording_fraction: share of the time that recording whole steps took, by the program's own measurement.
        peak_bytes: peak memory of tensors, as far as the cheap view sees; None: nothing was seen.
        devices: the same for devices other than main memory.
    """

    pid: int
    steps: int
    step_ns: StepLengths
    view: str
    reason: str
    view_fraction: float
    recording_fraction: float
    peak_bytes: int | None
    devices: tuple[DevicePeak, ...]


@dataclass(frozen=True, slots=True)
class LearningSummary:
    """How well a process learns, and what sets the peak of its memory.

    Attributes:
        pid: the process.
        network, type, settings: network, learning rule and its settings.
        epoch, iteration: current epoch and iteration.
        loss, accuracy, best_accuracy, minimum_accuracy: percent; None: not measured.
        peak_above_start_bytes: peak of the recorded step that shows where learning needs its memory.
        peak_segment: layers of that peak; None: in no segment.
        one_segment_at_a_time: whether the rule stores one segment at a time.
        reason: why the peak is unknown.
    """

    pid: int
    network: str
    type: str
    settings: Mapping[str, object]
    epoch: int
    iteration: int
    loss: float | None
    accuracy: float | None
    best_accuracy: float | None
    minimum_accuracy: float | None
    peak_above_start_bytes: int | None
    peak_segment: tuple[str, ...] | None
    one_segment_at_a_time: bool
    reason: str


def training_summaries(reader: ReportSource, recorded: Sequence[RecordedStep]) -> tuple[TrainingSummary, ...]:
    """Return a summary of each process that reported training steps.

    ``recorded`` are the steps that were recorded whole.

    Raises:
        SessionError: the session is damaged.
    """
    rows = reader.training()
    return tuple(
        _training_of(reader, [row for row in rows if row.pid == pid], [step for step in recorded if step.pid == pid])
        for pid in dict.fromkeys(row.pid for row in rows)
    )


def _training_of(reader: ReportSource, rows: list[ProgressRow], recorded: list[RecordedStep]) -> TrainingSummary:
    last = rows[-1]
    lengths = [np.diff(reader.training_progress(row).ends_ns, prepend=row.start_ns) for row in rows]
    span_ns = max(1, last.end_ns - rows[0].start_ns)
    return TrainingSummary(
        pid=last.pid,
        steps=sum(row.steps for row in rows),
        step_ns=StepLengths(*np.percentile(np.concatenate(lengths), (5, 50, 95)).tolist()),
        view=last.view,
        reason=last.reason,
        view_fraction=last.cost_ns / span_ns,
        recording_fraction=sum(step.cost_ns for step in recorded) / span_ns,
        peak_bytes=max(row.peak_bytes for row in rows) or None,
        devices=_device_peaks(reader, last.pid),
    )


def _device_peaks(reader: ReportSource, pid: int) -> tuple[DevicePeak, ...]:
    peaks = {
        device: max((row.peak_bytes for row in reader.training(device=device) if row.pid == pid), default=0)
        for device in reader.training_devices()
        if device != MAIN_MEMORY
    }
    return tuple(DevicePeak(device, peak_bytes) for device, peak_bytes in peaks.items() if peak_bytes)


def fullest_device(reader: ReportSource, pid: int) -> str:
    """Return the device on which tensors of a process held the most, as far as the cheap view sees."""
    peaks = {summary.device: summary.peak_bytes for summary in _device_peaks(reader, pid)}
    main_bytes = max((row.peak_bytes for row in reader.training() if row.pid == pid), default=0)
    device = max(peaks, key=lambda summary: peaks[summary], default=MAIN_MEMORY)
    return device if peaks.get(device, 0) > main_bytes else MAIN_MEMORY


def steps_of_fullest_device(steps: Sequence[RecordedStep]) -> list[RecordedStep]:
    """Return of recorded steps the rows of the device with the highest peak."""
    most = max(steps, key=lambda step: step.peak_bytes, default=None)
    return [step for step in steps if most is not None and step.device == most.device]


def learning_summaries(reader: ReportSource, recorded: Sequence[RecordedStep]) -> tuple[LearningSummary, ...]:
    """Return a summary of each process that reports how well it learns.

    ``recorded`` are the steps that were recorded whole.

    Raises:
        SessionError: the session is damaged.
    """
    points = reader.learning()
    return tuple(
        _learning_of(
            about,
            [point for point in points if point.pid == about.pid],
            [step for step in recorded if step.pid == about.pid],
        )
        for about in reader.trainings()
    )


def _learning_of(about: About, points: list[LearningPoint], recorded: list[RecordedStep]) -> LearningSummary:
    def newest(name: str) -> float | None:
        return next((value for point in reversed(points) if (value := getattr(point, name)) is not None), None)

    peak, segment = peak_step(recorded, about)
    return LearningSummary(
        pid=about.pid,
        network=about.network,
        type=about.rule,
        settings=about.settings,
        epoch=points[-1].epoch if points else 0,
        iteration=points[-1].iteration if points else 0,
        loss=newest("loss"),
        accuracy=newest("accuracy"),
        best_accuracy=max((point.accuracy for point in points if point.accuracy is not None), default=None),
        minimum_accuracy=newest("minimum"),
        peak_above_start_bytes=peak.peak_above_start_bytes if peak is not None else None,
        peak_segment=segment or None,
        one_segment_at_a_time=about.direct,
        reason="" if peak is not None else "no step was recorded whole",
    )


def peak_step(recorded: Sequence[RecordedStep], about: About | None) -> tuple[RecordedStep | None, tuple[str, ...]]:
    """Return the recorded step that shows where learning needs its memory, and the segment of its peak.

    The segment is empty where the peak is in no segment, or the segments are unknown (``about`` is None).
    """
    peak: RecordedStep | None = representative_step(recorded)
    if peak is None or about is None:
        return peak, ()
    return peak, segment_of(peak.peak_layer, about.segments)


def usage_in_step(trace: StepTrace) -> NDArray[np.float64]:
    """Return the allocated bytes at the start of a step and after each of its allocations and frees: f8[n]."""
    return trace.usage_bytes[max(0, trace.existing - 1) :].astype(np.float64)


def learning_lines(summaries: Sequence[LearningSummary]) -> list[str]:
    """Return the lines of the report."""
    lines = []
    for summary in summaries:
        figures = [f"epoch {summary.epoch}", f"iteration {summary.iteration:,}"]
        figures += [f"loss {summary.loss:.4g}"] if summary.loss is not None else []
        if summary.accuracy is not None:
            figures.append(f"accuracy {summary.accuracy:.1f} % (best {summary.best_accuracy:.1f} %)")
        if summary.minimum_accuracy is not None:
            figures.append(f"at least {summary.minimum_accuracy:g} % is wanted")
        lines.append(f"learning     {summary.network} by {summary.type}: {', '.join(figures)}")
        if summary.peak_above_start_bytes is not None:
            peak = f"{size(summary.peak_above_start_bytes)} above the start of the step"
            lines.append(f"segment      {_peak_clause(summary, peak)}")
    return lines


def _peak_clause(summary: LearningSummary, peak: str) -> str:
    if not summary.peak_segment:
        return f"the peak, {peak}, is in none"
    segment = segment_label(summary.peak_segment)
    if summary.one_segment_at_a_time:
        return f"{segment} alone sets the peak, {peak}; nothing else would lower it"
    return f"the peak, {peak}, is in {segment}"


def training_lines(summaries: Sequence[TrainingSummary]) -> list[str]:
    """Return the lines of the report."""
    lines = []
    for summary in summaries:
        step_ns = summary.step_ns
        low, median, high = (duration(ns / SECOND_NS) for ns in (step_ns.p5, step_ns.median, step_ns.p95))
        pid = f"pid {summary.pid}: " if len(summaries) > 1 else ""
        lines.append(
            f"training     {pid}{summary.steps} steps, {median} each (90 %: {low} to {high}); {_view_clause(summary)}"
        )
    return lines


def _view_clause(summary: TrainingSummary) -> str:
    """Return the findings of the cheap view, and the cost of recorded steps."""
    if summary.view:
        clause = (
            f"cheap view of {summary.view} (about {_percent(summary.view_fraction)} of the time), "
            f"at most {_device_clause(summary)}"
        )
    else:
        clause = f"cheap view off: {summary.reason or 'too few steps'}"
    if summary.recording_fraction:
        clause += f"; recorded steps took {_percent(summary.recording_fraction)} on top, at least"
    return clause


def _device_clause(summary: TrainingSummary) -> str:
    """Return the peak of each device, the highest first; without main memory where that is next to nothing."""
    others = sorted(summary.devices, key=lambda other: -other.peak_bytes)
    main_bytes = summary.peak_bytes or 0
    if not others or main_bytes >= others[0].peak_bytes:
        return size(summary.peak_bytes) + "".join(f", on {other.device} {size(other.peak_bytes)}" for other in others)
    peaks = [f"{size(other.peak_bytes)} on {other.device}" for other in others]
    if main_bytes >= LITTLE * others[0].peak_bytes:
        peaks.append(f"{size(main_bytes)} in main memory")
    return ", ".join(peaks)


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")
