"""Which processes the kernel killed because memory ran out, and whose limit was reached.

The memory cgroup of a process counts such kills; the kernel's log names the process and the cgroup, where it may be
read.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memtui.core.procfs import PROC, is_exiting
from memtui.core.samples import KILLED_FOR_MEMORY, PROBABLY_KILLED
from memtui.core.units import size
from memtui.probes.memory_pressure import (
    LIMIT_FILES,
    cgroup_name,
    limit_in,
    memory_cgroup,
    memory_mounts,
    text_of,
    upwards,
)

LOG = Path("/dev/kmsg")
SIGKILL = "killed by SIGKILL"
RECENT_NS = 10_000_000_000  # from a kill to the end of a large process, whose memory is freed first
_RECORD_BYTES = 8192  # the kernel returns one record for each read, never a part of one
_MOST_RECORDS = 4096  # of one call
_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO: pids of the log are those of this namespace
# By version of cgroups: the file with the counter ``oom_kill`` (Linux 4.13).
_COUNTERS = {1: "memory.oom_control", 2: "memory.events"}
# mm/oom_kill.c: dump_oom_victim() and __oom_kill_process()
_REASON = re.compile(r"oom-kill:constraint=(\w+),.*?(?:,oom_memcg=(.*?),task_memcg=.*?)?,task=.*,pid=(\d+),uid=\d+$")
_VICTIM = re.compile(r"Killed process (\d+) \((.{0,15})\)(?: |,)")


class KernelLog:
    """The kernel's log from the moment of opening; empty where it may not be read."""

    def __init__(self, path: Path = LOG) -> None:
        """Open the end of the log. With ``kernel.dmesg_restrict`` only a process with CAP_SYSLOG may."""
        self._fd: int | None = None
        with suppress(OSError):
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._fd, 0, os.SEEK_END)

    @property
    def readable(self) -> bool:
        """Whether the log could be opened."""
        return self._fd is not None

    def new_lines(self) -> Iterator[str]:
        """Yield what the kernel itself has logged since the last call, without what programs wrote into its log."""
        for _ in range(_MOST_RECORDS if self._fd is not None else 0):
            assert self._fd is not None
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BrokenPipeError:  # records were overwritten before they were read: the next ones follow
                continue
            except OSError:
                return
            if not record:
                return
            head, _, text = record.decode(errors="replace").partition(";")
            level = head.partition(",")[0]
            if level.isdigit() and int(level) >> 3 == 0:  # the facility; that of the kernel is 0
                yield text.partition("\n")[0]

    def close(self) -> None:
        """Close the log."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


@dataclass(frozen=True, slots=True)
class OomKill:
    """A kill that the log names. ``cgroup``: whose limit was reached; empty: the machine's memory; None: not named."""

    pid: int
    name: str
    cgroup: str | None


