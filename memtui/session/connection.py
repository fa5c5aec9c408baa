"""The file of a session, open for questions whose answers are checked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from memtui.session.file_format import (
    SessionError,
    connect_reader,
    format_of,
    has_log,
    missing_columns,
    missing_tables,
    read_all,
    unreadable,
)
from memtui.session.validation import check_rows, parse_json


class Database:
    """A session's file. It is opened by the first question, and again by the first one after ``release``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._missing: frozenset[str] = frozenset()
        self._instead: dict[str, str] = {}  # of columns that are missing
        self._has_log = False  # as of the moment it was opened

    def release(self) -> None:
        """Let go of the file, so that the recorder can fold it; the next question opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    close = release

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect_reader(self.path)
            version = format_of(self._connection)
            self._missing, self._instead = missing_tables(version), missing_columns(version)
            self._has_log = has_log(self._connection)
        return self._connection

    def _has(self, table: str) -> bool:
        """Whether sessions of this one's format have a table."""
        self._open()
        return table not in self._missing

    def _columns(self, names: Iterable[str]) -> str:
        """Return a list of columns to ask for, also where sessions of this one's format lack some."""
        self._open()
        return ", ".join(self._instead.get(name, name) for name in names)

    def _all(self, query: str, kinds: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of an answer, checked against the kinds of its columns (``validation.check_rows``)."""
        try:
            rows = read_all(self._open(), self.path, query, values)
            check_rows(rows, kinds)
        except sqlite3.DatabaseError as error:
            raise unreadable(self.path, error) from None
        except ValueError as error:
            raise self._damaged(str(error)) from None
        return rows

    def _damaged(self, what: str) -> SessionError:
        return SessionError(f"{self.path}: is damaged: {what}")

    def _meta(self, without: str = "") -> dict[str, Any]:
        try:
            rows = self._all("SELECT key, value FROM meta WHERE key != ?", "tt", without)
            return {key: parse_json(value) for key, value in rows}
        except ValueError as error:
            raise self._damaged(f"its description: {error}") from None
