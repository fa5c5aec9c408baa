"""The session file: its format, and how it is opened safely, even one from a stranger."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

from memtui.core.errors import UserError
from memtui.core.os_errors import why
from memtui.core.text import printable

APPLICATION_ID = 0x4D545549  # "MTUI" in the SQLite header
PLACEMENT_ID = 0x4D54504C  # "MTPL": of a placement profile, which is not a session
SCHEMA_VERSION = 18
_TABLES_SINCE = {  # by format: tables that the format before it lacked
    7: frozenset(("allocation_step", "tensor_ranges")),
    8: frozenset(("training_progress", "allocation_device")),
    9: frozenset(("progress_device", "driver_memory", "learning", "learning_about")),
    10: frozenset(("vma_state",)),
    11: frozenset(("gpu_use", "allocator_peak")),
    12: frozenset(("layer_types",)),
    # Its blobs of reuse distances have what an estimate needs, too.
    13: frozenset(
        (
            *("frame", "call_stack", "allocation_stack", "capture", "capture_blocks"),
            *("reuse_burst", "resident_set"),
        )
    ),
    14: frozenset(("memory_limit",)),
    15: frozenset(("memory_use",)),
    16: frozenset(("vma_private",)),
    17: frozenset(("numa_use",)),
}
SESSION_SUFFIX = ".memtui"  # of the name of a session file
OLDEST_VERSION = 6  # of those that are read; a file without a table has no data of its kind
SQLITE_MAGIC = b"SQLite format 3\0"
MAX_VALUE_BYTES = 64 << 20  # of one text or blob
JOURNAL_MAGIC = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"  # https://www.sqlite.org/fileformat.html, "The Rollback Journal"
_PROCESS_BITS = 20
_TEMPORARY_SUFFIXES = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a file
_STEPS_PER_CHECK = 1 << 17
_BUSY_S = 10.0  # how long a writer waits for another one
_SCHEMA_QUERY = "SELECT type, name, tbl_name, sql FROM sqlite_master"
LET_GO_S = 2.0  # how long an ended recording waits for its readers to close the file
# Flags that a system lacks are left out: a session opens on any.
_OPEN_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NONBLOCK", "O_BINARY"))


class SessionError(UserError):
    """The file cannot be used as a session; the text says why and what to do."""


def unreadable(path: Path, error: Exception) -> SessionError:
    """Return the error for SQLite's message about a file, which may quote it, in many lines or undecodable bytes."""
    return SessionError(f"{path}: cannot be read: {printable(str(error)[:120])}")


def row_id(sample: int, process: int) -> int:
    """Return the key of a row about one process in one sample: rising with time."""
    return sample << _PROCESS_BITS | process


def split_row_id(row: int) -> tuple[int, int]:
    """Return (sample, process) of a key."""
    return row >> _PROCESS_BITS, row & ((1 << _PROCESS_BITS) - 1)


def row_ids(first_sample: int, last_sample: int) -> tuple[int, int]:
    """Return the half-open range of keys of an inclusive range of samples."""
    return row_id(first_sample, 0), row_id(last_sample + 1, 0)


def schema(version: int = SCHEMA_VERSION) -> str:
    """Return the SQL that creates an empty session, without columns that a format did not have yet."""
    # importlib.resources would load zipfile, tempfile and shutil into each process: 4 ms.
    lines = Path(__file__).with_name("schema.sql").read_text().splitlines()
    since = (re.search(r"-- .*\bsince (\d+)$", line) for line in lines)
    return "\n".join(line for line, match in zip(lines, since, strict=True) if not match or int(match[1]) <= version)


def sqlite_temporary_files(path: Path) -> Iterator[Path]:
    """Return the files that SQLite keeps beside a database: https://www.sqlite.org/tempfiles.html."""
    return (path.with_name(path.name + end) for end in _TEMPORARY_SUFFIXES)


