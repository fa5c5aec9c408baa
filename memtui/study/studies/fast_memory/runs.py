"""Misses and time by step of a run under a memory limit, from the samples of its cgroup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memtui.study.runs.messages import CgroupSample, MemoryResult

SETTLE = 0.3  # share of the time under the limit that is left out: first the kernel has to free memory
LEAST_STEPS = 2  # to be counted


@dataclass(frozen=True, slots=True)
class StepCounts:
    """Means over the counted steps of one run.

    Attributes:
        steps: number of steps.
        step_s: duration of a step.
        major_faults: major faults a step, by the counter of the cgroup.
        process_major_faults: the same from /proc/PID/stat; None where processes started or ended.
        swapped_in: pages a step that came from swap, readahead included; None without a counter.
        minor_faults: all other page faults of a step.
        room_bytes: part of the limit for anonymous and shared pages; None without a limit.
    """

    steps: float
    step_s: float
    major_faults: float
    process_major_faults: float | None
    swapped_in: float | None
    minor_faults: float
    room_bytes: float | None


def step_counts(memory: MemoryResult) -> StepCounts | None:
    """Return the counted steps of a run; None where too few came after the limit."""
    counted = _counted(memory.samples, memory.reached_ns)
    if len(counted) < 2 or counted[-1].steps - counted[0].steps < LEAST_STEPS:
        return None
    first, last = counted[0], counted[-1]
    steps = last.steps - first.steps

    def a_step(name: str) -> float | None:
        before, after = getattr(first.counts, name), getattr(last.counts, name)
        return None if before is None or after is None or after < before else float(after - before) / steps

    major, faults = a_step("major_faults") or 0.0, a_step("faults") or 0.0  # they are always counted, and never fall
    room = None
    if memory.limit_bytes is not None:
        others = [sample.counts.other_bytes for sample in counted]
        room = max(memory.limit_bytes - sum(others) / len(others), 0.0)
    return StepCounts(
        steps=steps,
        step_s=(last.time_ns - first.time_ns) / 1e9 / steps,
        major_faults=major,
        process_major_faults=a_step("process_major_faults"),
        swapped_in=a_step("swapped_in"),
        minor_faults=max(faults - major, 0.0),
        room_bytes=room,
    )


def _counted(samples: Sequence[CgroupSample], reached_ns: int | None) -> list[CgroupSample]:
    """Return the samples from the end of one step to the end of another, late enough after the limit was reached."""
    if reached_ns is None:
        return []
    under = [sample for sample in samples if sample.time_ns >= reached_ns]
    if not under:
        return []
    start_ns = reached_ns + SETTLE * (under[-1].time_ns - reached_ns)
    ends = [
        index
        for index, sample in enumerate(under)
        if index and sample.time_ns >= start_ns and sample.steps != under[index - 1].steps
    ]
    return under[ends[0] : ends[-1] + 1] if ends else []
