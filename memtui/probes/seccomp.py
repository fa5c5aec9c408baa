"""Which processes run under a seccomp filter: a pause may end them.

After a pause the kernel resumes an interrupted sleep or wait with the system call ``restart_syscall``. A filter that
does not allow this call fails the sleep or kills the process.
"""

from __future__ import annotations

import os
from pathlib import Path

from memtui.core.procfs import PROC, read_status_file

_OFF = b"0"


class SyscallFilters:
    """Checks the threads of processes. A filter, once installed, stays for good, and new threads inherit it."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._filtered: set[int] = set()
        self._threads: dict[int, list[int]] = {}  # by pid: the threads that had no filter when checked
        self._turns: dict[int, int] = {}

    def judge(self, pid: int) -> bool:
        """Whether any thread of a process is in strict or filter mode.

        The first call checks all threads; later calls check the first one, new ones, and one of the others in turn.
        """
        if pid in self._filtered:
            return True
        unfiltered = self._threads.get(pid, [])
        try:
            # In a pause: a Path for each thread takes twice as long.
            threads = [int(name) for name in os.listdir(f"{self._proc}/{pid}/task")]  # noqa: PTH208
        except OSError:
            return False  # the process ended, which the caller will notice
        due = set(threads).difference(unfiltered) | {pid}
        if unfiltered:
            self._turns[pid] = turn = (self._turns.get(pid, 0) + 1) % len(unfiltered)
            due.add(unfiltered[turn])
        if any(self._has_filter(pid, thread) for thread in due):
            self.forget(pid)
            self._filtered.add(pid)
            return True
        self._threads[pid] = threads
        return False

    def forget(self, pid: int) -> None:
        """Drop a process that ended."""
        self._filtered.discard(pid)
        self._threads.pop(pid, None)
        self._turns.pop(pid, None)

    def _has_filter(self, pid: int, thread: int) -> bool:
        try:
            status = read_status_file(f"{self._proc}/{pid}/task/{thread}/status")
        except OSError:
            return False
        _, label, rest = status.partition(b"\nSeccomp:\t")
        return bool(label) and rest[:1] != _OFF
