"""Memory that a program gave back with MADV_FREE, whose accessed bits the kernel takes.

Such pages stay resident until memory is short (madvise(2)). Touched and given back between two readings, they look as
if nobody had touched them. The kernel says in ``smaps_rollup`` how many of them a process has (``LazyFree``; a page
that is written again does not count). The kernel walks all page tables for that, and few programs use MADV_FREE. So a
process that had no such pages for a while is read seldom, and one whose mappings would be locked for long is not read.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path

from memtui.core.page_set import PageSet
from memtui.core.procfs import PROC, rss_bytes_of
from memtui.core.samples import MORE_TOUCHED
from memtui.core.units import size
from memtui.probes.pages.tracker import is_little
from memtui.probes.pss import LONGEST_NS, USUAL_NS_PER_BYTE

LEAST_BYTES = 1 << 20  # of a process that is looked at in every window
REST = 1000  # times its CPU time: until a process is looked at again that had none
LEAST_APART_NS = 2_000_000_000
STAYS_NS = 30_000_000_000  # after the last such page a process is read in every window: it may write them anew now
_LAZY_FREE = re.compile(rb"^LazyFree: *(\d+) kB$", re.MULTILINE)


class LazyFree:
    """Says of the windows of processes how much more may have been touched. Never raises."""

    def __init__(self, proc: Path = PROC) -> None:
        """``proc`` is where the process file system is mounted."""
        self._proc = proc
        self._due_ns: dict[int, int] = {}  # of processes that had none
        self._stays_ns: dict[int, int] = {}  # until when a process that had some is read in every window

    def doubt(self, pid: int, pages: PageSet) -> str:
        """Return a sentence about memory that is missing in a window of a process; empty where it is little."""
        lazy_bytes = self._bytes_of(pid)
        if is_little(lazy_bytes, pages):
            return ""
        return f"about {size(lazy_bytes)} {MORE_TOUCHED}: it was given back with MADV_FREE, which leaves no trace"

    def forget_others(self, pids: tuple[int, ...]) -> None:
        """Release what is kept of processes other than these."""
        for times in (self._due_ns, self._stays_ns):
            for pid in times.keys() - set(pids):
                del times[pid]

    def _bytes_of(self, pid: int) -> int:
        if time.monotonic_ns() < self._due_ns.get(pid, 0):
            return 0
        began_ns, folder, match = time.thread_time_ns(), self._proc / str(pid), None
        with suppress(OSError, ValueError, IndexError):
            if rss_bytes_of(folder) * USUAL_NS_PER_BYTE <= LONGEST_NS:
                match = _LAZY_FREE.search((folder / "smaps_rollup").read_bytes())
        lazy_bytes = int(match[1]) << 10 if match else 0
        rest_ns, now_ns = max(LEAST_APART_NS, REST * (time.thread_time_ns() - began_ns)), time.monotonic_ns()
        if lazy_bytes >= LEAST_BYTES:
            self._stays_ns[pid] = now_ns + STAYS_NS
        self._due_ns[pid] = 0 if now_ns < self._stays_ns.get(pid, 0) else now_ns + rest_ns
        return lazy_bytes
