"""Finds other observers that clear the accessed bits of the same pages, so that accessed pages look idle.

DAMON shows in sysfs whether it runs. Programs are searched by name, once a second, because the kernel does not count
writes to ``clear_refs``. A memtui has ``clear_refs`` of its targets open, which is proof; ``wss`` (brendangregg/wss:
wss.pl, wss-v1, wss-v2) opens the file for a moment only, but names its target on its command line. A program that
starts and ends between two searches is not seen. Users of page_idle cannot be seen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from memtui.core.procfs import PROC

_EVERY_NS = 1_000_000_000
_LOOKS = 2  # the first time, the process may still be a shell that is about to execute the program
_MEMTUI = (b"memtui.recording.sampler", b"memtui.sampler")  # the second is the name in older versions
_WSS = (b"wss", b"wss.pl", b"wss-v1", b"wss-v2")


class CompetingObservers:
    """Remembers which processes were checked, so that a poll costs a listing of /proc and little more."""

    def __init__(self, proc: Path = PROC) -> None:
        """``proc`` is where the process file system is mounted."""
        self._proc = proc
        self._looks: dict[int, int] = {}  # pid -> how often it was checked
        self._suspects: dict[int, bytes] = {}  # pid -> command line
        self._due_ns = 0
        self._observers: tuple[str, ...] = ()

    def poll(self, targets: tuple[int, ...], now_ns: int) -> tuple[str, ...]:
        """Return who clears the accessed bits of these processes; the last result where the next poll is not due."""
        if now_ns < self._due_ns:
            return self._observers
        self._due_ns = now_ns + _EVERY_NS
        try:
            # Every process of the machine, every few seconds: a Path for each takes twice as long.
            pids = {int(name) for name in os.listdir(self._proc) if name.isdigit()} - {os.getpid()}  # noqa: PTH208
        except OSError:
            return ()
        self._looks = {pid: count for pid, count in self._looks.items() if pid in pids}
        self._suspects = {pid: command for pid, command in self._suspects.items() if pid in pids}
        for pid in pids:
            times = self._looks.get(pid, 0)
            if times < _LOOKS:
                self._looks[pid] = times + 1
                command = self._command(pid)
                if any(name in command for name in _MEMTUI) or _is_wss(command):
                    self._suspects[pid] = command
        observers = (self._describe(pid, command, targets) for pid, command in sorted(self._suspects.items()))
        self._observers = tuple(filter(None, observers))
        return self._observers

    def _command(self, pid: int) -> bytes:
        try:
            return (self._proc / str(pid) / "cmdline").read_bytes()
        except OSError:
            return b""

    def _describe(self, pid: int, command: bytes, targets: tuple[int, ...]) -> str:
        if _is_wss(command):
            named = set(command.split(b"\0"))
            return f"wss (pid {pid}) clears its marks" if any(str(t).encode() in named for t in targets) else ""
        wanted = {str(self._proc / str(target) / "clear_refs") for target in targets}
        folder = self._proc / str(pid) / "fd"
        try:
            links = {str(link.readlink()) for link in folder.iterdir()}
        except OSError:  # a process of another user, and this is not root: nothing is known
            return ""
        return f"another memtui (pid {pid}) clears its marks" if wanted & links else ""


def _is_wss(command: bytes) -> bool:
    return any(word.rpartition(b"/")[2] in _WSS for word in command.split(b"\0")[:3])


SYS = Path("/sys")
_ON = ("on", "Y", "1")


def other_observers(sys_root: Path = SYS) -> tuple[str, ...]:
    """Return the names of the kernel's own observers that run now: DAMON in several forms.

    Users of page_idle and other memtuis cannot be seen from here.
    """
    return tuple(sorted(set(_running(sys_root))))


def how_to_stop(name: str) -> str:
    """Return what switches one of the kernel's own observers off, by its name."""
    what, _, number = name.removeprefix("DAMON (").removesuffix(")").partition(" ")
    if number:
        return f"if nobody needs it: echo off > /sys/kernel/mm/damon/admin/kdamonds/{number}/state"
    return f"if nobody needs it: echo N > /sys/module/{what}/parameters/enabled"


def describe_others(others: tuple[str, ...], reads_notes: bool, *, sampled: bool) -> str:
    """Return a notice for the user about the kernel's own observers.

    Args:
        others: their names; none: they ended.
        reads_notes: the tracker reads what they note in page frames.
        sampled: it reads a part of the memory in each window.
    """
    if not others:
        return "nobody else clears accessed bits any more: the page sets are exact again"
    who = f"{', '.join(others)} runs on this machine and clears accessed bits, too"
    if not reads_notes:
        return f"{who}: touched pages may be missed"
    if sampled:
        return f"{who}; memtui reads back what it notes, and where a note is of several pages, the interval is wider"
    return (
        f"{who}; memtui reads back what it notes about pages touched lately, and about private memory of up to 64 MiB. "
        "Others that are first touched in a window may be missed: where they are many, or in large folios, the window "
        "is called approximate"
    )


def _running(sys_root: Path) -> Iterator[str]:
    for state in sys_root.glob("kernel/mm/damon/admin/kdamonds/*/state"):
        if _read(state) in _ON:
            yield f"DAMON (kdamond {state.parent.name})"
    for enabled in sys_root.glob("module/damon_*/parameters/enabled"):
        if _read(enabled) in _ON:
            yield f"DAMON ({enabled.parent.parent.name})"


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
