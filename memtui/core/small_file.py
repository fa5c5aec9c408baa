"""Reads files that a user named (configurations, grids, definitions, data) whole, up to a limit of size.

Only regular files are read: a pipe would wait for a writer, and a device may have no end. The caller ensures that the
file is read with the rights of the user: ``privilege.become`` and ``privilege.as_invoker``.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from memtui.core.errors import UserError
from memtui.core.os_errors import READ, refused
from memtui.core.units import size

MOST_BYTES = 1 << 20
MOST_PROGRAM_BYTES = 16 << 20  # of a file of Python: Python reads it whole
# Flags that a system lacks are not needed there. Without O_NONBLOCK, opening a pipe would wait for its other end.
_FLAGS = sum(getattr(os, name, 0) for name in ("O_RDONLY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read_small(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """Return the text of a file, which is UTF-8.

    Raises:
        UserError: it cannot be read, is not a regular file, is larger than ``most_bytes``, or is not text.
    """
    try:
        raw = read_small_bytes(path, most_bytes)
    except OSError as error:
        raise refused(path, error, READ) from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not text: byte {error.start} is not UTF-8; name a text file") from None


def read_small_bytes(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the bytes of a file. Raises OSError where it cannot be read, else UserError as ``read_small``."""
    with open_regular(path) as file:
        _check_size(path, os.fstat(file.fileno()).st_size, most_bytes)
        raw = file.read(most_bytes + 1)  # it may have grown
    _check_size(path, len(raw), most_bytes)
    return raw


def open_regular(path: Path | str) -> BinaryIO:
    """Return a regular file, open for reading.

    Raises OSError where it cannot be opened, and UserError where it is not a regular file.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        check_regular(path, os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_readable(path: Path, most_bytes: int | None = None) -> None:
    """Raise UserError where a file that another program will read is unreadable, not regular or too large."""
    try:
        with open_regular(path) as file:
            if most_bytes is not None:
                _check_size(path, os.fstat(file.fileno()).st_size, most_bytes)
    except OSError as error:
        raise refused(path, error, READ) from None


def _check_size(path: Path, count: int, most_bytes: int) -> None:
    if count > most_bytes:
        raise UserError(f"{path}: is larger than {size(most_bytes)}; a file for this is small, so name another one")


def check_regular(path: Path | str, status: os.stat_result) -> None:
    """Raise UserError where a file is not a regular one."""
    if not stat.S_ISREG(status.st_mode):
        kind = next((text for is_it, text in _KINDS if is_it(status.st_mode)), "something else")
        raise UserError(f"{path}: is not a file, but {kind}; name a plain file")
