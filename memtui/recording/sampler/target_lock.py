"""One sampler per process: a lock that only one memtui of the machine can hold, and that the kernel drops with it.

The lock is an advisory ``flock`` on ``/proc/PID/clear_refs``, the very file through which accessed bits are cleared. It
needs no directory and no cleaning up: it dies with its holder (also by ``kill -9``) and with the locked process, so a
reused pid starts unlocked. Only root and the owner of the process can open that file, so nobody else can squat on it.
The lock is seen by all who use the same mount of /proc; a container with a mount of its own does not see it.
"""

from __future__ import annotations

import fcntl
import os

from memtui.core.file_lock import lock_holder

CLAIMED = 3  # exit status of a sampler whose target was locked by another one


class TargetLocked(Exception):
    """Another memtui watches this process. ``holder`` is the pid of its sampler; 0 when it cannot be seen from here."""

    def __init__(self, pid: int, holder: int) -> None:
        who = f"by sampler {holder}" if holder else "by a sampler that cannot be seen from here,"
        super().__init__(f"process {pid} is watched already, {who} of another memtui: end that one first")
        self.pid, self.holder = pid, holder


class TargetLocks:
    """The processes that this sampler has locked."""

    def __init__(self) -> None:
        self._fds: dict[int, int] = {}

    def acquire(self, pid: int) -> None:
        """Lock a process; locking it again does nothing. Raises TargetLocked.

        A process whose file cannot be opened is not locked: its accessed bits cannot be cleared either.
        """
        if pid in self._fds:
            return
        try:
            fd = os.open(f"/proc/{pid}/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = lock_holder(fd)
            os.close(fd)
            raise TargetLocked(pid, holder) from None
        except OSError:  # a kernel that cannot lock here
            os.close(fd)
            return
        self._fds[pid] = fd

    def release(self, pid: int) -> None:
        fd = self._fds.pop(pid, None)
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        for pid in tuple(self._fds):
            self.release(pid)
