"""Which processes must never be paused: memtui itself, and whatever it cannot run without.

A target can come to hold memtui after it was chosen: a shell that is watched starts another memtui, a watched terminal
multiplexer is the one this memtui was started from. So it is asked before every pause, not once.
"""

from __future__ import annotations

import os
from pathlib import Path

from memtui.core.procfs import PROC, read_stat

_MASTERS = ("/dev/ptmx", "/dev/pts/ptmx")
_PTS_MAJORS = range(136, 144)  # Documentation/admin-guide/devices.txt: Unix98 pseudo-terminals


class ProtectedProcesses:
    """Says of a process why it must run on."""

    def __init__(self, pid: int | None = None, proc: Path = PROC) -> None:
        """``pid``: the process to be guarded, this one when not given."""
        self._pid, self._proc = pid or os.getpid(), proc
        self._above: dict[int, str] = {}
        self._terminals: set[int] = set()  # the pseudo-terminals that memtui was started from
        self._owners: dict[int, tuple[int, bool]] = {}  # whether a process (pid, start) holds its other end
        self._pipe = _link(proc / str(self._pid) / "fd" / "1")

    def refresh(self) -> None:
        """See who is above this process now. Call it before the first of a round of pauses."""
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
            pass  # one of them ended meanwhile; whoever took its children is found the next time

    def objection(self, pid: int, start_ticks: int = 0) -> str:
        """Return why it must not be paused; empty when it may be."""
        if why := self._above.get(pid):
            return f"pid {pid} {why}: holding it would hold memtui"
        if self._pipe.startswith("pipe:") and _link(self._proc / str(pid) / "fd" / "0") == self._pipe:
            return f"pid {pid} is memtui's recorder"
        if self._owns_terminal(pid, start_ticks):
            return f"pid {pid} owns the terminal of this memtui"
        return ""

    def _owns_terminal(self, pid: int, start_ticks: int) -> bool:
        """Look once per process: the other end of a pseudo-terminal is opened when the terminal is made."""
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
