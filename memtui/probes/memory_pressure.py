"""Whether the kernel might soon reclaim memory of a process, and which memory cgroup and limits the process has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from memtui.core.procfs import PROC


def memory_mounts(proc: Path = PROC) -> dict[int, tuple[Path, str]]:
    """Return by version where memory cgroups are mounted: (folder, the cgroup there). See proc_pid_mountinfo(5)."""
    mounts: dict[int, tuple[Path, str]] = {}
    for line in text_of(proc / "self/mountinfo").splitlines():
        mount, _, kind = line.partition(" - ")
        root, folder = mount.split()[3:5]
        if kind.startswith("cgroup2 "):
            mounts.setdefault(2, (Path(folder), root))
        elif kind.startswith("cgroup ") and "memory" in kind.split()[2].split(","):
            mounts.setdefault(1, (Path(folder), root))
    return mounts


def memory_cgroup(proc: Path, pid: int, mounts: dict[int, tuple[Path, str]]) -> tuple[int, Path] | None:
    """Return (version, folder) of the cgroup that accounts a process; None: the root cgroup, or it is not visible."""
    seen = visible_cgroups(proc, pid, mounts)
    return next(((version, folder) for version, folder in seen if folder != mounts[version][0]), None)


def visible_cgroups(proc: Path, pid: int, mounts: dict[int, tuple[Path, str]]) -> Iterator[tuple[int, Path]]:
    """Yield (version, folder) of the cgroup that accounts a process; the root's where no other one is visible."""
    for line in text_of(proc / str(pid) / "cgroup").splitlines():  # cgroups(7): number:controllers:path
        _, controllers, path = line.split(":", 2)
        version = 1 if "memory" in controllers.split(",") else 2 if not controllers else 0
        if version not in mounts:
            continue
        top, root = mounts[version]
        if not Path(path).is_relative_to(root):
            continue
        folder = top / Path(path).relative_to(root)
        # A group for which the controller is not switched on is accounted in the next one above.
        while folder != top and not (folder / "memory.stat").exists():
            folder = folder.parent
        yield version, folder


def upwards(folder: Path, top: Path) -> list[Path]:
    """Return a cgroup and those above it, without the root's, which has no limits."""
    return [f for f in (folder, *folder.parents) if top in f.parents]


def cgroup_name(folder: Path, mount: tuple[Path, str]) -> str:
    """Return the path of a cgroup as ``/proc/PID/cgroup`` has it. ``mount``: of its version, by ``memory_mounts``."""
    top, root = mount
    return str(Path(root) / folder.relative_to(top))


def text_of(path: Path) -> str:
    """Return a small file of the kernel; empty when it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def number_in(path: Path) -> int | None:
    """Return the number that is all of a file; None where the file is not there, or says "max"."""
    try:
        return int(text_of(path))
    except ValueError:
        return None


def limit_in(path: Path) -> int | None:
    """Return a limit of a cgroup in bytes; None: unlimited, or it cannot be read."""
    limit_bytes = number_in(path)
    return None if limit_bytes is None or limit_bytes >= _UNLIMITED_BYTES else limit_bytes


_UNLIMITED_BYTES = 1 << 60  # cgroup v1 has a large number where nothing is limited
_NEAR_SHARE = 0.1  # of memory left
LIMIT_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}
"""The file with the limit of a cgroup, by version of the interface."""
USAGE_FILES = {1: "memory.usage_in_bytes", 2: "memory.current"}
"""The file with what is accounted to a cgroup."""
_INACTIVE_FILES = {1: "total_inactive_file", 2: "inactive_file"}  # part of the usage, in memory.stat


def reclaim_is_near(pid: int, proc: Path = PROC) -> bool:
    """Whether anonymous memory of this process might soon be swapped out: there is swap, and little memory is left."""
    memory = numbers_of(proc / "meminfo")
    if not memory.get("SwapTotal"):
        return False
    if memory.get("MemAvailable", 0) < _NEAR_SHARE * memory.get("MemTotal", 0):
        return True
    mounts = memory_mounts(proc)
    cgroup = memory_cgroup(proc, pid, mounts)
    if cgroup is None:
        return False
    version, group = cgroup
    return any(_is_nearly_full(version, g) for g in upwards(group, mounts[version][0]))


def _is_nearly_full(version: int, group: Path) -> bool:
    limit_bytes, used_bytes = limit_in(group / LIMIT_FILES[version]), number_in(group / USAGE_FILES[version])
    if limit_bytes is None or used_bytes is None:
        return False
    spare_bytes = numbers_of(group / "memory.stat").get(_INACTIVE_FILES[version], 0)
    return used_bytes - spare_bytes > (1 - _NEAR_SHARE) * limit_bytes


def numbers_of(path: Path) -> dict[str, int]:
    """Return the numbers of a file of the kernel with lines "name number" or "name: number"; empty without it."""
    return {name: int(value) for name, value in re.findall(r"^(\w+):?\s+(\d+)", text_of(path), re.M)}
