"""The log of the output of a program that memtui started: its path, and safe ways to create and open it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from memtui.core.errors import UserError
from memtui.core.os_errors import why

# A session is also replayed on other systems, which lack some of these flags.
_READ = sum(
    getattr(os, name, 0) for name in ("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")
)


def log_path(session: Path) -> Path:
    """Return the path of the log of a session; the file need not exist.

    It is ``train.memtui.log``, as ``train.log`` is a name that programs give to their own logs.
    """
    return session.with_name(session.name + ".log")


def create_log(path: Path, *, force: bool = False) -> int:
    """Create an empty log with mode 0600, open for appending: the output of a program is as private as its session.

    ``force`` removes an existing file or link of that name; the target of a link stays.

    Raises:
        UserError: the path exists, or the log cannot be created.
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
    """Open a log for reading.

    The session may come from anybody, so only a regular file is opened, and no link.

    Raises OSError.
    """
    fd = os.open(path, _READ)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "is not a plain file", str(path))
    return fd
