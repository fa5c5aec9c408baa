"""Cache of measurements between runs: one SQLite file, to which a finished measurement is added at once.

The key of a measurement holds everything that it depends on, so a cached value is as good as a new one. Whatever ends
the process, the file has every measurement that was added (a transaction each, written through).
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memtui.core.errors import FAILURE, UserError
from memtui.core.json_fields import to_json
from memtui.core.os_errors import why
from memtui.core.small_file import check_regular
from memtui.core.text import printable
from memtui.session.columns import insertion_into
from memtui.session.file_format import SessionError, connect_writer, format_of, read_all, tables_in, tables_of
from memtui.session.validation import check_rows, parse_json

_MAGIC = 0x6D706C63  # SQLite's application_id of this file: "mplc"
_VERSION = 1
TABLE = "measured"
_SCHEMA = f"CREATE TABLE {TABLE}(key TEXT PRIMARY KEY, what TEXT NOT NULL, value TEXT NOT NULL) WITHOUT ROWID"
ANOTHER = "name another one with --cache"
_MESSAGE_CHARACTERS = 120


def _digest(key: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class MeasuredRecord:
    """The row of a measurement: the hash of its key, and key and measurement as JSON."""

    key: str
    what: str
    value: str


class Cache:
    """Use as a context manager. Every method raises UserError for a file that is not a cache, or is damaged."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(path):
                check_regular(path, path.stat())
            # SQLite's messages do not distinguish missing rights from damage.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._db = connect_writer(path, self._prepare)
        except OSError as error:
            raise UserError(f"{path}: the cache cannot be used: {why(path, error, ANOTHER)}") from None
        except SessionError as error:
            raise self._unusable(error) from None

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Check the file, and create the table where the file is empty. Raises UserError and sqlite3.Error."""
        if not tables_in(connection, self._path) and not self._identity(connection):
            try:
                connection.executescript(
                    f"BEGIN EXCLUSIVE; {_SCHEMA};PRAGMA application_id={_MAGIC}; PRAGMA user_version={_VERSION}; COMMIT"
                )
            except sqlite3.OperationalError:
                connection.rollback()
                if not self._identity(connection):  # unless another process created the table meanwhile
                    raise
        if self._identity(connection) != _MAGIC:
            raise self._not_a_cache_error()
        if format_of(connection) != _VERSION:
            raise UserError(f"{self._path} was written by another version of memtui; {ANOTHER}, or delete it")
        if tables_in(connection, self._path) != tables_of(_SCHEMA):
            raise self._not_a_cache_error()

    @staticmethod
    def _identity(connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA application_id").fetchone()[0])

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def get(self, key: object) -> Any:
        """Return the measurement of a key as JSON, which another program may have written; None where there is none."""
        try:
            query = f"SELECT value FROM {TABLE} WHERE key = ?"
            rows = read_all(self._db, self._path, query, (_digest(to_json(key)),))
            check_rows(rows, "t")
            return parse_json(rows[0][0]) if rows else None
        except (sqlite3.Error, SessionError, ValueError) as error:
            raise self._unusable(error) from None

    def put(self, measurements: Sequence[tuple[object, object]]) -> None:
        """Add measurements that were finished together: all of them or, when interrupted, none."""
        statement, values = insertion_into(TABLE, MeasuredRecord)
        rows = []
        for key, value in measurements:
            fields = to_json(key)
            text = json.dumps(fields, sort_keys=True)
            rows.append(values(MeasuredRecord(_digest(fields), text, json.dumps(to_json(value)))))
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(statement, rows)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def _not_a_cache_error(self) -> UserError:
        return UserError(f"{self._path} is not a cache of memtui place; {ANOTHER}")

    def _unusable(self, error: Exception) -> UserError:
        if "not a database" in str(error):
            return self._not_a_cache_error()
        message = str(error).removeprefix(f"{self._path}: ")[:_MESSAGE_CHARACTERS]
        return UserError(f"{self._path}: the cache cannot be used: {printable(message)}; {ANOTHER}", FAILURE)
