"""Predicts for how long a window will pause a process, before the pause."""

from __future__ import annotations

import re
from dataclasses import dataclass

from memtui.core.procfs import read_status

# Before the first window: the most expensive way of visiting a mapping (AMD EPYC, docs/internals/cost.md). The size of
# the page tables gives an upper bound of the count of pages.
_MAPPING_NS = 4000
_WALKS = 2  # on a slower machine: a window walks the page tables to read, and once more to clear
_PAGES_PER_TABLE_KB = 512 // 4
_DECAY = 0.8  # per window: in a program with alternating phases the next window may take as long as the last but one


@dataclass(frozen=True, slots=True)
class _Size:
    """The quantities with which the time of a window grows."""

    mappings: int
    tables_kb: int


class HoldTimes:
    """Predictions for several processes, from the time of their last windows and their growth since.

    Attributes:
        in_part: what is recorded is a part of a window, and not an example: it may raise a prediction only.
    """

    def __init__(self, page_ns: int) -> None:
        """``page_ns``: time for each page before the first window, at most."""
        self.in_part, self._page_ns = False, page_ns
        self._size: dict[int, _Size] = {}
        self._took: dict[int, tuple[float, _Size]] = {}
        self._stopped: dict[int, float] = {}
        self._walk_ns: dict[int, int] = {}  # before the first window

    def expected_ns(self, pid: int, mappings: int | None, status: str | None = None) -> int:
        """Return about how long the next window of a process takes.

        Args:
            pid: of the process.
            mappings: their count; None: not known.
            status: its /proc/PID/status, where the caller has just read it.
        """
        now = self._size[pid] = _Size(mappings or 0, page_tables_kb(pid, status))
        if pid not in self._took:
            usual_ns = now.tables_kb * _PAGES_PER_TABLE_KB * self._page_ns + now.mappings * _MAPPING_NS
            return max(usual_ns, _WALKS * self._walk_ns.get(pid, 0))
        took_ns, then = self._took[pid]
        grown = (now.mappings / max(then.mappings, 1), now.tables_kb / max(then.tables_kb, 1))
        return int(took_ns * max(1.0, *grown))

    def expected_stopped_ns(self, pid: int) -> int:
        """Return about how long the next pause of a process lasts after all of its threads have stopped."""
        return int(self._stopped.get(pid, 0))

    def record_walk(self, pid: int, walk_ns: int) -> None:
        """Record how long walking the page tables of a process took, before its first window."""
        self._walk_ns[pid] = walk_ns

    def record(self, pid: int, took_ns: int, stopped_ns: int = 0) -> None:
        """Record a window, after a call of ``expected_ns`` for it.

        Args:
            pid: of the process.
            took_ns: how long the window took.
            stopped_ns: how much of that was left when all threads had stopped; 0: the process was not paused.
        """
        before_ns, _ = self._took.get(pid, (0.0, None))
        decay = 1.0 if self.in_part else _DECAY
        if not self.in_part or took_ns > before_ns:
            self._took[pid] = max(took_ns, decay * before_ns), self._size.get(pid, _Size(0, 0))
        self._stopped[pid] = max(stopped_ns, decay * self._stopped.get(pid, 0.0))

    def record_failure(self, pid: int) -> None:
        """Record that threads of a process did not stop in time: the next time, they have longer."""
        self._stopped[pid] = _DECAY * self._stopped.get(pid, 0.0)

    def forget(self, pid: int) -> None:
        """Drop a process that ended."""
        self._size.pop(pid, None)
        self._took.pop(pid, None)
        self._stopped.pop(pid, None)
        self._walk_ns.pop(pid, None)


def page_tables_kb(pid: int, status: str | None = None) -> int:
    """Return the size of all page tables of a process (each has 4 KiB and maps 2 MiB); 0: the process has ended.

    ``status``: its /proc/PID/status, where the caller has just read it.
    """
    try:
        match = re.search(r"^VmPTE:\s*(\d+) kB", read_status(pid) if status is None else status, re.M)
    except OSError:
        match = None
    return int(match[1]) if match else 0
