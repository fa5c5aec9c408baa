"""What a run under a memory limit came to, from the marks that its worker noted: misses and time by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memtui.study.runs.messages import LimitMark, MemoryResult

SETTLE = 0.3  # of the time under the limit is left out: first the kernel has to make room
LEAST_STEPS = 2  # that are counted


@dataclass(frozen=True, slots=True)
class Seen:
    """Means over the counted steps of one run.

    Attributes:
        steps: how many.
        step_s: how long one took.
        major_faults: a step, as the cgroup counts them.
        process_major_faults: the same from /proc/PID/stat; None where processes came or went.
        swapped_in: pages a step that came from swap, readahead included; None where nobody counts them.
        minor_faults: all other page faults of a step.
        room_bytes: what the limit leaves for anonymous and shared pages; None without a limit.
    """

    steps: float
    step_s: float
    major_faults: float
    process_major_faults: float | None
    swapped_in: float | None
    minor_faults: float
    room_bytes: float | None


def seen(memory: MemoryResult) -> Seen | None:
    """Return the counted steps of a run; None where too few came after the limit."""
    counted = _counted(memory.marks, memory.reached_ns)
    if len(counted) < 2 or counted[-1].steps - counted[0].steps < LEAST_STEPS:
        return None
    first, last = counted[0], counted[-1]
    steps = last.steps - first.steps

    def a_step(name: str) -> float | None:
        before, after = getattr(first.counts, name), getattr(last.counts, name)
        return None if before is None or after is None or after < before else float(after - before) / steps

    major, faults = a_step("major_faults") or 0.0, a_step("faults") or 0.0  # they are always told, and never fall
    room = None
    if memory.limit_bytes is not None:
        others = [mark.counts.other_bytes for mark in counted]
        room = max(memory.limit_bytes - sum(others) / len(others), 0.0)
    return Seen(
        steps=steps,
        step_s=(last.at_ns - first.at_ns) / 1e9 / steps,
        major_faults=major,
        process_major_faults=a_step("process_major_faults"),
        swapped_in=a_step("swapped_in"),
        minor_faults=max(faults - major, 0.0),
        room_bytes=room,
    )


def _counted(marks: Sequence[LimitMark], reached_ns: int | None) -> list[LimitMark]:
    """Return the marks from the end of one step to the end of another, late enough after the limit was reached."""
    if reached_ns is None:
        return []
    under = [mark for mark in marks if mark.at_ns >= reached_ns]
    if not under:
        return []
    begin_ns = reached_ns + SETTLE * (under[-1].at_ns - reached_ns)
    ends = [at for at, mark in enumerate(under) if at and mark.at_ns >= begin_ns and mark.steps != under[at - 1].steps]
    return under[ends[0] : ends[-1] + 1] if ends else []