class OomKills:
    """Watches for such kills in the tree of one process."""

    def __init__(self, pid: int, log: KernelLog, proc: Path = PROC) -> None:
        """Begin to count.

        Args:
            pid: the root of the tree, whose cgroup is read.
            log: from which the names of killed processes are taken.
            proc: where the process file system is mounted.
        """
        self._pid, self._log, self._proc = pid, log, proc
        self._mounts = memory_mounts(proc)
        self._names_pids = log.readable and _link(proc / "self/ns/pid") == _FIRST_PID_NAMESPACE
        self._cgroup: tuple[int, Path] | None = None
        self._count: int | None = None
        self._local: dict[Path, int] = {}
        self._before: set[int] = set()  # pids of the tree at the last call
        self._root_killed = ""  # the cause, where the log names the root
        self._unnamed = 0, ""  # when the cgroup counted a kill that the log does not name, and the cause
        self._read()

    def new(self, pids: Collection[int]) -> list[str]:
        """Return a sentence for each kill since the last call, of the tree with these pids or of its cgroup.

        That of the root itself is left out: ``explained`` has it.
        """
        before, previous, local = self._count, self._cgroup, self._local
        self._read()
        counted = 0
        if before is not None and self._count is not None and previous == self._cgroup:
            counted = max(self._count - before, 0)
        tree, self._before = self._before | set(pids), set(pids)
        named = [kill for kill in self._killed() if kill.pid in tree or kill.pid == self._pid]
        if not named and not counted:
            return []
        texts = []
        cause = self._cause_of([group for group, count in self._local.items() if count > local.get(group, count)])
        for kill in named:
            if kill.pid == self._pid:
                self._root_killed = self._cause(kill, cause)
            else:
                texts.append(f"the kernel killed pid {kill.pid} ({kill.name}): {self._cause(kill, cause)}")
        if (more := counted - len(named)) > 0:
            self._unnamed = time.monotonic_ns(), cause
            if self._cgroup is not None:
                what = "a process" if more == 1 else f"{more} processes"
                texts.append(f"the kernel killed {what} of cgroup {self._name(self._cgroup[1])}: {cause}")
        return texts

    def explained(self, how: str, pids: Collection[int]) -> tuple[str, list[str]]:
        """Return how the root ended, with the cause of a SIGKILL, and sentences about other kills as ``new`` does.

        Args:
            how: "exited", "killed by SIGKILL" ... (``memtui.probes.process_exit``).
            pids: of its tree.
        """
        texts = self.new(pids)
        if how != SIGKILL:
            return how, texts
        if self._root_killed:
            return f"{KILLED_FOR_MEMORY}{self._root_killed}", texts
        counted_ns, cause = self._unnamed
        if cause and time.monotonic_ns() - counted_ns < RECENT_NS:
            return f"{PROBABLY_KILLED}{cause}", texts
        if self._names_pids or self._count is not None:
            return f"{how}, and not because memory ran out", texts
        return how, texts

    def _read(self) -> None:
        """Read the counters of the cgroup in which the process is, or was last."""
        if not is_exiting(self._pid, self._proc):  # one that is ending has left its cgroup before it is gone
            self._cgroup = memory_cgroup(self._proc, self._pid, self._mounts) or self._cgroup
        if self._cgroup is None:
            self._count = _counter(self._proc / "vmstat", "oom_kill")
            return
        version, group = self._cgroup
        self._count = _counter(group / _COUNTERS[version], "oom_kill")
        if version == 2:
            local = {folder: _counter(folder / "memory.events.local", "oom") for folder in self._groups()}
            self._local = {folder: count for folder, count in local.items() if count is not None}

    def _killed(self) -> list[OomKill]:
        """Return what the log says since the last call; the line with the reason comes before that with the name."""
        kills: list[OomKill] = []
        reasons: dict[int, str] = {}
        for line in self._log.new_lines() if self._names_pids else ():
            if reason := _REASON.search(line):
                reasons[int(reason[3])] = reason[2] or "" if reason[1] == "CONSTRAINT_MEMCG" else ""
            elif victim := _VICTIM.search(line):
                pid = int(victim[1])
                of_machine = line.startswith("Out of memory")
                kills.append(OomKill(pid, victim[2], reasons.get(pid, "" if of_machine else None)))
        return kills

    def _cause(self, kill: OomKill, counted: str) -> str:
        if kill.cgroup is None:
            return counted
        if not kill.cgroup:
            return "the machine ran out of memory"
        return self._reached(next((g for g in self._groups() if self._name(g) == kill.cgroup), None), kill.cgroup)

    def _cause_of(self, reached: list[Path]) -> str:
        """Return what the counters and limits tell: the cgroup that reached its limit, or the lowest of the limits."""
        if reached:
            return self._reached(reached[0], self._name(reached[0]))
        limits = [(limit, group) for group in self._groups() if (limit := self._limit(group)) is not None]
        if not limits:
            return "the machine ran out of memory"
        limit, group = min(limits)
        return f"memory ran out, and cgroup {self._name(group)} is limited to {size(limit)}"

    def _reached(self, group: Path | None, name: str) -> str:
        limit = None if group is None else self._limit(group)
        return f"cgroup {name} reached its limit" + ("" if limit is None else f" of {size(limit)}")

    def _limit(self, group: Path) -> int | None:
        assert self._cgroup is not None
        return limit_in(group / LIMIT_FILES[self._cgroup[0]])

    def _groups(self) -> list[Path]:
        """Return the cgroup of the process and those above it."""
        if self._cgroup is None:
            return []
        version, group = self._cgroup
        return upwards(group, self._mounts[version][0])

    def _name(self, group: Path) -> str:
        """Return the path of a cgroup as /proc/PID/cgroup has it."""
        assert self._cgroup is not None
        return cgroup_name(group, self._mounts[self._cgroup[0]])


def _counter(path: Path, name: str) -> int | None:
    """Return a number of a file with lines "name number"; None where it is not there."""
    match = re.search(rf"^{name} (\d+)$", text_of(path), re.M)
    return int(match[1]) if match else None


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
