"""Resident memory of a process tree some times a second, however long its windows are: what grows is seen in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from memtui.core.procfs import PROC, rss_bytes_of
from memtui.core.samples import MemoryUse
from memtui.probes.pss import PssProbe

EVERY_NS = 500_000_000
REST = 1000  # times what reading took: at most 0.1 % of a CPU, of a tree of thousands of processes, too


class MemoryUseProbe:
    """Reads the memory of a tree now and then."""

    def __init__(self, pss: PssProbe, proc: Path = PROC) -> None:
        """``pss``: read as often as it allows; ``proc``: where the process file system is mounted."""
        self._pss, self._proc = pss, proc
        self._due_ns = 0
        self._pss_ns = 0  # when the PSS was read that was given last

    def poll(self, pids: Iterable[int], others: Callable[[], Iterable[int]] = tuple) -> tuple[MemoryUse, ...]:
        """Return the sums over some processes; nothing where a reading is not due, or one of ``pids`` may not be read.

        ``others``: returns more of them, which count as long as they can be read: children that began a moment ago.
        """
        began_ns = time.monotonic_ns()
        if began_ns < self._due_ns:
            return ()
        began_cpu_ns = time.thread_time_ns()
        watched = list(pids)
        sizes = [self._rss_bytes(pid) for pid in watched]
        more = {pid: size for pid in others() if (size := self._rss_bytes(pid)) is not None}
        ended_ns = time.monotonic_ns()
        self._due_ns = began_ns + max(EVERY_NS, REST * (time.thread_time_ns() - began_cpu_ns))
        read = [size for size in sizes if size is not None]
        if not read or len(read) < len(watched):
            return ()
        rss_bytes = sum(read) + sum(more.values())
        self._pss.poll(watched, more, rss_bytes)
        return (MemoryUse(ended_ns, len(watched) + len(more), rss_bytes, self._new_pss_bytes([*watched, *more])),)

    def _rss_bytes(self, pid: int) -> int | None:
        """Return the RSS; None where the process or its first thread ended, or may not be read."""
        try:
            return rss_bytes_of(self._proc / str(pid)) or None  # the kernel shows it under the first thread
        except (OSError, ValueError, IndexError):
            return None

    def _new_pss_bytes(self, pids: list[int]) -> int | None:
        """Return the sum of the PSS, of which all was read since the last call; None where it was not."""
        parts = [(rollup.pss_bytes, rollup.t_ns) for rollup in map(self._pss.of, pids)]
        sizes = [pss_bytes for pss_bytes, t_ns in parts if pss_bytes is not None and (t_ns or 0) > self._pss_ns]
        if not sizes or len(sizes) < len(parts):
            return None
        self._pss_ns = max(t_ns or 0 for _, t_ns in parts)
        return sum(sizes)
