"""One sampler per process: a lock that only one memtui of the machine can hold, and that the kernel drops with it.

The lock is an advisory ``flock`` on ``/proc/PID/clear_refs``, the very file through which marks are cleared. It needs
no directory and no cleaning up: it dies with its holder (also by ``kill -9``) and with the process it is about, so a
reused pid begins free. Only root and the owner of the process can open that file, so nobody else can squat on it.
It holds among all who look through the same mount of /proc; a container with a mount of its own is another world.
"""

from __future__ import annotations

import fcntl
import os

from memtui.core.file_lock import lock_holder

CLAIMED = 3  # how a sampler exits that found the target claimed


class TargetLocked(Exception):
    """Another memtui watches this process. ``holder`` is the pid of its sampler; 0 when it cannot be seen from here."""

    def __init__(self, pid: int, holder: int) -> None:
        who = f"by sampler {holder}" if holder else "by a sampler that cannot be seen from here,"
        super().__init__(f"process {pid} is watched already, {who} of another memtui: end that one first")
        self.pid, self.holder = pid, holder


class TargetLocks:
    """The processes that this sampler alone may watch."""

    def __init__(self) -> None:
        self._held: dict[int, int] = {}

    def take(self, pid: int) -> None:
        """Claim a process; again is no error. Raises Claimed.

        A process whose file cannot be opened is not locked: its marks cannot be cleared either.
        """
        if pid in self._held:
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
        self._held[pid] = fd

    def release(self, pid: int) -> None:
        fd = self._held.pop(pid, None)
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        for pid in tuple(self._held):
            self.release(pid)
