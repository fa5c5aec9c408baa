"""Validation of a file of measurements before its use: a bench database, of a known format, with the exact tables."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from importlib.resources import files
from pathlib import Path

from memtui.core.errors import UserError
from memtui.core.small_file import check_regular
from memtui.session.file_format import SessionError, application_id, format_of, sqlite_header, tables_in, tables_of

APPLICATION_ID = 0x4D544244  # "MTBD" in the SQLite header
SCHEMA_VERSION = 3
_REAL = "REAL"
# By format: the columns that the format before it lacks, in the order of the schema.
_SINCE = {
    2: (
        ("measurement", "quiet", _REAL),
        ("measurement", "yard_limit_ns", _REAL),
        ("window", "yard_ns", "BLOB NOT NULL DEFAULT x''"),
    ),
    3: tuple(("measurement", name, _REAL) for name in ("measured_ns", "speed", "follows", "reference_ns")),
}
_KINDS = {("INTEGER", True): "i", ("INTEGER", False): "I", (_REAL, True): "n", (_REAL, False): "r"}
_KINDS |= {(of, required): kind for of, kind in (("TEXT", "t"), ("BLOB", "b")) for required in (True, False)}
# By table and name: kind of a column (``session.validation.check_rows``), and its SQL substitute where a file lacks it.
Columns = Mapping[str, Mapping[str, tuple[str, str]]]


class DatabaseError(UserError):
    """The file cannot be used as a database of measurements; the text says why."""


def check_place(path: Path, *, writable: bool) -> None:
    """Check that a database exists, or create it with mode 0600. Raises UserError and OSError."""
    try:
        check_regular(path, path.stat())
    except FileNotFoundError:
        if not writable:
            raise DatabaseError(f"{path}: No such file; --db names a database, and measuring makes one") from None
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    # SQLite's own messages do not distinguish missing rights from damage.
    os.close(os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC))
    if not writable and application_id(sqlite_header(path, "bench database")[0]) != APPLICATION_ID:
        raise DatabaseError(f"{path}: is not a database of memtui bench")


def make_tables(connection: sqlite3.Connection) -> None:
    """Create the tables in an empty file. Raises sqlite3.Error."""
    if any(_identity(connection)):
        return
    head = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={SCHEMA_VERSION};"
    try:
        connection.executescript(f"BEGIN EXCLUSIVE; {_schema()} {head} COMMIT;")
    except sqlite3.OperationalError:
        connection.rollback()
        if not any(_identity(connection)):  # or another process has created them meanwhile
            raise


def checked_columns(connection: sqlite3.Connection, path: Path) -> Columns:
    """Return the columns of a bench database. Raises SessionError, also for other files, and sqlite3.Error."""
    (identity,) = connection.execute("PRAGMA application_id").fetchone()
    version = format_of(connection)
    if identity != APPLICATION_ID:
        raise SessionError(f"{path}: is not a database of memtui bench")
    if not 1 <= version <= SCHEMA_VERSION:
        raise SessionError(f"{path}: has format {version}, and this memtui knows 1 to {SCHEMA_VERSION}")
    if tables_in(connection, path) != _tables_of_format(version):
        raise SessionError(f"{path}: is not a database of memtui bench: its tables are not those of format {version}")
    return _columns(version)


def bring_up(connection: sqlite3.Connection) -> None:
    """Add the columns that a file of an older format lacks, unless another process just did. Raises sqlite3.Error."""
    with connection:
        connection.execute("BEGIN EXCLUSIVE")
        for table, name, declared in _lacking(format_of(connection)):
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {name} {declared}")
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def _identity(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return (application, number of tables)."""
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return connection.execute("PRAGMA application_id").fetchone()[0], tables


def _lacking(version: int) -> list[tuple[str, str, str]]:
    """Return the table, name and declaration of the columns that a format lacks."""
    return [column for since, columns in _SINCE.items() if since > version for column in columns]


def _schema() -> str:
    return files("memtui.bench").joinpath("schema.sql").read_text()


@cache
def _tables_of_format(version: int) -> list[tuple[str, ...]]:
    """Return the tables of a format.

    The result is the same whether a column is in the schema or was added later.
    """
    tables = []
    for kind, name, table, text in tables_of(_schema()):
        for of, column, declared in _lacking(version):
            if of == name:
                text = text.replace(f", {column} {declared}", "")
        tables.append((kind, name, table, text))
    return sorted(tables)


@cache
def _columns(version: int) -> Columns:
    missing = {(table, name): "x''" if "BLOB" in declared else "NULL" for table, name, declared in _lacking(version)}
    columns: dict[str, dict[str, tuple[str, str]]] = {}
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_schema())
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            query = 'SELECT name, type, "notnull" OR pk FROM pragma_table_info(?) ORDER BY cid'
            columns[table] = {
                name: (_KINDS[declared, bool(required)], missing.get((table, name), ""))
                for name, declared, required in connection.execute(query, (table,))
            }
    return columns
