"""Who else cleared accessed bits in a window, or moved pages, according to the kernel's counters.

Reclaim (kswapd, a memory limit, MGLRU) clears the accessed bits of pages that it scans; swap-out and demotion remove
pages; khugepaged and splitting change the size of pages; NUMA balancing unmaps pages to see which CPU accesses them.
The kernel counts all of these, in ``memory.stat`` of the memory cgroup (version 2:
Documentation/admin-guide/cgroup-v2.rst), or only for the whole machine in ``/proc/vmstat``. Version 1 counts how often
a limit was hit (``memory.failcnt``).

``thp_split_pmd`` does not count: a program causes it itself when it unmaps a part of a huge page. Writers to
``clear_refs`` are not seen here (see ``competing_observers.py``), nor MGLRU's aging on a command through debugfs.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from memtui.core.procfs import PROC
from memtui.core.samples import IN_CGROUP, LIMIT, RECLAIM
from memtui.probes.competing_observers import CompetingObservers
from memtui.probes.memory_pressure import memory_cgroup, memory_mounts, text_of, upwards
from memtui.probes.swap_areas import swap_areas

SWAP, COLLAPSE, SPLIT, NUMA = "swap-out", "khugepaged", "huge pages split", "NUMA balancing"
ON_MACHINE = "on this machine"
SWAPPED = "its pages were swapped out"
_CAUSES = {
    b"pswpout": SWAP,
    b"zswpout": SWAP,
    b"thp_swpout": SWAP,
    b"thp_collapse_alloc": COLLAPSE,
    b"thp_split_page": SPLIT,
    b"numa_pte_updates": NUMA,
}  # every other counter belongs to reclaim
_ORDER = (RECLAIM, SWAP, COLLAPSE, SPLIT, NUMA)
_COUNTERS = re.compile(rb"^(pgscan\w*|pgsteal\w*|pgdemote_\w+|%s) (\d+)$" % b"|".join(_CAUSES), re.MULTILINE)
_SINGLE_NUMBER = re.compile(rb"^()(\d+)$", re.MULTILINE)
_SWAPPED_OUT = re.compile(rb"^(VmSwap):\s*(\d+) kB$", re.MULTILINE)
_FIND_EVERY_NS = 5_000_000_000  # processes change their cgroup seldom, and swap is seldom added
_READ_BYTES = 1 << 16


@dataclass(slots=True, eq=False)
class _Source:
    """An open file of counters, and their last values."""

    descriptor: int
    last: dict[bytes, int] = field(default_factory=dict)

    def rises(self, pattern: re.Pattern[bytes]) -> list[bytes]:
        """Return the names of the counters that rose since the last call; none in the first, or without the file."""
        try:
            counters = pattern.findall(os.pread(self.descriptor, _READ_BYTES, 0))
        except OSError:
            return []
        last, self.last = self.last, {name: int(number) for name, number in counters}
        return [name for name, number in self.last.items() if number > last.get(name, number)]


class DisturbanceProbe:
    """Compares counters from window to window. Never raises; not to be called while the target is paused."""

    def __init__(self, proc: Path = PROC) -> None:
        """``proc`` is where the process file system is mounted."""
        self._proc = proc
        self._mounts = memory_mounts(proc)
        self._machine: dict[Path, _Source] = {}  # vmstat
        self._cgroups: dict[Path, _Source] = {}  # memory.stat of version 2
        self._limits: dict[Path, _Source] = {}  # memory.failcnt of version 1
        self._swap: dict[Path, _Source] = {}  # status of the processes, where there is swap
        self._balancing = False
        self._competing = CompetingObservers(proc)
        self._pids: tuple[int, ...] = ()
        self._find_due_ns = 0
        _keep(self._machine, {proc / "vmstat"})

    def read(self, pids: Iterable[int]) -> str:
        """Return what disturbed these processes since the last call; an empty text when nothing did."""
        now_ns, pids = time.monotonic_ns(), tuple(pids)
        if pids != self._pids or now_ns >= self._find_due_ns:
            self._find_due_ns, self._pids = now_ns + _FIND_EVERY_NS, pids
            self._find(pids)
        return "; ".join((*self._counted(), *self._competing.poll(pids, now_ns)))

    def _counted(self) -> Iterator[str]:
        where: dict[str, str] = {}
        counted_by_cgroups: set[str] = set()
        for source in self._cgroups.values():
            where |= {_CAUSES.get(name, RECLAIM): IN_CGROUP for name in source.rises(_COUNTERS)}
            counted_by_cgroups |= {_CAUSES.get(name, RECLAIM) for name in source.last}
        for source in self._machine.values():
            causes = {_CAUSES.get(name, RECLAIM) for name in source.rises(_COUNTERS)} - counted_by_cgroups
            where |= dict.fromkeys(causes, ON_MACHINE)
        if not self._balancing:  # mbind and others count there, too
            where.pop(NUMA, None)
        # Lists, because every source has to be read: its next rise counts from here.
        limited = [source.rises(_SINGLE_NUMBER) for source in self._limits.values()]
        swapped = [source.rises(_SWAPPED_OUT) for source in self._swap.values()]
        if any(limited) and where.pop(RECLAIM, ""):
            yield LIMIT
        yield from (f"{cause} {where[cause]}" for cause in _ORDER if cause in where)
        if any(swapped):
            yield SWAPPED

    def _find(self, pids: tuple[int, ...]) -> None:
        """Find the files that count for these processes; files that are open stay open, with their last values."""
        stats, limits = set(), set()
        for version, folder in {cgroup for pid in pids if (cgroup := memory_cgroup(self._proc, pid, self._mounts))}:
            if version == 2:
                stats.add(folder / "memory.stat")
            else:  # the limit that is hit may be that of a group further up
                limits |= {group / "memory.failcnt" for group in upwards(folder, self._mounts[1][0])}
        _keep(self._cgroups, stats)
        _keep(self._limits, limits)
        _keep(self._swap, {self._proc / str(pid) / "status" for pid in pids} if swap_areas(self._proc) else set())
        self._balancing = text_of(self._proc / "sys/kernel/numa_balancing").strip() not in ("", "0")

    def close(self) -> None:
        """Close the files."""
        for sources in (self._machine, self._cgroups, self._limits, self._swap):
            _keep(sources, set())


def _keep(sources: dict[Path, _Source], wanted: set[Path]) -> None:
    """Close the files that are no longer wanted and open the new ones; a file that cannot be opened is left out."""
    for path in sources.keys() - wanted:
        os.close(sources.pop(path).descriptor)
    for path in wanted - sources.keys():
        try:
            sources[path] = _Source(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            continue
