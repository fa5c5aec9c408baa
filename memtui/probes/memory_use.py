"""Resident memory of a process tree some times a second, however long its windows are: what grows is seen in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from memtui.core.procfs import PROC, rss_bytes_of, threads_run_on
from memtui.core.readings import MemoryUse
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

        Those that have ended do not count. ``others``: returns more of them, which count as long as they can be read:
        children that began a moment ago.
        """
        began_ns = time.monotonic_ns()
        if began_ns < self._due_ns:
            return ()
        began_cpu_ns = time.thread_time_ns()
        sizes = {pid: self._rss_bytes(pid) for pid in pids}
        more = {pid: size for pid in others() if (size := self._rss_bytes(pid)) is not None}
        ended_ns = time.monotonic_ns()
        self._due_ns = began_ns + max(EVERY_NS, REST * (time.thread_time_ns() - began_cpu_ns))
        read = {pid: size for pid, size in sizes.items() if size is not None}
        if not read or any(threads_run_on(pid, self._proc) for pid in sizes.keys() - read.keys()):
            return ()
        watched, rss_bytes = list(read), sum(read.values()) + sum(more.values())
        self._pss.poll(watched, more, rss_bytes)
        pss_bytes, rss_then_bytes = self._new_sums([*watched, *more])
        return (MemoryUse(ended_ns, len(watched) + len(more), rss_then_bytes or rss_bytes, pss_bytes),)

    def _rss_bytes(self, pid: int) -> int | None:
        """Return the RSS; None where the process or its first thread ended, or may not be read."""
        try:
            return rss_bytes_of(self._proc / str(pid)) or None  # the kernel shows it under the first thread
        except (OSError, ValueError, IndexError):
            return None

    def _new_sums(self, pids: list[int]) -> tuple[int | None, int | None]:
        """Return the sums of PSS and RSS, of which all were read since the last call; None where they were not.

        The RSS is that of the same readings: memory that was touched after ``rss_bytes_of`` would be in the PSS alone.
        """
        rollups = [self._pss.of(pid) for pid in pids]
        new = [rollup for rollup in rollups if rollup.pss_bytes is not None and (rollup.t_ns or 0) > self._pss_ns]
        if not new or len(new) < len(rollups):
            return None, None
        self._pss_ns = max(rollup.t_ns or 0 for rollup in new)
        sizes = [rollup.rss_bytes for rollup in new]
        return sum(rollup.pss_bytes or 0 for rollup in new), None if None in sizes else sum(size or 0 for size in sizes)
