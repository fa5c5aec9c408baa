"""Writes a session: one connection, one transaction at a time, committed by the recorder's clock."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from memtui.core.text import utf8_safe
from memtui.session.file_format import (
    APPLICATION_ID,
    SCHEMA_VERSION,
    SessionError,
    check_header,
    connect_reader,
    format_of,
    is_own_file,
    schema,
    seal_session,
    sqlite_temporary_files,
)
from memtui.session.schema import TABLES, MetaRecord, insertion

PAGE_BYTES = 8192  # blobs of some kB waste less of a page than with 4096


class SessionWriter:
    """Creates the file (mode 0600: a session discloses an address layout) and appends rows.

    The writer writes only files that it created. ``overwrite`` removes an existing session of this user, and nothing
    else. Raises FileExistsError, PermissionError and other OSErrors when the file cannot be created, SessionError when
    the existing file may not be removed.
    """

    def __init__(self, path: Path, *, overwrite: bool = False, copy_of: Path | None = None) -> None:
        """Create the session; ``copy_of`` is another one, which this begins as a copy of and is not changed."""
        self.path = path
        if overwrite:
            _take_away(path)
        _check_temporary_files(path)
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            self._identity = _identity(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        self._committed = False  # whether anything but empty tables was
        connection = None
        try:
            self._connection = connection = sqlite3.connect(path, isolation_level=None)
            if copy_of is None:
                self._create_tables()
            else:
                self._copy_tables(copy_of)
        except BaseException:
            if connection is not None:
                connection.close()
            with suppress(OSError):  # that of the caller is what went wrong first
                if _identity(os.lstat(path)) == self._identity:
                    _remove(path)
            raise

    def _create_tables(self) -> None:
        connection = self._connection
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        self._check_identity()
        # NFS and some containers refuse WAL; the plain journal works there, and readers wait a little for commits.
        self.wal = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0] == "wal"
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint=256")
        connection.execute("PRAGMA journal_size_limit=4194304")
        # In one transaction: a reader that opens the file meanwhile sees no tables or all of them.
        connection.executescript(f"BEGIN; {schema()} COMMIT;")

    def _copy_tables(self, source: Path) -> None:
        with closing(connect_reader(source)) as connection:
            if (version := format_of(connection)) != SCHEMA_VERSION:
                raise SessionError(
                    f"{source}: was written by an older memtui (format {version}), and only sessions of format "
                    f"{SCHEMA_VERSION} can be added to: record it anew"
                )
            self._check_identity()
            connection.backup(self._connection)
        self.wal = False

    def put_meta(self, **values: Any) -> None:
        """Set JSON values by key."""
        self.insert(MetaRecord(key, json.dumps(value)) for key, value in values.items())

    def insert(self, records: Iterable[Any]) -> None:
        """Append records of ``tables.TABLES``, each to its table; a row with a known key replaces the old one."""
        self._ensure_transaction()
        for record in records:
            record_type: type = type(record)
            statement, values = insertion(record_type)
            self._execute(statement, values(record))

    def insert_from(self, record: type, source: object, **given: Any) -> None:
        """Append a row to a record's table: the ``given`` columns, and all others from attributes of their names.

        Raises:
            AttributeError: the source lacks a column that is not given.
            ValueError: the table lacks a given column.
        """
        self._ensure_transaction()
        statement, values = insertion(record, tuple(given))
        self._execute(statement, values(source) + tuple(given.values()))

    def _execute(self, statement: str, values: tuple[Any, ...]) -> None:
        try:
            self._connection.execute(statement, values)
        except UnicodeEncodeError:  # a name with bytes that are not UTF-8
            self._connection.execute(statement, [utf8_safe(v) if isinstance(v, str) else v for v in values])

    def delete(self, record: type, ids: Iterable[int], by: str = "id") -> None:
        """Remove rows of a record's table by their ``id``, or another column."""
        self._ensure_transaction()
        self._connection.executemany(f"DELETE FROM {TABLES[record]} WHERE {by} = ?", ((i,) for i in ids))

    def delete_between(self, record: type, first: int, last: int) -> None:
        """Remove the rows of a half-open range of ids."""
        self._ensure_transaction()
        self._connection.execute(f"DELETE FROM {TABLES[record]} WHERE id >= ? AND id < ?", (first, last))

    @property
    def used_bytes(self) -> int:
        """Bytes of the file in use, without the space that deleted rows left in it."""
        query = self._connection.execute
        return PAGE_BYTES * (query("PRAGMA page_count").fetchone()[0] - query("PRAGMA freelist_count").fetchone()[0])

    def commit(self) -> None:
        """Make everything so far readable for others and safe from a kill."""
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")
            self._committed = True

    def displaced(self) -> str:
        """Return what happened to the file while it was written; empty as long as it is in its place."""
        try:
            in_place = _identity(os.lstat(self.path)) == self._identity
        except (FileNotFoundError, NotADirectoryError):
            return "was moved or deleted while it was recorded; where it was moved to, it has all until then"
        except OSError:
            return ""  # the next write reports better what is wrong there
        return "" if in_place else "another file took its place while it was recorded"

    def close(self) -> bool:
        """Commit and, unless a reader has the session open, fold it into one file. Return True when folded.

        Raises:
            OSError: the file is not in its place any more.
            sqlite3.Error, MemoryError: the rest could not be committed, or not be folded.
        """
        self.commit()
        return self._fold()

    def abandon(self) -> bool:
        """Close after a failure, whatever else fails; return False where nothing was recorded, and the file removed.

        What was not committed is left out: it may be a part of a window.
        """
        failures = sqlite3.Error, OSError, MemoryError
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except failures:
            self._connection.close()  # which rolls it back
        with suppress(*failures):
            if self._committed:
                self._fold()
            else:
                self.discard()
        return self._committed

    def _fold(self) -> bool:
        if self.displaced():  # SQLite would leave the log behind under the old name, with the end of the session
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()
        if not os.path.lexists(self.path):
            _remove(self.path)  # its temporary files
        self._check_identity()
        return seal_session(self.path)

    def close_as(self, path: Path, *, overwrite: bool) -> None:
        """Close, and rename the session in the same folder now that it is whole.

        Raises:
            FileExistsError, SessionError: as when a session is created; the file is removed then, and after any error.
            OSError, sqlite3.Error, MemoryError: any other error.
        """
        try:
            if not self.close():
                raise SessionError(
                    f"{path}: cannot be written: another program reads {self.path}; end it, and try again"
                )
            if overwrite:
                _take_away(path)
            elif os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            _check_temporary_files(path)
            self.path.rename(path)
        finally:
            _remove(self.path)  # what is left of the file

    def discard(self) -> None:
        """Close and remove the file: nothing was recorded."""
        self._connection.close()
        self._check_identity()
        _remove(self.path)

    def _check_identity(self) -> None:
        """Raise OSError when the file is no longer there, or another file, or a link, has taken its place."""
        if why := self.displaced():
            raise OSError(errno.ESTALE, why, str(self.path))

    def _ensure_transaction(self) -> None:
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN")


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _check_temporary_files(path: Path) -> None:
    """Raise SessionError for a file that SQLite would read as part of the session, or a link that leads elsewhere."""
    for other in sqlite_temporary_files(path):
        if os.path.lexists(other):
            raise SessionError(f"{other}: is in the way of a new session; remove it or choose another name")


def _take_away(path: Path) -> None:
    """Delete a session of this user with its temporary files. Raises SessionError when it is anything else."""
    if os.path.lexists(path):
        try:
            check_own_session(path)
        except SessionError as error:
            raise SessionError(
                f"{error}: --force does not replace it; remove it yourself or choose another name"
            ) from None
    for other in sqlite_temporary_files(path):
        if os.path.lexists(other) and not is_own_file(other):
            raise SessionError(f"{other}: is not a file of yours; remove it or choose another name")
    _remove(path)


def check_own_session(path: Path) -> None:
    """Raise SessionError unless a path is a regular file of this user that begins like a session, whole or not."""
    if not is_own_file(path):
        raise SessionError(f"{path}: is not a file of yours")
    check_header(path)


def _remove(path: Path) -> None:
    for name in (path, *sqlite_temporary_files(path)):
        name.unlink(missing_ok=True)
