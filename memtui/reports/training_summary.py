"""The training steps of a session: how many, how long, and how much of what tensors held in them was seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from memtui.analysis.peak_segment import segment_of, segment_words, telling
from memtui.core.samples import MAIN_MEMORY
from memtui.core.units import duration, size
from memtui.reports.source import ReportSource
from memtui.session.records.allocations import RecordedStep
from memtui.session.records.learning import About, LearningPoint
from memtui.session.records.training import ProgressRow

SECOND_NS = 1_000_000_000


def training(reader: ReportSource, recorded: Sequence[RecordedStep]) -> list[dict[str, Any]]:
    """One entry for each process that told of steps. Its first step is not among them: when that began is not known.

    ``recorded`` are the steps that were recorded whole.

    Raises:
        SessionError: the session is damaged.
    """
    rows = reader.training()
    return [
        _of_one(reader, [row for row in rows if row.pid == pid], [step for step in recorded if step.pid == pid])
        for pid in dict.fromkeys(row.pid for row in rows)
    ]


def _of_one(reader: ReportSource, rows: list[ProgressRow], recorded: list[RecordedStep]) -> dict[str, Any]:
    last = rows[-1]
    lengths = [np.diff(reader.training_progress(row).ends_ns, prepend=row.start_ns) for row in rows]
    low, median, high = np.percentile(np.concatenate(lengths), (5, 50, 95)).tolist()
    begin_ns, end_ns = rows[0].start_ns, last.end_ns
    whole_ns = sum(step.cost_ns for step in recorded)
    peak = max(rows, key=lambda row: row.peak_bytes)
    return {
        "pid": last.pid,
        "steps": sum(row.steps for row in rows),
        "step_ns": {"p5": low, "median": median, "p95": high},
        "view": last.view,
        "reason": last.reason,
        "view_fraction": last.cost_ns / max(1, end_ns - begin_ns),  # of the time, an estimate
        "recording_fraction": whole_ns / max(1, end_ns - begin_ns),  # of the time, as far as the program can tell
        "peak_bytes": peak.peak_bytes or None,  # as far as the cheap view sees; None: nothing was seen
        "devices": _other_devices(reader, last.pid),
    }


def _other_devices(reader: ReportSource, pid: int) -> list[dict[str, Any]]:
    """Return the most that tensors held in memory that is not main memory, likewise."""
    peaks = {
        device: max((row.peak_bytes for row in reader.training(device=device) if row.pid == pid), default=0)
        for device in reader.training_devices()
        if device != MAIN_MEMORY
    }
    return [{"device": device, "peak_bytes": peak_bytes} for device, peak_bytes in peaks.items() if peak_bytes]


def learning(reader: ReportSource, recorded: Sequence[RecordedStep]) -> list[dict[str, Any]]:
    """One entry for each process that tells how well it learns: where it is, and what sets the peak of its memory.

    ``recorded`` are the steps that were recorded whole.

    Raises:
        SessionError: the session is damaged.
    """
    points = reader.learning()
    return [
        _learning_of(
            about,
            [point for point in points if point.pid == about.pid],
            [step for step in recorded if step.pid == about.pid],
        )
        for about in reader.trainings()
    ]


def _learning_of(about: About, points: list[LearningPoint], recorded: list[RecordedStep]) -> dict[str, Any]:
    def newest(name: str) -> float | None:
        return next((value for point in reversed(points) if (value := getattr(point, name)) is not None), None)

    peak = telling(recorded)
    segment = segment_of(peak.peak_layer, about.segments) if peak is not None else ()
    return {
        "pid": about.pid,
        "network": about.network,
        "type": about.rule,
        "settings": about.settings,
        "epoch": points[-1].epoch if points else 0,
        "iteration": points[-1].iteration if points else 0,
        "loss": newest("loss"),
        "accuracy": newest("accuracy"),
        "best_accuracy": max((point.accuracy for point in points if point.accuracy is not None), default=None),
        "minimum_accuracy": newest("minimum"),
        "peak_above_start_bytes": peak.peak_above_start_bytes if peak is not None else None,
        "peak_segment": list(segment) or None,
        "one_segment_at_a_time": about.direct,
        "reason": "" if peak is not None else "no step was recorded whole",
    }


def learning_words(found: list[dict[str, Any]]) -> list[str]:
    """Lines of the report."""
    lines = []
    for one in found:
        figures = [f"epoch {one['epoch']}", f"iteration {one['iteration']:,}"]
        figures += [f"loss {one['loss']:.4g}"] if one["loss"] is not None else []
        if one["accuracy"] is not None:
            figures.append(f"accuracy {one['accuracy']:.1f} % (best {one['best_accuracy']:.1f} %)")
        if one["minimum_accuracy"] is not None:
            figures.append(f"at least {one['minimum_accuracy']:g} % is wanted")
        lines.append(f"learning     {one['network']} by {one['type']}: {', '.join(figures)}")
        if one["peak_above_start_bytes"] is None:
            continue
        peak = f"{size(one['peak_above_start_bytes'])} above the start of the step"
        if one["peak_segment"] and one["one_segment_at_a_time"]:
            words = f"{segment_words(one['peak_segment'])} alone sets the peak, {peak}; nothing else would lower it"
        elif one["peak_segment"]:
            words = f"the peak, {peak}, is in {segment_words(one['peak_segment'])}"
        else:
            words = f"the peak, {peak}, is in none"
        lines.append(f"segment      {words}")
    return lines


def training_words(found: list[dict[str, Any]]) -> list[str]:
    """Lines of the report."""
    lines = []
    for one in found:
        step = one["step_ns"]
        low, median, high = (duration(step[key] / SECOND_NS) for key in ("p5", "median", "p95"))
        if one["view"]:
            share = f"{one['view_fraction']:.1%}".replace("%", " %")
            seen = f"cheap view of {one['view']} (about {share} of the time), at most {size(one['peak_bytes'])}"
            seen += "".join(f", on {other['device']} {size(other['peak_bytes'])}" for other in one["devices"])
        else:
            seen = f"cheap view off: {one['reason'] or 'too few steps'}"
        if one["recording_fraction"]:
            seen += f"; recorded steps took {one['recording_fraction']:.1%}".replace("%", " %") + " on top, at least"
        which = f"pid {one['pid']}: " if len(found) > 1 else ""
        lines.append(f"training     {which}{one['steps']} steps, {median} each (90 %: {low} to {high}); {seen}")
    return lines
