"""The trainings of a comparison, read once each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from memtui.analysis.lines import Line
from memtui.analysis.peak_segment import segment_label
from memtui.analysis.tensor_usage import fullest
from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.reports.comparison.model import ComparedSession, ComparedTraining
from memtui.reports.source import ReportSource
from memtui.reports.training_summary import fullest_device, peak_step, steps_of_fullest_device, usage_in_step
from memtui.session.tables.allocations import RecordedStep
from memtui.session.tables.training import RecordedProgress

_NONE = Line(np.empty(0), np.empty(0))


def run_of(reader: ReportSource) -> ComparedTraining | None:
    """Return the first training of a session; None without a training."""
    about = next(iter(reader.trainings()), None)
    rows = reader.training()
    pid = about.pid if about is not None else next((row.pid for row in rows), None)
    if pid is None:
        return None
    points = [point for point in reader.learning() if point.pid == pid]
    rows = [row for row in rows if row.pid == pid]
    start_ns = min([point.t_ns for point in points[:1]] + [row.start_ns for row in rows[:1]], default=0)
    progress = [reader.training_progress(row) for row in fullest(rows)]
    device = fullest_device(reader, pid)
    allocations = (
        progress
        if device == MAIN_MEMORY
        else [
            reader.training_progress(row)
            for row in fullest([row for row in reader.training(device=device) if row.pid == pid])
        ]
    )
    lengths = [np.diff(part.ends_ns, prepend=part.row.start_ns) for part in progress]
    steps = steps_of_fullest_device([step for step in reader.allocation_steps() if step.pid == pid])
    most, segment = peak_step(steps, about)
    accuracies = [point.accuracy for point in points if point.accuracy is not None]
    iterations = np.array([point.iteration for point in points], np.float64)
    seconds = np.array([point.t_ns - start_ns for point in points], np.float64) / 1e9
    memory, memory_s = _memory(allocations, start_ns)
    last = max([point.iteration for point in points[-1:]] + [sum(row.steps for row in rows)])  # steps as in a report
    return ComparedTraining(
        title=f"{about.network} by {about.rule}" if about is not None else reader.hello.target.command,
        loss=_line(iterations, [point.loss for point in points]),
        accuracy=_line(iterations, [point.accuracy for point in points]),
        memory=memory,
        loss_s=_line(seconds, [point.loss for point in points]),
        accuracy_s=_line(seconds, [point.accuracy for point in points]),
        memory_s=memory_s,
        step=_step(reader, most),
        iterations=last,
        last_accuracy=accuracies[-1] if accuracies else None,
        best_accuracy=max(accuracies, default=None),
        last_loss=next((point.loss for point in reversed(points) if point.loss is not None), None),
        step_ms=float(np.median(np.concatenate(lengths))) / 1e6 if lengths else None,
        peak_above_start_bytes=most.peak_above_start_bytes if most is not None else None,
        peak_bytes=most.peak_bytes if most is not None else None,
        peak_parts=dict(most.peak_parts) if most is not None else {},
        segment=segment_label(segment) if segment else (most.peak_layer if most is not None else ""),
        one_segment=about is not None and about.direct,
    )


def with_distinct_titles(sessions: Sequence[ComparedSession]) -> list[ComparedSession]:
    """Return the sessions, with the name of the session after a title that several trainings have."""
    titles = Counter(session.training.title for session in sessions if session.training is not None)
    return [
        replace(session, training=replace(session.training, title=f"{session.training.title} ({session.name})"))
        if session.training is not None and titles[session.training.title] > 1
        else session
        for session in sessions
    ]


def _line(x: np.ndarray, values: list[float | None]) -> Line:
    y = np.array([np.nan if value is None else value for value in values], np.float64)
    finite = np.isfinite(y)
    return Line(x[finite], y[finite])


def _memory(progress: Sequence[RecordedProgress], start_ns: int) -> tuple[Line, Line]:
    """Return the peak memory of all tensors in each stretch, over iterations and seconds."""
    if not progress:
        return _NONE, _NONE
    usage_bytes = np.concatenate([part.usage.total_bytes for part in progress]).astype(np.float64)
    iteration = np.concatenate([part.usage.step for part in progress]).astype(np.float64) + 1
    moment_ns = np.concatenate([part.usage.start_ns for part in progress])
    return Line(iteration, usage_bytes), Line((moment_ns - start_ns) / 1e9, usage_bytes)


def _step(reader: ReportSource, step: RecordedStep | None) -> Line:
    if step is None:
        return _NONE
    trace = reader.step_trace(step)
    above = usage_in_step(trace) - trace.start_bytes
    # By order, not by time: recording slows down the allocations unevenly.
    return Line(np.linspace(0, 100, len(above)), above)
