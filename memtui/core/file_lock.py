"""A lock on a file for one process at a time. The kernel drops the lock with its holder, also after ``kill -9``."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memtui.core.errors import FAILURE, UserError
from memtui.core.os_errors import refused

_LOCKS = Path("/proc/locks")


@contextmanager
def exclusively(path: Path, trouble: str, *, writable: bool = False) -> Iterator[None]:
    """Lock an existing file during the block.

    Args:
        path: the file; nothing is written to it.
        trouble: the message when another process has the lock; ``{who}`` stands for that process.
        writable: open the file for writing, which locks over NFS require.

    Raises:
        UserError: another process has the lock, or the file cannot be locked.
    """
    try:
        fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    except OSError as error:
        raise refused(path, error, "locked", code=FAILURE) from None
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = lock_holder(fd)
            who = f"process {holder}" if holder else "another process"
            raise UserError(trouble.replace("{who}", who), FAILURE) from None
        except OSError as error:
            raise refused(path, error, "locked", code=FAILURE) from None
        yield
    finally:
        os.close(fd)


def holder_of(path: Path) -> int:
    """Return the process that has the lock; 0: none has it, or it cannot be seen. The lock itself is not taken."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        return lock_holder(fd)
    finally:
        os.close(fd)


def lock_holder(fd: int) -> int:
    """Return the process that has the lock on an open file, from /proc/locks; 0 when it is not listed there."""
    file = os.fstat(fd)
    file_id = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return 0
    # 1: FLOCK  ADVISORY  WRITE 5561 00:15:98765 0 EOF; a line with -> is a process that waits.
    for line in lines:
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == file_id and fields[4].isdigit():
            return int(fields[4])
    return 0
