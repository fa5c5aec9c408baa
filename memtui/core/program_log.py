"""The log of what a program printed that memtui started: where it lies, and how it is made and opened with care."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from memtui.core.errors import UserError
from memtui.core.os_errors import why

# A session is replayed on other systems, too, and they lack one or the other of these.
_READ = sum(
    getattr(os, name, 0) for name in ("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")
)


def log_path(session: Path) -> Path:
    """Return the log that belongs to a session, whether it is there or not.

    ``train.memtui.log``, as ``train.log`` is a name that programs give to logs of their own.
    """
    return session.with_name(session.name + ".log")


def create_log(path: Path, *, force: bool = False) -> int:
    """Return a new, empty log of mode 0600, open for appending: what a program prints is as private as its session.

    ``force`` takes away what has the name, which may be a link: the link goes, and not what it points to.

    Raises:
        UserError: there is something of that name, or it cannot be made.
    """
    try:
        if force:
            path.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path, flags, 0o600)
    except FileExistsError:
        raise UserError(f"{path}: exists already and would be the program's output; --force overwrites it") from None
    except OSError as error:
        raise UserError(f"{path}: the program's output cannot go there: {why(path, error)}") from None


def open_log(path: Path) -> int:
    """Return a log, open for reading.

    It may lie beside a stranger's session, so only a plain file is opened, and no link.

    Raises OSError.
    """
    fd = os.open(path, _READ)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "is no plain file", str(path))
    return fd
