"""Writes a session: one connection, one transaction at a time, committed by the recorder's clock."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Any

from memtui.session.store import APPLICATION_ID, SCHEMA_VERSION, seal

PAGE_BYTES = 8192  # blobs of some kB waste less of a page than with 4096


class SessionWriter:
    """Creates the file (mode 0600: a session discloses an address layout) and appends rows.

    Raises FileExistsError, PermissionError and other OSErrors when the file cannot be made.
    """

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self.path = path
        if overwrite:
            remove(path)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
        self._connection = connection = sqlite3.connect(path, isolation_level=None)
        connection.execute(f"PRAGMA page_size={PAGE_BYTES}")
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        # NFS and some containers refuse WAL; the plain journal works there, and readers wait a little for commits.
        self.wal = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0] == "wal"
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint=256")
        connection.execute("PRAGMA journal_size_limit=4194304")
        connection.executescript(files("memtui.session").joinpath("schema.sql").read_text())

    def put_meta(self, **values: Any) -> None:
        """Set JSON values by key."""
        self._begin()
        rows = ((key, json.dumps(value)) for key, value in values.items())
        self._connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)

    def insert(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Append rows given in the column order of the schema; a row with a known key replaces the old one."""
        self._begin()
        for row in rows:
            marks = ",".join("?" * len(row))
            self._connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)

    def delete(self, table: str, ids: Iterable[int]) -> None:
        """Remove rows by their ``id``."""
        self._begin()
        self._connection.executemany(f"DELETE FROM {table} WHERE id = ?", ((i,) for i in ids))

    def commit(self) -> None:
        """Make everything so far readable for others and safe from a kill."""
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")

    def close(self) -> bool:
        """Commit and, unless somebody still reads it, fold the session into one plain file. True when folded."""
        self.commit()
        self._connection.close()
        return seal(self.path)

    def discard(self) -> None:
        """Close and take the file away: nothing was recorded."""
        self._connection.close()
        remove(self.path)

    def _begin(self) -> None:
        if not self._connection.in_transaction:
            self._connection.execute("BEGIN")


def remove(path: Path) -> None:
    """Delete a session with what SQLite keeps beside it."""
    for name in (path.name, path.name + "-wal", path.name + "-shm"):
        path.with_name(name).unlink(missing_ok=True)