def check_file(path: Path) -> None:
    """Raise SessionError unless the file looks like a whole session of a version this memtui reads."""
    head, size = check_header(path)
    # https://www.sqlite.org/fileformat.html, "The Database Header"
    page_bytes, pages = struct.unpack_from(">H", head, 16)[0], struct.unpack_from(">I", head, 28)[0]
    version = struct.unpack_from(">I", head, 60)[0]
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    if not OLDEST_VERSION <= version <= SCHEMA_VERSION:
        age = "a newer" if version > SCHEMA_VERSION else "an older"
        reads = f"{OLDEST_VERSION} to {SCHEMA_VERSION}"
        raise SessionError(f"{path}: was written by {age} memtui (format {version}, this one reads {reads})")
    # While the log is there, it has the pages that are missing (a disk that ran full in the middle of folding it).
    if size < pages * page_bytes and not _log_bytes(path):
        raise SessionError(f"{path}: is truncated: {size} of {pages * page_bytes} bytes are there")


def check_header(path: Path) -> tuple[bytes, int]:
    """Return the first 100 bytes of a file that begins like a session of any version, and its size.

    Raises SessionError.
    """
    head, size = sqlite_header(path, "session", " (no SQLite file); memtui import reads files of other tools")
    if application_id(head) == PLACEMENT_ID:
        reads = "memtui place compare, solve and show read it"
        raise SessionError(f"{path}: is a placement profile, and not a memtui session: {reads}")
    if application_id(head) != APPLICATION_ID:
        raise SessionError(f"{path}: is an SQLite file, but not a memtui session")
    return head, size


def application_id(head: bytes) -> int:
    """Return the application that a file belongs to, from its first 100 bytes."""
    return int(struct.unpack_from(">I", head, 68)[0])


def sqlite_header(path: Path, kind: str, remedy: str = "") -> tuple[bytes, int]:
    """Return the first 100 bytes of an SQLite file, and its size. Raises SessionError.

    ``kind``: what it should be; ``remedy``: said of a file of another kind.
    """
    try:
        # Without O_NONBLOCK opening a pipe of that name would block until it has a writer.
        descriptor = os.open(path, _OPEN_FLAGS)
        try:
            status = os.fstat(descriptor)
            head = os.read(descriptor, 100) if stat.S_ISREG(status.st_mode) else b""
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise SessionError(f"{path}: no such file; check the name") from None
    except OSError as error:
        raise SessionError(f"{path}: cannot be read: {why(path, error)}") from None
    if stat.S_ISDIR(status.st_mode):
        raise SessionError(f"{path}: is a directory, not a {kind}")
    if not stat.S_ISREG(status.st_mode):
        raise SessionError(f"{path}: is not a file, so no {kind}")
    if not head:
        raise SessionError(f"{path}: is empty, not a {kind}")
    if not SQLITE_MAGIC.startswith(head[: len(SQLITE_MAGIC)]) and not head.startswith(SQLITE_MAGIC):
        raise SessionError(f"{path}: is not a memtui {kind}{remedy}")
    if len(head) < 100:
        raise SessionError(f"{path}: is truncated")
    return head, status.st_size


def size_on_disk(path: Path) -> int:
    """Return the bytes of a session with the log that is not folded in yet; 0 when the file is gone."""
    return _size(path) + _log_bytes(path)


def has_log_file(path: Path) -> bool:
    """Return whether a part of the session is in the log beside it."""
    return _log_bytes(path) > 0


