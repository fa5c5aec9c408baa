"""What was measured before, kept between runs: one SQLite file, to which a finished measurement is added at once.

A measurement is named by all that it depends on, so what is found is as good as measured now. Whatever ends the
process, the file has every measurement that was added (a transaction each, written through).
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memtui.errors import FAILURE, UserError

_MAGIC = 0x6D706C63  # SQLite's application_id of this file: "mplc"
_VERSION = 1
_COLUMNS = "key TEXT PRIMARY KEY, what TEXT NOT NULL, value TEXT NOT NULL"


def key_of(what: Mapping[str, Any]) -> str:
    """Name of a measurement: of everything that it depends on."""
    return hashlib.sha256(json.dumps(what, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class Cache:
    """Use as a context manager. Raises UserError for a file that is something else, also later when it is damaged."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=10, isolation_level=None)
            self._prepare()
        except (sqlite3.Error, OSError) as error:
            raise self._unusable(error) from None

    def _prepare(self) -> None:
        (magic,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not magic and not tables:
            self._path.chmod(0o600)
            self._db.executescript(
                f"BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS measured({_COLUMNS}) WITHOUT ROWID;"
                f"PRAGMA application_id={_MAGIC}; PRAGMA user_version={_VERSION}; COMMIT"
            )
        elif magic != _MAGIC:
            self._db.close()
            raise UserError(f"{self._path} is no cache of memtui place; name another one with --cache")
        elif version != _VERSION:
            self._db.close()
            raise UserError(
                f"{self._path} was written by another version of memtui; name another one with --cache, or delete it"
            )

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def get(self, what: Mapping[str, Any]) -> Any:
        """A measurement; None where there is none."""
        try:
            row = self._db.execute("SELECT value FROM measured WHERE key = ?", (key_of(what),)).fetchone()
            return None if row is None else json.loads(row[0])
        except (sqlite3.Error, ValueError) as error:
            raise self._unusable(error) from None

    def put(self, found: list[tuple[Mapping[str, Any], Any]]) -> None:
        """Add measurements that were finished together: all of them or, when this is interrupted, none."""
        rows = [(key_of(what), json.dumps(what, sort_keys=True), json.dumps(value)) for what, value in found]
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO measured VALUES (?, ?, ?)", rows)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> UserError:
        if isinstance(error, sqlite3.DatabaseError) and "not a database" in str(error):
            return UserError(f"{self._path} is no cache of memtui place; name another one with --cache")
        why = error.strerror if isinstance(error, OSError) else error
        return UserError(f"{self._path}: the cache cannot be used: {why}; name another one with --cache", FAILURE)
