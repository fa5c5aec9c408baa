"""Which processes are worth attaching to: those that train, and those that are large."""

from __future__ import annotations

import os
import pwd
import re
import time
from dataclasses import dataclass
from pathlib import Path

from memtui.masking import mask_secrets
from memtui.probes.process import PROC, Stat, command_of
from memtui.target import others

LARGE_BYTES = 256 << 20  # of resident memory: worth a line whatever it is
_LOOKED_INTO_BYTES = 32 << 20  # less resident memory than this is no training
_YOUNG_S = 60.0  # until then a program may still load its libraries
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
    final: bool


class Candidates:
    """Looks through /proc; what was found out about a process is kept until it ends."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._known: dict[int, _Known] = {}

    def look(self) -> list[Candidate]:
        """Those that train first, then the largest. Never raises."""
        now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        found, seen = [], set()
        for pid, stat in others(self._proc):
            try:
                rss_bytes = self._rss_bytes(pid)
            except OSError:
                continue
            if rss_bytes < _LOOKED_INTO_BYTES:
                continue
            seen.add(pid)
            age_s = now_s - stat.start_ticks / _TICKS
            try:
                known = self._find_out(pid, stat, age_s)
            except OSError:
                continue
            if (known.kinds or rss_bytes >= LARGE_BYTES) and not is_own(known.command):
                found.append(Candidate(pid, stat.start_ticks, known.user, known.kinds, rss_bytes, age_s, known.command))
        self._known = {pid: known for pid, known in self._known.items() if pid in seen}
        return sorted(found, key=lambda c: (set(c.kinds) <= {"python"}, not c.kinds, -c.rss_bytes))

    def _rss_bytes(self, pid: int) -> int:
        with open(self._proc / str(pid) / "statm", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * _PAGE_BYTES

    def _find_out(self, pid: int, stat: Stat, age_s: float) -> _Known:
        known = self._known.get(pid)
        if known is not None and known.start_ticks == stat.start_ticks and known.final:
            return known
        uid = os.stat(self._proc / str(pid)).st_uid
        user = user_name(uid)
        command = mask_secrets(command_of(pid))
        kinds = self._kinds(pid)
        if not kinds and _PYTHON.match(command):
            kinds = ("python",)
        made = _Known(stat.start_ticks, user, command, kinds, age_s > _YOUNG_S)
        self._known[pid] = made
        return made

    def _kinds(self, pid: int) -> tuple[str, ...]:
        """From the files it has mapped; nothing of another user's process, unless this is root."""
        try:
            text = (self._proc / str(pid) / "maps").read_bytes()
        except OSError:
            return ()
        return tuple(kind for word, kind in _KINDS if word in text)
