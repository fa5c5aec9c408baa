"""The peak of the memory of a recorded training iteration, and the segment that sets the peak. Does not use torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memtui.analysis.allocation_trace import CATEGORIES, StepTrace
from memtui.core.units import size

NEARLY = 0.98


@dataclass(frozen=True, slots=True)
class Peak:
    """The fullest moment of a recorded iteration.

    Attributes:
        step: number of the step, from 0.
        bytes_: bytes in use.
        above_start_bytes: bytes in use above those of the start of the step.
        parts: bytes by category.
        op, layer: operator and layer that allocated last.
        segment: layers of the segment of ``layer``; empty where ``layer`` is in no segment.
        segment_bytes: bytes in use that those layers allocated since the step began.
    """

    step: int
    bytes_: int
    above_start_bytes: int
    parts: dict[str, int]
    op: str
    layer: str
    segment: tuple[str, ...]
    segment_bytes: int


def peak_of(trace: StepTrace, segments: Sequence[Sequence[str]] = ()) -> Peak | None:
    """Return the peak of a step; None for a step without rows.

    Args:
        trace: the recorded step.
        segments: names of the layers of each segment; the name of a nested layer starts with its parent's and a point.
    """
    row = trace.peak_row
    if row < 0:
        return None
    sizes = trace.by_category()[row].tolist()
    layer = trace.name(int(trace.layer[row]))
    segment = segment_of(layer, segments)
    fresh = [block for block in trace.new_blocks(row) if _inside(trace.name(block.layer), segment)]
    return Peak(
        trace.step,
        trace.peak_bytes,
        trace.peak_above_start_bytes,
        {name: part for name, part in zip(CATEGORIES, sizes, strict=True) if part},
        trace.name(int(trace.op[row])),
        layer,
        segment,
        sum(block.size_bytes for block in fresh),
    )


def representative_step(recorded: Sequence[Any]) -> Any:
    """Return the recorded step (``RecordedStep``) with the usual peak of a training; None without recorded steps.

    Some steps measured the accuracy or began an epoch. So the candidates are the steps with the most frequent peak
    above the start, or, where all peaks differ, those with nearly the highest peak. The candidate with the fewest
    allocations is returned.
    """
    times = Counter(step.peak_above_start_bytes for step in recorded)
    most = max(times.values(), default=0)
    usual = {above for above, count in times.items() if (count == most if most > 1 else above >= NEARLY * max(times))}
    candidates = [step for step in recorded if step.peak_above_start_bytes in usual]
    return min(candidates, key=lambda step: step.rows, default=None)


def segment_of(layer: str, segments: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the segment that contains a layer or a parent of it; empty where no segment does."""
    return next((tuple(segment) for segment in segments if _inside(layer, segment)), ())


def segment_label(segment: Sequence[str]) -> str:
    """Return ``Convolutional_0 to ReLu_2``."""
    return segment[0] if len(segment) == 1 else f"{segment[0]} to {segment[-1]}" if segment else "none"


def _inside(layer: str, segment: Sequence[str]) -> bool:
    return any(layer == name or layer.startswith(f"{name}.") for name in segment)


def peak_sentence(peak: Peak, *, single_segment: bool) -> str:
    """Return a sentence on what sets the peak; ``single_segment``: the rule keeps one segment at a time."""
    head = f"peak: {size(peak.above_start_bytes)} above the start of iteration {peak.step + 1}"
    where = f", {peak.op.removeprefix('aten::')} in {peak.layer}" if peak.layer else ""
    if not peak.segment:
        return f"{head}{where}"
    if not single_segment:
        return f"{head}{where}, segment {segment_label(peak.segment)}"
    share = peak.segment_bytes / max(1, peak.above_start_bytes)
    return (
        f"{head}{where}: set by segment {segment_label(peak.segment)} alone, {size(peak.segment_bytes)} ({share:.0%}); "
        "nothing else would lower it"
    ).replace("%", " %")
