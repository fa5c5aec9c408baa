"""The session file: what it is, and opening one safely."""

from __future__ import annotations

import os
import sqlite3
import struct
from pathlib import Path

from memtui.errors import UserError

APPLICATION_ID = 0x4D545549  # "MTUI" in the SQLite header
SCHEMA_VERSION = 2
SQLITE_MAGIC = b"SQLite format 3\0"
_PROCESS_BITS = 20


class SessionError(UserError):
    """The file cannot be used as a session; the text says why and what to do."""


def row_id(sample: int, process: int) -> int:
    """Key of a row about one process in one sample: rising with time."""
    return sample << _PROCESS_BITS | process


def split_row_id(row: int) -> tuple[int, int]:
    """(sample, process) of a key."""
    return row >> _PROCESS_BITS, row & ((1 << _PROCESS_BITS) - 1)


def check_file(path: Path) -> None:
    """Raise SessionError unless the file looks like a whole session of a version this memtui reads."""
    try:
        with open(path, "rb") as file:
            head = file.read(100)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise SessionError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise SessionError(f"{path}: is a directory, not a session") from None
    except OSError as error:
        raise SessionError(f"{path}: cannot be read: {error.strerror}") from None
    if not head:
        raise SessionError(f"{path}: is empty, not a session")
    if not SQLITE_MAGIC.startswith(head[: len(SQLITE_MAGIC)]) and not head.startswith(SQLITE_MAGIC):
        raise SessionError(f"{path}: is not a memtui session")
    if len(head) < 100:
        raise SessionError(f"{path}: is truncated")
    # https://www.sqlite.org/fileformat.html, "The Database Header"
    page_bytes, pages = struct.unpack_from(">H", head, 16)[0], struct.unpack_from(">I", head, 28)[0]
    version, application = struct.unpack_from(">I", head, 60)[0], struct.unpack_from(">I", head, 68)[0]
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    if application != APPLICATION_ID:
        raise SessionError(f"{path}: is an SQLite file, but not a memtui session")
    if version != SCHEMA_VERSION:
        age = "a newer" if version > SCHEMA_VERSION else "an older"
        raise SessionError(f"{path}: was written by {age} memtui (format {version}, this one reads {SCHEMA_VERSION})")
    # While the log is there, it has the pages that are missing (a disk that ran full in the middle of folding it).
    if size < pages * page_bytes and not _log_bytes(path):
        raise SessionError(f"{path}: is truncated: {size} of {pages * page_bytes} bytes are there")


def size_on_disk(path: Path) -> int:
    """Bytes of a session with what is not folded in yet; 0 when it is gone."""
    return _size(path) + _log_bytes(path)


def _log_bytes(path: Path) -> int:
    return _size(path.with_name(path.name + "-wal"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a session for reading, whether it is closed, growing, or left behind by a recorder that was killed.

    Raises SessionError.
    """
    check_file(path)
    # A closed session on a read-only disk cannot make the shared-memory file that SQLite wants: read it as it lies.
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    mode = "mode=ro" if writable or _log_bytes(path) else "mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, check_same_thread=False)
        connection.execute("PRAGMA query_only=1")
        connection.execute("SELECT value FROM meta LIMIT 1").fetchone()
    except sqlite3.DatabaseError as error:
        raise SessionError(f"{path}: cannot be read: {error}") from None
    return connection


def seal(path: Path) -> bool:
    """Fold the write-ahead log of an ended session into one plain file; False while somebody else has it open."""
    try:
        connection = sqlite3.connect(path, timeout=0.2)
        try:
            return connection.execute("PRAGMA journal_mode=DELETE").fetchone()[0] == "delete"
        finally:
            connection.close()
    except sqlite3.OperationalError:
        return False
