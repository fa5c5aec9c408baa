"""How much time a program loses by being watched, estimated window by window. Pure.

Three things are lost. While a window is read the program is paused. After that its processors set the accessed bit of
every page that is accessed again, one page at a time, which takes CPU time on each of the CPUs that the program keeps
busy. And where the program leaves no CPU free, memtui runs in its place. The estimate leaves out what caches lose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from memtui.core.accessed_bits import SetCost
from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.samples import ProcessWindow

SPARE_CPUS = 0.5  # if the program leaves this much of a CPU, memtui runs on what is free


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine, as far as the estimate needs it.

    Attributes:
        cpus: how many CPUs there are.
        set_cost: what setting bits again takes; None: not measured.
    """

    cpus: int
    set_cost: SetCost | None


class Before(NamedTuple):
    """A process when a window began. Figures that were not measured are None."""

    minor_faults: int | None
    rss_bytes: int | None


@dataclass(frozen=True, slots=True)
class TargetLoss:
    """Time in ns that a program lost by one window.

    Attributes:
        paused_ns: it was paused.
        set_again_ns: it set accessed bits again; None where the cost of that could not be measured.
        displaced_ns: memtui ran in its place.
    """

    paused_ns: int
    set_again_ns: int | None
    displaced_ns: int

    @property
    def measured_ns(self) -> int:
        """The sum of the parts that were measured."""
        return self.paused_ns + (self.set_again_ns or 0) + self.displaced_ns

    @property
    def lost_ns(self) -> int | None:
        """The sum of all parts; None where one could not be measured."""
        return None if self.set_again_ns is None else self.measured_ns


def pages_set_again(window: ProcessWindow, before: Before | None) -> int:
    """Count the pages whose bit was clear when they were accessed.

    A fault sets the accessed bit of its page, so pages that faults brought and that are still there are subtracted: at
    least as many as RSS grew by. The faults alone say little: a training frees in every step what the step before
    allocated, and in a long window that is more than is ever there at once. A huge page has one bit.

    Args:
        window: of a process.
        before: the process when the window began; None: not known, so nothing is subtracted.
    """
    by_vma = (window.wss_bytes or 0) // PAGE_BYTES  # of a tracker that knows no pages
    touched = window.pages.touch_count if window.pages is not None else by_vma
    neighbours = (window.faulted_in_bytes or 0) // PAGE_BYTES  # mapped by faults of other pages
    fresh = neighbours
    if before is not None:
        faults = _growth(window.minor_faults, before.minor_faults)
        fresh = max(fresh, min(faults + neighbours, _growth(window.rss_bytes, before.rss_bytes) // PAGE_BYTES))
    return max(touched - fresh, 0)


def _growth(now: int | None, before: int | None) -> int:
    return 0 if now is None or before is None else max(now - before, 0)


def estimate(
    windows: Iterable[ProcessWindow],
    before: Mapping[int, Before],
    machine: Machine,
    *,
    paused_ns: int,
    own_cpu_ns: int,
    busy_cpus: float,
    clears: bool,
) -> TargetLoss:
    """Estimate what one window of a tree cost the tree.

    Args:
        windows: of its processes.
        before: the processes when the window began, by key.
        machine: this one.
        paused_ns: for how long any process was paused.
        own_cpu_ns: CPU time of memtui since the window before, without what it used while the tree was paused.
        busy_cpus: how many CPUs the tree keeps busy.
        clears: the tracker clears accessed bits.
    """
    set_again_ns: int | None = 0
    if clears:
        pages = [pages_set_again(window, before.get(window.process)) for window in windows]
        cost = machine.set_cost
        set_again_ns = None if cost is None else round(sum(map(cost.of_ns, pages)) / max(busy_cpus, 1.0))
    displaced_ns = max(own_cpu_ns, 0) if machine.cpus - busy_cpus < SPARE_CPUS else 0
    return TargetLoss(paused_ns, set_again_ns, displaced_ns)
