"""Processes that may be worth observing: those that train, and those that are large."""

from __future__ import annotations

import math
import os
import pwd
import re
import time
from dataclasses import dataclass
from pathlib import Path

from memtui.core.procfs import PROC, TICKS_PER_S, Stat, command_of, process_inodes, read_stat
from memtui.core.secrets import mask_secrets
from memtui.recording.targets import ancestors, is_own

LARGE_BYTES = 256 << 20  # of resident memory: worth a line whatever it is
_LOOKED_INTO_BYTES = 32 << 20  # a process with less resident memory than this is not a training
_YOUNG_S = 60.0  # until then a program may still load its libraries
_OLDER = 1.5  # a young process is inspected again at this multiple of its age at the last inspection
_KINDS = ((b"libtorch", "torch"), (b"tensorflow", "tensorflow"), (b"jaxlib", "jax"), (b"/dev/nvidia", "GPU"))
_PYTHON = re.compile(r"^(?:.*/)?python[\d.]*(?:\s|$)")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def user_name(uid: int) -> str:
    """Return the name of a user, or the number of a user without a name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process that runs now. ``age_s``: since its start."""

    pid: int
    start_ticks: int
    user: str
    kinds: tuple[str, ...]
    rss_bytes: int
    age_s: float
    command: str
    parent_pid: int


@dataclass(frozen=True, slots=True)
class _CachedDetails:
    """Details of a process that seldom change."""

    start_ticks: int
    user: str
    command: str
    kinds: tuple[str, ...]
    age_s: float  # of the process when the details were read


class Candidates:
    """Scans /proc; details of a process are cached until it ends.

    A scan reads one small file of each process, because the start page scans every two seconds and machines have
    hundreds of processes. Their identity is read once, for as long as the kernel shows the same inode under their PID.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._met: dict[int, tuple[int, Stat | None]] = {}  # inode of its folder; None: of the kernel
        self._cached: dict[int, _CachedDetails] = {}
        self._listed: set[tuple[int, int]] = set()  # PID and start: a process that was large is listed until it ends

    def scan(self) -> list[Candidate]:
        """Return candidates, those that train first, then by size. Never raises."""
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        hidden = ancestors(os.getpid()) | {os.getpid()}
        candidates, met, large = [], {}, set()
        for pid, inode in process_inodes(self._proc).items():
            try:
                stat = self._stat(pid, inode)
                met[pid] = inode, stat
                if stat is None or pid in hidden:
                    continue
                rss_bytes = self._rss_bytes(pid)  # of one that has ended 0
                listed = (pid, stat.start_ticks) in self._listed
                if rss_bytes < _LOOKED_INTO_BYTES and not (listed and rss_bytes):
                    continue
                large.add(pid)
                age_s = now_s - stat.start_ticks / TICKS_PER_S
                details = self._find_out(pid, stat, age_s)
            except OSError:
                continue
            if (details.kinds or rss_bytes >= LARGE_BYTES or listed) and not is_own(details.command):
                named = details.user, details.kinds, rss_bytes, age_s, details.command
                candidates.append(Candidate(pid, stat.start_ticks, *named, stat.parent_pid))
        self._met = met
        self._listed = {(c.pid, c.start_ticks) for c in candidates}
        self._cached = {pid: details for pid, details in self._cached.items() if pid in large}
        return sorted(candidates, key=lambda c: (set(c.kinds) <= {"python"}, not c.kinds, -c.rss_bytes))

    def _stat(self, pid: int, inode: int) -> Stat | None:
        """Return the process that has this PID now; None for a kernel thread. Raises OSError."""
        before = self._met.get(pid)
        if before is not None and before[0] == inode:
            return before[1]
        stat = read_stat(pid, self._proc)
        return None if stat.kernel_thread else stat

    def _rss_bytes(self, pid: int) -> int:
        fd = os.open(f"{self._proc}/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(fd, 256).split()[1]) * _PAGE_BYTES
        finally:
            os.close(fd)

    def _find_out(self, pid: int, stat: Stat, age_s: float) -> _CachedDetails:
        cached = self._cached.get(pid)
        if cached is not None and cached.start_ticks == stat.start_ticks:
            again_s = min(_OLDER * cached.age_s, _YOUNG_S) if cached.age_s <= _YOUNG_S else math.inf
            if age_s <= again_s:
                return cached
        uid = (self._proc / str(pid)).stat().st_uid
        user = user_name(uid)
        command = mask_secrets(command_of(pid))
        kinds = self._kinds(pid)
        if not kinds and _PYTHON.match(command):
            kinds = ("python",)
        details = _CachedDetails(stat.start_ticks, user, command, kinds, age_s)
        self._cached[pid] = details
        return details

    def _kinds(self, pid: int) -> tuple[str, ...]:
        """Return the kinds of a process by the files it has mapped; another user's process only shows them to root."""
        try:
            text = (self._proc / str(pid) / "maps").read_bytes()
        except OSError:
            return ()
        return tuple(kind for word, kind in _KINDS if word in text)
