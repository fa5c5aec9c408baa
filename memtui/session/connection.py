"""The file of a session, open for questions whose answers are checked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

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
from memtui.session.tables import TABLES, MetaRecord, Selection, selection
from memtui.session.validation import check_rows, parse_json

Record = TypeVar("Record")


class Database:
    """A session's file. It is opened by the first question, and again by the first one after ``release``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._missing: frozenset[str] = frozenset()
        self._missing_columns: dict[str, frozenset[str]] = {}  # by table
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
            self._missing, self._missing_columns = missing_tables(version), missing_columns(version)
            self._has_log = has_log(self._connection)
        return self._connection

    def _has(self, record: type) -> bool:
        """Whether sessions of this one's format have the table of a record."""
        self._open()
        return TABLES[record] not in self._missing

    def _selection(self, record: type, *names: str) -> Selection:
        """Return some columns of a record's table, or all, also where sessions of this one's format lack some."""
        self._open()
        return selection(record, names, self._missing_columns.get(TABLES[record], frozenset()))

    def _rows(self, record: type, rest: str, *values: Any, names: Iterable[str] = ()) -> list[tuple[Any, ...]]:
        """Return rows of a record's table, checked: all columns or the named ones. ``rest`` is SQL behind FROM."""
        columns, kinds = self._selection(record, *names)
        return self._all(f"SELECT {columns} FROM {TABLES[record]} {rest}", kinds, *values)

    def _records(self, record: type[Record], rest: str, *values: Any) -> list[Record]:
        """Return the records of such rows; none where sessions of this one's format have no such table."""
        return [record(*row) for row in self._rows(record, rest, *values)] if self._has(record) else []

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
            rows = self._rows(MetaRecord, "WHERE key != ?", without)
            return {key: parse_json(value) for key, value in rows}
        except ValueError as error:
            raise self._damaged(f"its description: {error}") from None
