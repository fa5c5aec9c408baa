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

from memtui.core.procfs import PROC

_KCMP = {"x86_64": 312, "aarch64": 272}.get(platform.machine())
_KCMP_VM = 1
_EVERY_NS = 250_000_000  # whatever the kernel says of the last pid: lxcfs replaces its file by an older one
_REST = 49  # a listing is followed by this many times its duration without one: 2 % of a CPU
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
    process was born since the last one, by the last pid in ``/proc/loadavg``; otherwise a listing of ``/proc`` (0.1 ms
    for 170 processes) and 2 us for each new process and each watched one.
    """

    def __init__(self, proc: Path = PROC) -> None:
        """``proc`` is where the process file system is mounted."""
        self._proc = proc
        self._users: dict[int, set[int]] = {}  # by the pid of a watched process
        self._seen: set[int] = set()  # all processes of the last listing
        self._last_pid = b""
        self._due_ns = self._rest_until_ns = 0
        self._loadavg: int | None = None
        with suppress(OSError):
            self._loadavg = os.open(proc / "loadavg", os.O_RDONLY | os.O_CLOEXEC)

    def recheck(self) -> None:
        """Drop those that ended or have memory of their own by now. Call this before a round of pauses."""
        for pid, users in self._users.items():
            if users:
                self._users[pid] = {user for user in users if same_memory(pid, user)}

    def look(self, watched: Iterable[int]) -> None:
        """Add those that use the memory of these processes now. Call this after a round of pauses."""
        watched = tuple(watched)
        last_pid, began_ns = self._read_last_pid(), time.monotonic_ns()
        new = [pid for pid in watched if pid not in self._users]
        due = last_pid != self._last_pid or began_ns >= self._due_ns
        if not new and not (due and began_ns >= self._rest_until_ns):
            return
        # Paths of all processes would take twice as long as their names.
        there = {int(name) for name in os.listdir(self._proc) if name.isdigit()}  # noqa: PTH208
        born = there - self._seen
        for pid in watched:
            found = {other for other in (there if pid in new else born) if other != pid and same_memory(pid, other)}
            self._users.setdefault(pid, set()).update(found)
        self._seen, self._last_pid = there, last_pid
        ended_ns = time.monotonic_ns()
        self._due_ns = ended_ns + _EVERY_NS
        self._rest_until_ns = ended_ns + min(_EVERY_NS, _REST * (ended_ns - began_ns))

    def _read_last_pid(self) -> bytes:
        """Return the last pid that was given to a process or thread; empty where the kernel does not say."""
        try:
            return b"" if self._loadavg is None else os.pread(self._loadavg, 128, 0).rpartition(b" ")[2]
        except OSError:  # lxcfs ended
            return b""

    def of(self, pid: int) -> frozenset[int]:
        """Return those that use the memory of a process."""
        return frozenset(self._users.get(pid, ()))

    def forget(self, pid: int) -> None:
        """Drop a process that is not watched any more."""
        self._users.pop(pid, None)
        self._seen.discard(pid)

    def close(self) -> None:
        """Close the file, once."""
        if self._loadavg is not None:
            os.close(self._loadavg)
            self._loadavg = None
