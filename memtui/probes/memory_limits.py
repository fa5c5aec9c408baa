"""Which limit of memory leaves a process the least: that of the machine, or of a cgroup that it is in.

Slurm, Kubernetes, Docker and systemd all set limits of cgroups.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from memtui.core.procfs import PROC
from memtui.core.samples import MemoryLimit
from memtui.probes.memory_pressure import (
    LIMIT_FILES,
    memory_mounts,
    numbers_of,
    text_of,
    upwards,
    visible_cgroups,
)

EVERY_NS = 2_000_000_000
_KIB = 1024
_USAGE_FILES = {1: "memory.usage_in_bytes", 2: "memory.current"}
# Page cache of a cgroup and those below it. Files in memory (tmpfs, shared memory) are in none of these lists.
_CACHE = {1: ("total_active_file", "total_inactive_file"), 2: ("active_file", "inactive_file")}
_UNLIMITED_BYTES = 1 << 60  # cgroup v1 has a large number where nothing is limited


class MemoryLimits:
    """Reads the limits of one process now and then."""

    def __init__(self, pid: int, proc: Path = PROC) -> None:
        """``proc``: where the process file system is mounted."""
        self._pid, self._proc = pid, proc
        self._mounts = memory_mounts(proc)
        self._due_ns = 0

    def poll(self, now_ns: int) -> tuple[MemoryLimit, ...]:
        """Return the limit that leaves least; nothing where that is not due, or cannot be read."""
        if now_ns < self._due_ns:
            return ()
        self._due_ns = now_ns + EVERY_NS
        limit = self.read(now_ns)
        return () if limit is None else (limit,)

    def read(self, now_ns: int) -> MemoryLimit | None:
        """Return the limit that leaves least; None where no limit can be read."""
        machine = numbers_of(self._proc / "meminfo")  # in KiB: proc_meminfo(5)
        swap_bytes = machine.get("SwapFree", 0) * _KIB
        limits = list(self._of_cgroups(now_ns, swap_bytes))
        if machine.keys() >= {"MemTotal", "MemFree", "MemAvailable"}:
            total, free, available = (machine[name] * _KIB for name in ("MemTotal", "MemFree", "MemAvailable"))
            limits.append(MemoryLimit(now_ns, "", total, total - free, max(available - free, 0), swap_bytes))
        return min(limits, key=lambda limit: limit.left_bytes, default=None)

    def _of_cgroups(self, now_ns: int, swap_bytes: int) -> Iterator[MemoryLimit]:
        """Yield the limits of the process's cgroup and those above; ``swap_bytes``: what is free in the machine."""
        for version, group in self._groups():
            limit_bytes = _limit(group / LIMIT_FILES[version])
            if limit_bytes is None and not swap_bytes:
                continue
            used_bytes = _number(group / _USAGE_FILES[version])
            if swap_bytes:
                swap_bytes = min(swap_bytes, _swap_bytes(version, group, limit_bytes, used_bytes))
            if limit_bytes is None or used_bytes is None:
                continue
            stat = numbers_of(group / "memory.stat")
            cache_bytes = min(sum(stat.get(name, 0) for name in _CACHE[version]), used_bytes)
            top, root = self._mounts[version]
            name = str(Path(root) / group.relative_to(top))
            yield MemoryLimit(now_ns, name, limit_bytes, used_bytes, cache_bytes, swap_bytes)

    def _groups(self) -> list[tuple[int, Path]]:
        """Return (version, folder) of the process's cgroup and those above.

        The topmost is among them: in a container it has the limit of the container.
        """
        seen = list(visible_cgroups(self._proc, self._pid, self._mounts))
        below = [(version, group) for version, group in seen if group != self._mounts[version][0]]
        version, group = next(iter(below or seen), (0, Path()))
        if not version:
            return []
        top = self._mounts[version][0]
        return [(version, folder) for folder in (*upwards(group, top), top)]


def _swap_bytes(version: int, group: Path, limit_bytes: int | None, used_bytes: int | None) -> int:
    """Return how much more of a cgroup its limits allow to be swapped out."""
    if version == 2:
        most, used = _limit(group / "memory.swap.max"), _number(group / "memory.swap.current")
        return _UNLIMITED_BYTES if most is None or used is None else max(most - used, 0)
    # These two are of memory and swap together: https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
    both, both_used = _limit(group / "memory.memsw.limit_in_bytes"), _number(group / "memory.memsw.usage_in_bytes")
    if both is None or both_used is None or limit_bytes is None or used_bytes is None:
        return _UNLIMITED_BYTES
    return max(both - limit_bytes - (both_used - used_bytes), 0)


def _limit(path: Path) -> int | None:
    """Return a limit; None where there is none."""
    limit_bytes = _number(path)
    return None if limit_bytes is None or limit_bytes >= _UNLIMITED_BYTES else limit_bytes


def _number(path: Path) -> int | None:
    """Return the number that is all of a file; None where the file is not there, or says "max"."""
    try:
        return int(text_of(path))
    except ValueError:
        return None
