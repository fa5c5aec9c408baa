"""Which processes are worth attaching to: those that train, and those that are large."""

from __future__ import annotations

import math
import os
import pwd
import re
import time
from dataclasses import dataclass
from pathlib import Path

from memtui.masking import mask_secrets
from memtui.probes.process import PROC, Stat, command_of, read_stat
from memtui.target import ancestors

LARGE_BYTES = 256 << 20  # of resident memory: worth a line whatever it is
_LOOKED_INTO_BYTES = 32 << 20  # less resident memory than this is no training
_YOUNG_S = 60.0  # until then a program may still load its libraries
_OLDER = 1.5  # times the age at which a young one was looked into: then it is once more
_KINDS = ((b"libtorch", "torch"), (b"tensorflow", "tensorflow"), (b"jaxlib", "jax"), (b"/dev/nvidia", "GPU"))
_PYTHON = re.compile(r"^(?:.*/)?python[\d.]*(?:\s|$)")
_OWN = re.compile(r"\s-m memtui\b(?!\.workloads)|(?:^|/)memtui(?:\s|$)|\bmemtui\.(?:sampler|recorder|gate)\b")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


def is_own(command: str) -> bool:
    """Whether a command line is memtui's."""
    return bool(_OWN.search(command))


def user_name(uid: int) -> str:
    """The name of a user, or the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process that runs now. ``age_s``: since it began."""

    pid: int
    start_ticks: int
    user: str
    kinds: tuple[str, ...]
    rss_bytes: int
    age_s: float
    command: str


@dataclass(frozen=True, slots=True)
class _Known:
    """What changes seldom in a process."""

    start_ticks: int
    user: str
    command: str
    kinds: tuple[str, ...]
    at_s: float  # its age when this was found out


class Candidates:
    """Looks through /proc; what was found out about a process is kept until it ends.

    A look reads one small file of each process, as the start page looks every two seconds and machines have hundreds
    of them: who they are is asked once, for as long as the kernel shows the same inode under their number.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._met: dict[int, tuple[int, Stat | None]] = {}  # inode of its folder; None: of the kernel
        self._known: dict[int, _Known] = {}
        self._listed: set[tuple[int, int]] = set()  # PID and start: what was large once is listed until it ends

    def look(self) -> list[Candidate]:
        """Those that train first, then the largest. Never raises."""
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        hidden = ancestors(os.getpid()) | {os.getpid()}
        found, met, large = [], {}, set()
        with os.scandir(self._proc) as entries:
            numbered = [(int(entry.name), entry.inode()) for entry in entries if entry.name.isdecimal()]
        for pid, inode in numbered:
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
                age_s = now_s - stat.start_ticks / _TICKS
                known = self._find_out(pid, stat, age_s)
            except OSError:
                continue
            if (known.kinds or rss_bytes >= LARGE_BYTES or listed) and not is_own(known.command):
                found.append(Candidate(pid, stat.start_ticks, known.user, known.kinds, rss_bytes, age_s, known.command))
        self._met = met
        self._listed = {(c.pid, c.start_ticks) for c in found}
        self._known = {pid: known for pid, known in self._known.items() if pid in large}
        return sorted(found, key=lambda c: (set(c.kinds) <= {"python"}, not c.kinds, -c.rss_bytes))

    def _stat(self, pid: int, inode: int) -> Stat | None:
        """Who has this number now; None for a thread of the kernel. Raises OSError."""
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

    def _find_out(self, pid: int, stat: Stat, age_s: float) -> _Known:
        known = self._known.get(pid)
        if known is not None and known.start_ticks == stat.start_ticks:
            again_s = min(_OLDER * known.at_s, _YOUNG_S) if known.at_s <= _YOUNG_S else math.inf
            if age_s <= again_s:
                return known
        uid = os.stat(self._proc / str(pid)).st_uid
        user = user_name(uid)
        command = mask_secrets(command_of(pid))
        kinds = self._kinds(pid)
        if not kinds and _PYTHON.match(command):
            kinds = ("python",)
        made = _Known(stat.start_ticks, user, command, kinds, age_s)
        self._known[pid] = made
        return made

    def _kinds(self, pid: int) -> tuple[str, ...]:
        """From the files it has mapped; nothing of another user's process, unless this is root."""
        try:
            text = (self._proc / str(pid) / "maps").read_bytes()
        except OSError:
            return ()
        return tuple(kind for word, kind in _KINDS if word in text)