def _log_bytes(path: Path) -> int:
    return _size(path.with_name(f"{path.name}-wal"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a session for reading, whether it is closed, growing, or left behind by a recorder that was killed.

    A file may come from anybody: nothing in it is run, no other file is reached through it, and a query that never
    ends is interrupted. Raises SessionError.
    """
    check_file(path)
    return connect(path, lambda connection: _check_schema(connection, path))


def connect(path: Path, check: Callable[[sqlite3.Connection], object]) -> sqlite3.Connection:
    """Open a file of any kind whose header was checked, as ``connect_reader`` does.

    ``check`` inspects its tables. Raises SessionError.
    """
    _check_temporary_files(path)
    try:
        return _connect(path, check)
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_READONLY_ROLLBACK:
            raise unreadable(path, error) from None
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    try:
        _roll_back(path)
        return _connect(path, check)
    except (sqlite3.DatabaseError, UnicodeDecodeError, OSError) as error:
        raise unreadable(path, error) from None


def connect_writer(path: Path, check: Callable[[sqlite3.Connection], object]) -> sqlite3.Connection:
    """Open a file for reading and writing.

    ``check`` inspects its tables, or creates them where there are none.

    Every statement is a transaction of its own unless BEGIN stands before it. Raises SessionError.
    """
    _check_temporary_files(path)
    connection = None
    try:
        connection = _open(path, "mode=rw", query_only=False, isolation_level=None, timeout=_BUSY_S)
        check(connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:
        if connection is not None:
            connection.close()
        raise unreadable(path, error) from None
    except BaseException:
        if connection is not None:
            connection.close()
        raise
    return connection


def _check_temporary_files(path: Path) -> None:
    """Raise SessionError for a temporary file that SQLite would wait for, or follow to another file."""
    for name in sqlite_temporary_files(Path(os.path.realpath(path))):
        try:
            mode = os.lstat(name).st_mode
            journal = stat.S_ISREG(mode) and name.name.endswith("-journal") and _tail(name) == JOURNAL_MAGIC
        except FileNotFoundError:
            continue
        except OSError:
            journal = False  # SQLite reports what it cannot read
        if not stat.S_ISREG(mode):
            raise SessionError(f"{path}: cannot be used: {name.name} beside it is not a file; take that away")
        if journal:  # it names another journal, which SQLite would open and delete; none of memtui's does
            raise _mid_write(path)


def _mid_write(path: Path) -> SessionError:
    return SessionError(f"{path}: was left in the middle of a write; its owner can read and thereby mend it")


def _connect(path: Path, check: Callable[[sqlite3.Connection], object]) -> sqlite3.Connection:
    # SQLite cannot create its shared-memory file for a closed session on a read-only disk: read that without locks.
    writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    mode = "mode=ro" if writable or any(map(_size, sqlite_temporary_files(path))) else "mode=ro&immutable=1"
    connection = _open(path, mode, check_same_thread=False)
    try:
        check(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def has_log(connection: sqlite3.Connection) -> bool:
    """Return whether the session is being written, or was not folded when that ended."""
    return connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


def _roll_back(path: Path) -> None:
    """Undo a partial write that a killed recorder left where there is no WAL; SQLite does so, given the right.

    Raises SessionError, sqlite3.Error and OSError.
    """
    if not (is_own_file(path) and is_own_file(path.with_name(path.name + "-journal"))):
        raise _mid_write(path)
    with closing(_open(path, "mode=rw")) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _tail(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - len(JOURNAL_MAGIC)))
        return file.read()


def is_own_file(path: Path) -> bool:
    """Return whether a path is a regular file of this user, and not a link. Raises OSError."""
    status = os.lstat(path)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def _open(path: Path, mode: str, *, query_only: bool = True, **options: Any) -> sqlite3.Connection:
    """Open an existing file with what https://www.sqlite.org/security.html recommends for files of others."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, **options)
    try:
        _harden(connection, query_only=query_only)
    except BaseException:
        connection.close()
        raise
    return connection


def _harden(connection: sqlite3.Connection, *, query_only: bool) -> None:
    for limit, value in (
        (sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES),
        (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 100_000),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 1),
        (sqlite3.SQLITE_LIMIT_COLUMN, 100),
        (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
    ):
        connection.setlimit(limit, value)
    for pragma in (f"query_only={query_only:d}", "trusted_schema=0", "cell_size_check=1", "mmap_size=0"):
        connection.execute(f"PRAGMA {pragma}")


def read_all(connection: sqlite3.Connection, path: Path, query: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return every row of an answer, in bounded time and memory. Raises SessionError and sqlite3.DatabaseError.

    Pages of a b-tree that point at one another make a query of a small file run for ever. A whole file costs less than
    8 steps of SQLite's machine for every byte of it.
    """
    steps = 0
    most = 0  # computed only after many steps: the size of the file takes longer than most answers

    def tick() -> bool:
        nonlocal steps, most
        most = most or (1 << 22) + 8 * size_on_disk(path)
        steps += _STEPS_PER_CHECK
        return steps > most

    connection.set_progress_handler(tick, _STEPS_PER_CHECK)
    try:
        return connection.execute(query, values).fetchall()
    except sqlite3.OperationalError:
        if steps > most:
            raise SessionError(f"{path}: is damaged: its tables have no end") from None
        raise
    finally:
        connection.set_progress_handler(None, 0)


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Raise SessionError unless the tables are those of a session, to the letter: no trigger, view or other code."""
    tables = tables_in(connection, path)
    if not tables:
        raise SessionError(f"{path}: holds no recording yet, or its recorder died before the first sample")
    version = format_of(connection)
    if tables != _expected_schema(version):
        raise SessionError(f"{path}: is not a memtui session: its tables are not those of format {version}")


def tables_in(connection: sqlite3.Connection, path: Path) -> list[tuple[str, ...]]:
    """Return a file's whole schema, to compare with ``tables_of``. Raises SessionError, sqlite3.DatabaseError."""
    return sorted(map(_normal, read_all(connection, path, _SCHEMA_QUERY, ())))


def tables_of(script: str) -> list[tuple[str, ...]]:
    """Return the schema that a script creates, as ``tables_in`` does."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(script)
        return sorted(map(_normal, connection.execute(_SCHEMA_QUERY)))


def format_of(connection: sqlite3.Connection) -> int:
    """Return the format in a file's header."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@cache
def missing_tables(version: int) -> frozenset[str]:
    """Return the names of today's tables that a session of this format lacks."""
    return frozenset(table for since, tables in _TABLES_SINCE.items() if since > version for table in tables)


@cache
def missing_columns(version: int) -> dict[str, frozenset[str]]:
    """Return the names of today's columns that a session of this format lacks, by table."""
    lines = set(schema(version).splitlines())
    missing: dict[str, set[str]] = defaultdict(set)
    table = ""
    for line in schema().splitlines():
        if created := re.match(r"CREATE TABLE (\w+)", line):
            table = created[1]
        if line not in lines:
            missing[table].update(re.findall(r"(\w+) (?:INTEGER|REAL|TEXT)\b", line))
    return {table: frozenset(names) for table, names in missing.items()}


@cache
def _expected_schema(version: int) -> list[tuple[str, ...]]:
    return [entry for entry in tables_of(schema(version)) if entry[2] not in missing_tables(version)]


def _normal(entry: tuple[Any, ...]) -> tuple[str, ...]:
    """Return an entry without comments and line breaks. A schema's only quote is x'', where no comment can hide."""
    return tuple(" ".join(re.sub(r"--[^\n]*", "", str(part)).split()) for part in entry)


def seal(path: Path, check: Callable[[sqlite3.Connection], object], patience_s: float = LET_GO_S) -> bool:
    """Fold the write-ahead log of a file that was written into it; return False where a reader keeps it open.

    ``check`` inspects its tables: a file that it refuses is left as it is. A viewer that follows a session closes it at
    its next refresh, within a second. Raises what ``check`` does, and sqlite3.Error, OSError and MemoryError where the
    log cannot be folded for another reason; the end of what was written is in the log then.
    """
    began = time.monotonic()
    _check_temporary_files(path)
    with closing(_open(path, "mode=rw", query_only=False, timeout=0)) as connection:
        while True:
            try:
                check(connection)
                return connection.execute("PRAGMA journal_mode=DELETE").fetchone()[0] == "delete"
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                if time.monotonic() - began > (patience_s if busy else patience_s / 10):
                    if busy:
                        return False
                    raise
                time.sleep(0.02)


def seal_session(path: Path) -> bool:
    """Seal a session whose recording has ended; return False also where another file has taken its place.

    Raises sqlite3.Error, OSError and MemoryError, see ``seal``.
    """

    def check(connection: sqlite3.Connection) -> None:
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise SessionError(f"{path}: is not a memtui session")
        _check_schema(connection, path)

    try:
        return seal(path, check)
    except SessionError:
        return False
