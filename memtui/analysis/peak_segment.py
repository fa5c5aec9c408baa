"""Where the memory of a training iteration is at its fullest, from what was recorded of it. Pure; knows no torch."""

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
        bytes_: all that is known to be held.
        above_start_bytes: of it, what was not there when the step began.
        parts: bytes by category.
        op, layer: what allocated last.
        segment: the layers of the segment that this was in, empty where it was in none.
        segment_bytes: what was allocated in those layers since the step began, and was held then.
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
    """Return the peak of a step; None of one without rows.

    Args:
        trace: the recorded step.
        segments: names of the layers of each; layers inside of a layer begin with its name and a point.
    """
    row = trace.peak_row
    if row < 0:
        return None
    held = trace.by_category()[row].tolist()
    layer = trace.name(int(trace.layer[row]))
    segment = segment_of(layer, segments)
    fresh = [block for block in trace.made_by(row) if _inside(trace.name(block.layer), segment)]
    return Peak(
        trace.step,
        trace.peak_bytes,
        trace.peak_above_start_bytes,
        {name: part for name, part in zip(CATEGORIES, held, strict=True) if part},
        trace.name(int(trace.op[row])),
        layer,
        segment,
        sum(block.size_bytes for block in fresh),
    )


def telling(recorded: Sequence[Any]) -> Any:
    """Return the recorded step (``RecordedStep``) that says where learning needs its memory; None without any.

    In some the accuracy was measured, or an epoch began. So it is one with the peak above the start that most of them
    have; where no two have the same, one with nearly the highest. Of those, the one with the fewest allocations.
    """
    times = Counter(step.peak_above_start_bytes for step in recorded)
    most = max(times.values(), default=0)
    usual = {above for above, count in times.items() if (count == most if most > 1 else above >= NEARLY * max(times))}
    found = [step for step in recorded if step.peak_above_start_bytes in usual]
    return min(found, key=lambda step: step.rows, default=None)


def segment_of(layer: str, segments: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the segment that a layer is in, or inside of a layer of; empty where it is in none."""
    return next((tuple(one) for one in segments if _inside(layer, one)), ())


def segment_words(segment: Sequence[str]) -> str:
    """Return ``Convolutional_0 to ReLu_2``."""
    return segment[0] if len(segment) == 1 else f"{segment[0]} to {segment[-1]}" if segment else "none"


def _inside(layer: str, segment: Sequence[str]) -> bool:
    return any(layer == name or layer.startswith(f"{name}.") for name in segment)


def peak_sentence(peak: Peak, *, one_segment: bool) -> str:
    """Return what sets the peak, and what that means for a rule that keeps ``one_segment`` at a time."""
    head = f"peak: {size(peak.above_start_bytes)} above the start of iteration {peak.step + 1}"
    where = f", {peak.op.removeprefix('aten::')} in {peak.layer}" if peak.layer else ""
    if not peak.segment:
        return f"{head}{where}"
    if not one_segment:
        return f"{head}{where}, segment {segment_words(peak.segment)}"
    share = peak.segment_bytes / max(1, peak.above_start_bytes)
    return (
        f"{head}{where}: set by segment {segment_words(peak.segment)} alone, {size(peak.segment_bytes)} ({share:.0%}); "
        "nothing else would lower it"
    ).replace("%", " %")
