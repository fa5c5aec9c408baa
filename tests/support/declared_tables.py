"""Tables as their dataclasses declare them, and as a file has them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing

from memtui.session.columns import columns_of

_DECLARED = {"i": ("INTEGER", True), "I": ("INTEGER", False), "n": ("REAL", True), "r": ("REAL", False)} | {
    "t": ("TEXT", True),
    "b": ("BLOB", True),
}
Tables = dict[str, dict[str, tuple[str, bool]]]  # type and NOT NULL of every column, by table and column


def declared(tables: Mapping[type, str]) -> Tables:
    return {
        table: {name: _DECLARED[kind] for name, kind in columns_of(record).items()} for record, table in tables.items()
    }


def in_schema(schema: str) -> Tables:
    """The tables that a text of SQL makes."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(schema)
        return in_file(connection)


def in_file(connection: sqlite3.Connection) -> Tables:
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        name: {
            # A key is never NULL, whether its declaration says so or not.
            column: (kind, bool(not_null or key))
            for _, column, kind, not_null, _, key in connection.execute(f"PRAGMA table_info({name})")
        }
        for name in names
    }
