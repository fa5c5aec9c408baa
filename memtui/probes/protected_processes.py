"""Which processes must never be paused: memtui itself, and the processes that it needs.

A target can become one of these after it was chosen: a watched shell starts another memtui, or a watched terminal
multiplexer is the one from which this memtui was started. So every pause is preceded by a check.
"""

from __future__ import annotations

import os
from pathlib import Path

from memtui.core.procfs import PROC, read_stat

_MASTERS = ("/dev/ptmx", "/dev/pts/ptmx")
_PTS_MAJORS = range(136, 144)  # Documentation/admin-guide/devices.txt: Unix98 pseudo-terminals


class ProtectedProcesses:
    """Knows the processes that must not be paused, and why."""

    def __init__(self, pid: int | None = None, proc: Path = PROC) -> None:
        """``pid``: the process to protect; this one when not given."""
        self._pid, self._proc = pid or os.getpid(), proc
        self._above: dict[int, str] = {}
        self._terminals: set[int] = set()  # the pseudo-terminals that memtui was started from
        self._owners: dict[int, tuple[int, bool]] = {}  # pid -> (start time, whether it has the master of a terminal)
        self._pipe = _link(proc / str(self._pid) / "fd" / "1")

    def refresh(self) -> None:
        """Read the ancestors of the protected process. Call this before the first of a round of pauses."""
        self._above = {self._pid: "is memtui itself"}
        try:
            stat = read_stat(self._pid, self._proc)
            while stat.parent_pid > 0:
                self._above[stat.parent_pid] = "started this memtui, or what started it"
                stat = read_stat(stat.parent_pid, self._proc)
                if _is_pts(stat.terminal):
                    self._terminals.add(_pts_index(stat.terminal))
                    self._above.setdefault(stat.session, "leads the terminal session of this memtui")
        except ProcessLookupError:
            pass  # an ancestor ended meanwhile; the next call finds the new parent of its children

    def objection(self, pid: int, start_ticks: int = 0) -> str:
        """Return why a process must not be paused; an empty text when it may be."""
        if why := self._above.get(pid):
            return f"pid {pid} {why}: holding it would hold memtui"
        if self._pipe.startswith("pipe:") and _link(self._proc / str(pid) / "fd" / "0") == self._pipe:
            return f"pid {pid} is memtui's recorder"
        if self._owns_terminal(pid, start_ticks):
            return f"pid {pid} owns the terminal of this memtui"
        return ""

    def _owns_terminal(self, pid: int, start_ticks: int) -> bool:
        """Check each process once: the master of a pseudo-terminal is opened when the terminal is created."""
        if not self._terminals:
            return False
        cached = self._owners.get(pid)
        if cached is None or cached[0] != start_ticks:
            cached = self._owners[pid] = start_ticks, _holds_master(self._proc / str(pid), self._terminals)
        return cached[1]

    def forget(self, pid: int) -> None:
        """Drop a process that ended, or that executed another program."""
        self._owners.pop(pid, None)


def _is_pts(device: int) -> bool:
    return device >> 8 & 0xFFF in _PTS_MAJORS


def _pts_index(device: int) -> int:
    minor = device & 0xFF | device >> 12 & 0xFFF00
    return ((device >> 8 & 0xFFF) - _PTS_MAJORS[0]) * (1 << 20) + minor


def _holds_master(folder: Path, terminals: set[int]) -> bool:
    try:
        links = list((folder / "fd").iterdir())
    except OSError:
        return False
    for link in links:
        if _link(link) in _MASTERS:
            try:
                lines = (folder / "fdinfo" / link.name).read_text().splitlines()
            except OSError:
                continue
            if any(f"tty-index:\t{index}" in lines for index in terminals):
                return True
    return False


def _link(path: Path) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 (pipe:[1] is not a path)
    except OSError:
        return ""
