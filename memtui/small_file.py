"""Small text files that a user named: configurations, grids, definitions. Read whole, within a limit.

Only a plain file is read: a pipe would wait for somebody to write into it, a device may have no end.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from memtui.errors import UserError
from memtui.os_errors import READ, refused
from memtui.units import size

MOST_BYTES = 1 << 20
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
    """The text of a file, which is UTF-8.

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
    """The same as bytes. Raises OSError where it cannot be opened or read, and UserError for what it should not be."""
    descriptor = os.open(path, _FLAGS)
    try:
        check_plain(path, os.fstat(descriptor))
        with open(descriptor, "rb", closefd=False) as file:
            raw = file.read(most_bytes + 1)
    finally:
        os.close(descriptor)
    if len(raw) > most_bytes:
        raise UserError(f"{path}: is larger than {size(most_bytes)}; a file for this is small, so name another one")
    return raw


def check_readable(path: Path) -> None:
    """Raise UserError for what cannot be read or is no plain file; for files that another program reads."""
    try:
        descriptor = os.open(path, _FLAGS)
        try:
            check_plain(path, os.fstat(descriptor))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise refused(path, error, READ) from None


def check_plain(path: Path, status: os.stat_result) -> None:
    """Raise UserError for what is no plain file."""
    if not stat.S_ISREG(status.st_mode):
        kind = next((text for is_it, text in _KINDS if is_it(status.st_mode)), "something else")
        raise UserError(f"{path}: is not a file, but {kind}; name a plain file")
