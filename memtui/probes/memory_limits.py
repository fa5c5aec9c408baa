"""Which limit of memory leaves a process the least: that of the machine, or of a cgroup that it is in.

Slurm, Kubernetes, Docker and systemd all set limits of cgroups.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from memtui.core.procfs import PROC, is_exiting
from memtui.core.readings import MemoryLimit
from memtui.probes.memory_pressure import (
    LIMIT_FILES,
    USAGE_FILES,
    cgroup_name,
    limit_in,
    memory_cgroup,
    memory_mounts,
    number_in,
    numbers_of,
    text_of,
    upwards,
    visible_cgroups,
)

EVERY_NS = 2_000_000_000
_KIB = 1024
# Page cache of a cgroup and those below it. Files in memory (tmpfs, shared memory) are in none of these lists.
_CACHE = {1: ("total_active_file", "total_inactive_file"), 2: ("active_file", "inactive_file")}
# Since Linux 5.9 by kind of page; of a cgroup of version 1 with those below it where the name starts with "total".
_REFAULTS = ("workingset_refault_file", "workingset_refault_anon"), ("workingset_refault",)
_STALLS = re.compile(r"^(some|full) .*total=(\d+)", re.MULTILINE)  # https://docs.kernel.org/accounting/psi.html


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
        # A process that is ending has left its cgroup before it is gone.
        return () if limit is None or is_exiting(self._pid, self._proc) else (limit,)

    def read(self, now_ns: int) -> MemoryLimit | None:
        """Return the limit that leaves least; None where no limit can be read."""
        machine = numbers_of(self._proc / "meminfo")  # in KiB: proc_meminfo(5)
        swap_bytes = machine.get("SwapFree", 0) * _KIB
        groups = self._groups()
        limits = list(self._of_cgroups(groups, now_ns, swap_bytes))
        if machine.keys() >= {"MemTotal", "MemFree", "MemAvailable"}:
            total, free, available = (machine[name] * _KIB for name in ("MemTotal", "MemFree", "MemAvailable"))
            limits.append(MemoryLimit(now_ns, "", total, total - free, max(available - free, 0), swap_bytes))
        least = min(limits, key=lambda limit: limit.left_bytes, default=None)
        if least is None:
            return None
        refaults = least.refaults if least.cgroup else _refaults(numbers_of(self._proc / "vmstat"))
        least = replace(self._with_stalls(least), refaults=refaults, oom_score_adj=self._oom_score_adj())
        return self._with_high(least, groups)

    def _with_high(self, limit: MemoryLimit, groups: list[tuple[int, Path]]) -> MemoryLimit:
        """Return the limit with the ``memory.high`` that leaves least, which version 2 has."""
        boundaries = []
        for group in [folder for version, folder in groups if version == 2]:
            high_bytes, used_bytes = limit_in(group / "memory.high"), number_in(group / USAGE_FILES[2])
            if high_bytes is not None and used_bytes is not None:
                boundaries.append((high_bytes - used_bytes, group, high_bytes, used_bytes))
        if not boundaries:
            return limit
        _, group, high_bytes, used_bytes = min(boundaries)
        # The local ones are of this boundary alone: https://docs.kernel.org/admin-guide/cgroup-v2.html, since Linux 5.2
        events = numbers_of(group / "memory.events.local") or numbers_of(group / "memory.events")
        return replace(
            limit,
            high_cgroup=cgroup_name(group, self._mounts[2]),
            high_bytes=high_bytes,
            high_used_bytes=used_bytes,
            high_events=events.get("high"),
        )

    def _oom_score_adj(self) -> int | None:
        try:
            return int((self._proc / str(self._pid) / "oom_score_adj").read_bytes())
        except (OSError, ValueError):
            return None

    def _with_stalls(self, limit: MemoryLimit) -> MemoryLimit:
        """Return the limit with how long its tasks waited for memory; version 1 counts that of the machine alone."""
        places = [("", self._proc / "pressure/memory")]
        if limit.cgroup and 2 in self._mounts:
            top, root = self._mounts[2]
            places.insert(0, (limit.cgroup, top / Path(limit.cgroup).relative_to(root) / "memory.pressure"))
        for cgroup, path in places:
            total_us = dict(_STALLS.findall(text_of(path)))
            if "some" in total_us:
                full_us = total_us.get("full")
                return replace(
                    limit,
                    stall_cgroup=cgroup,
                    some_stall_ns=int(total_us["some"]) * 1000,
                    full_stall_ns=None if full_us is None else int(full_us) * 1000,
                )
        return limit

    def _of_cgroups(self, groups: list[tuple[int, Path]], now_ns: int, swap_bytes: int) -> Iterator[MemoryLimit]:
        """Yield the limits of the process's cgroup and those above; ``swap_bytes``: what is free in the machine."""
        for version, group in groups:
            limit_bytes = limit_in(group / LIMIT_FILES[version])
            if limit_bytes is None and not swap_bytes:
                continue
            used_bytes = number_in(group / USAGE_FILES[version])
            if swap_bytes:
                allowed_bytes = _swap_bytes(version, group, limit_bytes, used_bytes)
                swap_bytes = swap_bytes if allowed_bytes is None else min(swap_bytes, allowed_bytes)
            if limit_bytes is None or used_bytes is None:
                continue
            stat = numbers_of(group / "memory.stat")
            cache_bytes = min(sum(stat.get(name, 0) for name in _CACHE[version]), used_bytes)
            name = cgroup_name(group, self._mounts[version])
            refaults = _refaults(stat, "total_" if version == 1 else "")
            yield MemoryLimit(now_ns, name, limit_bytes, used_bytes, cache_bytes, swap_bytes, refaults=refaults)

    def _groups(self) -> list[tuple[int, Path]]:
        """Return (version, folder) of the process's cgroup and those above.

        The topmost is among them: in a container it has the limit of the container.
        """
        where = self._proc, self._pid, self._mounts
        accounted = memory_cgroup(*where) or next(visible_cgroups(*where), None)
        if accounted is None:
            return []
        version, group = accounted
        top = self._mounts[version][0]
        return [(version, folder) for folder in (*upwards(group, top), top)]


def _refaults(counts: dict[str, int], prefix: str = "") -> int | None:
    """Return how many pages were read that had been in memory before; None where the kernel does not count them."""
    for names in _REFAULTS:
        if counts.keys() >= (wanted := {f"{prefix}{name}" for name in names}):
            return sum(counts[name] for name in wanted)
    return None


def _swap_bytes(version: int, group: Path, limit_bytes: int | None, used_bytes: int | None) -> int | None:
    """Return how much more of a cgroup its limits allow to be swapped out; None: unlimited."""
    if version == 2:
        most, used = limit_in(group / "memory.swap.max"), number_in(group / "memory.swap.current")
        return None if most is None or used is None else max(most - used, 0)
    # These two are of memory and swap together: https://docs.kernel.org/admin-guide/cgroup-v1/memory.html
    both, both_used = limit_in(group / "memory.memsw.limit_in_bytes"), number_in(group / "memory.memsw.usage_in_bytes")
    if both is None or both_used is None or limit_bytes is None or used_bytes is None:
        return None
    return max(both - limit_bytes - (both_used - used_bytes), 0)
