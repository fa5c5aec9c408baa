"""Walkers as the sampler uses them, for a process of any size."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from memtui.core.page_set import PageSet
from memtui.probes.pages.pagetable.parallel_walk import SplitWalker
from memtui.probes.pages.pagetable.walk import Walker, blocks_of
from memtui.recording.sampler.__main__ import HIGHEST_PRIORITY

Cuts = tuple[int, ...]


@contextmanager
def split_walker() -> Iterator[SplitWalker]:
    """At the sampler's priority; closed and given up in the end."""
    readers, niceness = SplitWalker(Walker()), os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, HIGHEST_PRIORITY)
        yield readers
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
        readers.close()


def make_ready(readers: SplitWalker, pid: int) -> tuple[Cuts, PageSet]:
    """Have room for a process: where the parts begin in which it is read, and what is resident."""
    readers.first.reserve(blocks_of(pid) * 5 // 4)
    resident = readers.first.walk(pid, want_resident=True).resident
    assert resident is not None
    cuts = readers.cuts(resident)
    readers.prepare(1 + len(cuts), pages=resident.page_count)
    return cuts, resident
