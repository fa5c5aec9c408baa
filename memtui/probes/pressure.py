"""Whether the kernel might soon take memory away from a process."""

from __future__ import annotations

import re
from pathlib import Path

from memtui.probes.memory_cgroups import memory_cgroup, memory_mounts, text_of, upwards
from memtui.probes.process import PROC

_NEAR_SHARE = 0.1  # of memory left
# By version of cgroups: the limit, what is used of it, and what of that is files that nobody would miss.
_FILES = {
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    2: ("memory.max", "memory.current", "inactive_file"),
}


def reclaim_is_near(pid: int, proc: Path = PROC) -> bool:
    """Whether anonymous memory of this process might soon be swapped out: there is swap, and little memory is left."""
    memory = _numbers(proc / "meminfo")
    if not memory.get("SwapTotal"):
        return False
    if memory.get("MemAvailable", 0) < _NEAR_SHARE * memory.get("MemTotal", 0):
        return True
    mounts = memory_mounts(proc)
    found = memory_cgroup(proc, pid, mounts)
    if found is None:
        return False
    version, group = found
    return any(_is_nearly_full(g, *_FILES[version]) for g in upwards(group, mounts[version][0]))


def _is_nearly_full(group: Path, limit: str, used: str, spare: str) -> bool:
    try:
        most = int(text_of(group / limit))
        taken = int(text_of(group / used)) - _numbers(group / "memory.stat").get(spare, 0)
    except ValueError:  # "max", or not there
        return False
    return taken > (1 - _NEAR_SHARE) * most


def _numbers(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"^(\w+):?\s+(\d+)", text_of(path), re.M)}
