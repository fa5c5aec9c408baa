"""Walk and extract: which of the pages of a process were touched, per GiB of 4 KiB pages."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

from benchmarks.run import Run
from benchmarks.table import Row, row
from benchmarks.targets import PATTERN_PAGES_PER_GIB, needs_root, pattern, status_bytes
from memtui.probes.pages.walk import Walker, blocks_of
from memtui.sampler import HIGHEST_PRIORITY

LIMIT_MS_PER_GIB = 0.8


def measure(run: Run) -> Iterator[Row]:
    """All pages of the target were touched: the walk finds as much as there can be."""
    needs_root()
    gib, walks = (0.25, 10) if run.quick else (2, 60)
    pages = int(gib * PATTERN_PAGES_PER_GIB)
    with pattern("loop", "--pages", pages) as pid:
        rss_gib = status_bytes(pid, "VmRSS") / 2**30
        walker, niceness = Walker(), os.getpriority(os.PRIO_PROCESS, 0)
        try:
            os.setpriority(os.PRIO_PROCESS, 0, HIGHEST_PRIORITY)
            walker.reserve(blocks_of(pid) * 5 // 4)
            for what, want_resident in (("walk and extract", False), ("the same with resident pages", True)):
                times = [_walk(walker, pid, want_resident, pages) for _ in range(walks + 1)][1:]
                limit = None if want_resident else LIMIT_MS_PER_GIB
                yield row(f"{what}, {gib:g} GiB all touched", [1e3 * t / rss_gib for t in times], "ms/GiB", limit)
        finally:
            os.setpriority(os.PRIO_PROCESS, 0, niceness)
            walker.close()


def _walk(walker: Walker, pid: int, want_resident: bool, pages: int) -> float:
    """Seconds for one walk, the target standing still as in a window."""
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.01)
    try:
        begin = time.perf_counter()
        walk = walker.walk(pid, want_resident=want_resident)
        taken = time.perf_counter() - begin
    finally:
        os.kill(pid, signal.SIGCONT)
    time.sleep(0.05)  # what DAMON cleared meanwhile is touched again
    if walk.pages.page_count < 0.9 * pages:
        raise RuntimeError(f"of {pages} touched pages the walk saw {walk.pages.page_count}")
    return taken
