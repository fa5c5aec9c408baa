"""Walk and extract: which of the pages of a process were touched, per GiB of 4 KiB pages."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

from benchmarks.readers import Cuts, make_ready, split_walker
from benchmarks.run import Run
from benchmarks.table import Row, row
from benchmarks.targets import PATTERN_PAGES_PER_GIB, lacks_memory, needs_root, pattern, status_bytes
from memtui.probes.pages.pagetable.parallel_walk import SplitWalker

LIMIT_MS_PER_GIB = 0.8


def measure(run: Run) -> Iterator[Row]:
    """All pages of the target were touched: the walk finds as much as there can be."""
    needs_root()
    sizes, walks = ((0.25,), 10) if run.quick else ((2, 8), 60)
    with split_walker() as readers:
        for gib in sizes:
            yield from _rows(readers, gib, walks)


def _rows(readers: SplitWalker, gib: float, walks: int) -> Iterator[Row]:
    pages = int(gib * PATTERN_PAGES_PER_GIB)
    if reason := lacks_memory(gib):
        yield Row(f"{gib:g} GiB all touched", failed=reason)
        return
    with pattern("loop", "--pages", pages) as pid:
        rss_gib = status_bytes(pid, "VmRSS") / 2**30
        cuts, _ = make_ready(readers, pid)
        for what, want_resident in (("walk and extract", False), ("the same with resident pages", True)):
            times = [_walk(readers, pid, cuts, want_resident, pages) for _ in range(walks + 1)][1:]
            limit = None if want_resident else LIMIT_MS_PER_GIB
            what += f", {gib:g} GiB all touched, by {1 + len(cuts)} of the CPUs"
            yield row(what, [1e3 * t / rss_gib for t in times], "ms/GiB", limit)


def _walk(readers: SplitWalker, pid: int, cuts: Cuts, want_resident: bool, pages: int) -> float:
    """Seconds for one walk, the target standing still as in a window."""
    readers.open_ahead(pid, cuts)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.01)
    try:
        begin = time.perf_counter()
        walk, _ = readers.walk(pid, cuts, want_resident=want_resident, want_tables=False)
        taken = time.perf_counter() - begin
    finally:
        os.kill(pid, signal.SIGCONT)
    time.sleep(0.05)  # what DAMON cleared meanwhile is touched again
    if walk.pages.page_count < 0.9 * pages:
        raise RuntimeError(f"of {pages} touched pages the walk saw {walk.pages.page_count}")
    return taken
