"""The file of a session, open for queries whose rows are checked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
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
from memtui.session.schema import TABLES, MetaRecord, Selection, selection
from memtui.session.validation import check_rows, parse_json

Record = TypeVar("Record")
Row = tuple[Any, ...]
_MOST_VALUES = 512  # of a statement; SQLite before 3.32 takes 999


def one_of(column: str, numbers: Iterable[int]) -> Iterator[tuple[str, list[int]]]:
    """Yield conditions in SQL that a column is one of some numbers, each with its values; the numbers rise.

    A connection keeps its last 128 statements compiled: 80 kB each for a thousand numbers that are written out. Here
    they are values, and a power of two in number, so that few statements differ. The last one is repeated.
    """
    rising = sorted(numbers)
    for first in range(0, len(rising), _MOST_VALUES):
        some = rising[first : first + _MOST_VALUES]
        count = 1 << (len(some) - 1).bit_length()
        yield f"{column} IN ({', '.join('?' * count)})", [*some, *some[-1:] * (count - len(some))]


class SessionFile:
    """A session's file. The first query opens it, and so does the first query after ``release``.

    Every method raises SessionError where the file cannot be read or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._missing_tables: frozenset[str] = frozenset()
        self._missing_columns: dict[str, frozenset[str]] = {}  # by table
        self.has_log = False  # whether it was being written, or not folded, when it was opened

    def open(self) -> sqlite3.Connection:
        """Return the connection, and open it where it is closed."""
        if self._connection is None:
            self._connection = connect_reader(self.path)
            version = format_of(self._connection)
            self._missing_tables, self._missing_columns = missing_tables(version), missing_columns(version)
            self.has_log = has_log(self._connection)
        return self._connection

    def release(self) -> None:
        """Close the file, so that the recorder can fold it; the next query opens it again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def has(self, record: type) -> bool:
        """Return whether sessions of this file's format have the table of a record."""
        self.open()
        return TABLES[record] not in self._missing_tables

    def selection(self, record: type, *names: str) -> Selection:
        """Return some columns of a record's table, or all, for SELECT, with values for those that the format lacks."""
        self.open()
        return selection(record, names, self._missing_columns.get(TABLES[record], frozenset()))

    def rows(self, record: type, rest: str = "", *values: Any, names: Iterable[str] = ()) -> list[Row]:
        """Return rows of a record's table: all columns or the named ones. ``rest`` is the SQL behind the table."""
        columns, kinds = self.selection(record, *names)
        return self.query(f"SELECT {columns} FROM {TABLES[record]} {rest}", kinds, *values)

    def records(self, record: type[Record], rest: str = "", *values: Any) -> list[Record]:
        """Return the records of such rows; none where sessions of this file's format have no such table."""
        return [record(*row) for row in self.rows(record, rest, *values)] if self.has(record) else []

    def query(self, statement: str, kinds: str, *values: Any) -> list[Row]:
        """Return the rows of a statement, checked against the kinds of its columns (``validation.check_rows``)."""
        try:
            rows = read_all(self.open(), self.path, statement, values)
            check_rows(rows, kinds)
        except sqlite3.DatabaseError as error:
            raise unreadable(self.path, error) from None
        except ValueError as error:
            raise self.damaged(str(error)) from None
        return rows

    def key_after(self, rows: list[Row], low: int) -> int:
        """Return the key after a part of an answer in the order of its keys, which started at ``low``."""
        if rows[-1][0] < low:
            raise self.damaged("its rows are not in order")
        return int(rows[-1][0]) + 1

    def meta(self, without: str = "") -> dict[str, Any]:
        """Return the description by key, ``without`` one that is not read again."""
        try:
            return {key: parse_json(value) for key, value in self.rows(MetaRecord, "WHERE key != ?", without)}
        except ValueError as error:
            raise self.damaged(f"its description: {error}") from None

    def damaged(self, what: str) -> SessionError:
        """Return the error for a file that is damaged."""
        return SessionError(f"{self.path}: is damaged: {what}")
