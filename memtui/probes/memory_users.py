"""Which processes use the memory of another one without being threads of it: by ``CLONE_VM``, or vfork before the exec.

They may be anywhere on the machine: a sibling that the target made with ``CLONE_PARENT``, or an orphan of its tree.
"""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from memtui.core.procfs import PROC, TICKS_PER_S, process_inodes, read_stat

_KCMP = {"x86_64": 312, "aarch64": 272}.get(platform.machine())
_KCMP_VM = 1
_EVERY_NS = 250_000_000  # whatever the kernel says of the last pid: lxcfs replaces its file by an older one
_REST = 49  # a listing is followed by this many times its CPU time without one: 2 % of a CPU
_LONGEST_NS = 5_000_000  # CPU time of the comparisons of one look
_libc = ctypes.CDLL(None, use_errno=True)


def same_memory(pid: int, other_pid: int) -> bool:
    """Compare the address spaces of two processes; False also where the kernel does not say (CONFIG_KCMP)."""
    if _KCMP is None:
        return False
    arguments = (ctypes.c_long(argument) for argument in (_KCMP, pid, other_pid, _KCMP_VM, 0, 0))
    return bool(_libc.syscall(*arguments) == 0)


class MemoryUsers:
    """Finds, round after round, the processes that use the memory of watched ones, in their tree or outside of it.

    A process can begin to use another one's memory only when it is born. So a round costs a microsecond where no
    process was born since the last one, by the last pid in ``/proc/loadavg``. Otherwise it lists ``/proc`` (0.1 ms for
    100 processes) and compares (2 to 4 us each) every process that was born since the last listing with every watched
    one, and one that is watched from now on with all; but where that one was born since, of older ones only with its
    parent and, as they are watched, with those of its tree: no other made it, unless by ``CLONE_PARENT``. Comparing
    takes 5 ms of CPU time of a round at most; what is left waits for the next ones, the newest and the oldest in turn.
    Time in which this thread had no CPU does not count: on a busy machine it would leave little for comparing.
    """

    def __init__(self, proc: Path = PROC) -> None:
        """``proc`` is where the process file system is mounted."""
        self._proc = proc
        self._users: dict[int, set[int]] = {}  # by the pid of a watched process
        self._seen: dict[int, int] = {}  # all processes of the last listing, with the inodes of their folders
        self._seen_ticks: int | None = None  # since boot, before that listing
        self._left: dict[int, tuple[int, ...]] = {}  # the watched ones with which a process is still to be compared
        self._last_pid = b""
        self._due_ns = self._rest_until_ns = 0
        self._loadavg: int | None = None
        with suppress(OSError):
            self._loadavg = os.open(proc / "loadavg", os.O_RDONLY | os.O_CLOEXEC)

    def recheck(self) -> None:
        """Drop those that ended or have memory of their own by now. Call this before a round of pauses."""
        for pid, users in self._users.items():
            if users:
                self._users[pid] = {user for user in users if self._share(pid, user)}

    def poll(self, watched: Iterable[int]) -> None:
        """Add those that use the memory of these processes now. Call this after a round of pauses."""
        watched = tuple(watched)
        last_pid, now_ns = self._read_last_pid(), time.monotonic_ns()
        new = [pid for pid in watched if pid not in self._users]
        due = self._left or last_pid != self._last_pid or now_ns >= self._due_ns
        if not new and not (due and now_ns >= self._rest_until_ns):
            return
        began_cpu_ns = time.thread_time_ns()
        try:
            self._plan(watched, new)
        except OSError:  # no file can be opened just now: the next round tries again
            return
        self._last_pid = last_pid
        self._compare()
        ended_ns, cpu_ns = time.monotonic_ns(), time.thread_time_ns() - began_cpu_ns
        self._due_ns = ended_ns + _EVERY_NS
        self._rest_until_ns = ended_ns + min(_EVERY_NS, _REST * cpu_ns)

    def _plan(self, watched: Iterable[int], new: Iterable[int]) -> None:
        """List the processes, and note which are to be compared with which. Raises OSError."""
        ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_S)
        there = process_inodes(self._proc)
        born = [pid for pid, inode in there.items() if self._seen.get(pid) != inode]
        self._left = {other: pids for other, pids in self._left.items() if other in there}
        parents = {pid: self._parent_of_young(pid) for pid in new}
        older = tuple(pid for pid, parent in parents.items() if parent is None)
        self._note(there, older)
        for pid, parent in parents.items():
            self._users[pid] = set()
            if parent is not None:
                self._note((parent,), (pid,))
        self._note(born, tuple(pid for pid in watched if pid not in older))
        self._seen, self._seen_ticks = there, ticks

    def _parent_of_young(self, pid: int) -> int | None:
        """Return the parent of a process that was born after the last listing; None of an older one."""
        with suppress(OSError):
            stat = read_stat(pid, self._proc)
            # One that is in the last listing may have been born while that was made.
            if self._seen_ticks is not None and pid not in self._seen and stat.start_ticks > self._seen_ticks:
                return stat.parent_pid
        return None

    def _note(self, others: Iterable[int], pids: tuple[int, ...]) -> None:
        """Compare each of the others with these watched ones, before what was noted until now."""
        for other in others if pids else ():
            before = self._left.pop(other, ())
            self._left[other] = (*before, *(pid for pid in pids if pid not in before)) if before else pids

    def _compare(self) -> None:
        """Compare what is left as long as there is time for it, but at least one process."""
        until_ns, until_cpu_ns = time.monotonic_ns() + _LONGEST_NS, time.thread_time_ns() + _LONGEST_NS
        newest = True
        while self._left:
            other = next(reversed(self._left) if newest else iter(self._left))
            pids, newest = self._left.pop(other), not newest
            for pid in pids:
                if pid != other and pid in self._users and self._share(pid, other):
                    self._users[pid].add(other)
                    if other in self._users:
                        self._users[other].add(pid)
            # Reading the CPU time takes as long as a comparison, and it is never more than the time by the clock.
            if time.monotonic_ns() >= until_ns and time.thread_time_ns() >= until_cpu_ns:
                break

    def _share(self, pid: int, other: int) -> bool:
        """Whether two processes use the same memory; to the kernel, all that have none have the same."""
        return same_memory(pid, other) and self._has_memory(pid)

    def _has_memory(self, pid: int) -> bool:
        """Whether a process has memory: a zombie and a kernel thread have none."""
        try:
            return not (self._proc / str(pid) / "statm").read_bytes().startswith(b"0 ")
        except (FileNotFoundError, ProcessLookupError):
            return False
        except (
            OSError
        ):  # no file can be opened just now: what shares memory stays until it can be seen that it does not
            return True

    def _read_last_pid(self) -> bytes:
        """Return the last pid that was given to a process or thread; empty where the kernel does not say."""
        try:
            return b"" if self._loadavg is None else os.pread(self._loadavg, 128, 0).rpartition(b" ")[2]
        except OSError:  # lxcfs ended
            return b""

    def uncompared(self, pids: Iterable[int]) -> set[int]:
        """Return those of these processes that were not compared with every other one yet."""
        left = {pid for others in self._left.values() for pid in others}
        return {pid for pid in pids if pid in left or pid not in self._users}

    def of(self, pid: int) -> frozenset[int]:
        """Return those that use the memory of a process."""
        return frozenset(self._users.get(pid, ()))

    def forget(self, pid: int) -> None:
        """Drop a process that is not watched any more."""
        self._users.pop(pid, None)
        self._seen.pop(pid, None)
        self._left.pop(pid, None)

    def close(self) -> None:
        """Close the file, once."""
        if self._loadavg is not None:
            os.close(self._loadavg)
            self._loadavg = None
