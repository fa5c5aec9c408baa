"""Files that a user named: configurations, grids, definitions, data. Read whole, within a limit that is known before.

Only a plain file is read: a pipe would wait for somebody to write into it, a device may have no end. Whose rights it is
read with is for the caller to see to: ``privilege.become`` and ``privilege.as_invoker``.
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
# What a system does not have, it does not need. Without O_NONBLOCK opening a pipe would wait for its other end.
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
        UserError: it cannot be read, is no plain file, is larger than ``most_bytes``, or is no text.
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
    """Return the same as bytes. Raises OSError where it cannot be read, and UserError for what it should not be."""
    with open_regular(path) as file:
        _check_size(path, os.fstat(file.fileno()).st_size, most_bytes)
        raw = file.read(most_bytes + 1)  # it may have grown
    _check_size(path, len(raw), most_bytes)
    return raw


def open_regular(path: Path | str) -> BinaryIO:
    """Return a plain file, open for reading.

    Raises OSError where it cannot be opened, and UserError for what is none.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        check_regular(path, os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_readable(path: Path, most_bytes: int | None = None) -> None:
    """Raise UserError for what cannot be read, is no plain file or too large; for files that another program reads."""
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
    """Raise UserError for what is no plain file."""
    if not stat.S_ISREG(status.st_mode):
        kind = next((text for is_it, text in _KINDS if is_it(status.st_mode)), "something else")
        raise UserError(f"{path}: is not a file, but {kind}; name a plain file")
