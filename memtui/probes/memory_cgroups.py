"""Which memory cgroup accounts a process, in both versions of the interface."""

from __future__ import annotations

from pathlib import Path

from memtui.probes.process import PROC


def memory_mounts(proc: Path = PROC) -> dict[int, tuple[Path, str]]:
    """Where memory cgroups are mounted, by version: (folder, the cgroup at its root). See proc_pid_mountinfo(5)."""
    found: dict[int, tuple[Path, str]] = {}
    for line in text_of(proc / "self/mountinfo").splitlines():
        place, _, kind = line.partition(" - ")
        root, folder = place.split()[3:5]
        if kind.startswith("cgroup2 "):
            found.setdefault(2, (Path(folder), root))
        elif kind.startswith("cgroup ") and "memory" in kind.split()[2].split(","):
            found.setdefault(1, (Path(folder), root))
    return found


def memory_cgroup(proc: Path, pid: int, mounts: dict[int, tuple[Path, str]]) -> tuple[int, Path] | None:
    """(version, folder) of the cgroup that accounts a process's memory; None: none that can be seen, or the root's."""
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
        if folder != top:
            return version, folder
    return None


def upwards(folder: Path, top: Path) -> list[Path]:
    """A cgroup and those above it, without the root's, which has no limits."""
    return [f for f in (folder, *folder.parents) if top in f.parents]


def text_of(path: Path) -> str:
    """A small file of the kernel; empty when it cannot be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
