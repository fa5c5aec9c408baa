"""The database of measurements: one SQLite file; a finished row is in it for good, whatever is killed afterwards."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from memtui.bench.configuration import canonical
from memtui.bench.plan import Plan
from memtui.bench.quiet import quiet_blocks
from memtui.bench.result import Row
from memtui.bench.speed import at_reference
from memtui.errors import UserError
from memtui.foreign import visible
from memtui.os_errors import why
from memtui.small_file import check_plain

APPLICATION_ID = 0x4D544244  # "MTBD" in the SQLite header
SCHEMA_VERSION = 3
_SINCE_1 = (
    "measurement ADD COLUMN quiet REAL",
    "measurement ADD COLUMN yard_limit_ns REAL",
    "window ADD COLUMN yard_ns BLOB NOT NULL DEFAULT x''",
)
_SINCE_2 = tuple(f"measurement ADD COLUMN {name} REAL" for name in ("measured_ns", "speed", "follows", "reference_ns"))
_TABLES = ("device", "environment", "configuration", "run", "measurement", "window")


class DatabaseError(UserError):
    """The file cannot be used as a database of measurements; the text says why."""


class Database:
    """One file, open for reading and writing. Made where there is none. Raises DatabaseError."""

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        try:
            new = _is_new(path)
            if new and not create:
                raise DatabaseError(f"{path}: No such file; --db names a database, and measuring makes one")
            if new:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=10)
            self._connection.row_factory = sqlite3.Row
            self._prepare()
        except DatabaseError:
            raise
        except UserError as error:
            raise DatabaseError(str(error)) from None
        except OSError as error:
            raise DatabaseError(f"{path}: cannot be used: {why(path, error)}") from None
        except sqlite3.Error as error:
            raise DatabaseError(f"{path}: cannot be used: {visible(str(error)[:120])}") from None

    def _prepare(self) -> None:
        """See what the file is, and make it where it is empty. Raises DatabaseError."""
        connection = self._connection
        identity, version, tables = self._identity()
        if not identity and not tables:
            connection.execute("PRAGMA journal_mode=WAL")
            head = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={SCHEMA_VERSION};"
            try:
                connection.executescript(f"BEGIN EXCLUSIVE; {_schema()} {head} COMMIT;")
            except sqlite3.OperationalError:  # another one made it meanwhile
                connection.rollback()
            identity, version, tables = self._identity()
        if identity == APPLICATION_ID and version in (1, 2):
            self._bring_up()
            identity, version, tables = self._identity()
        why = ""
        if identity != APPLICATION_ID:
            why = "is not a database of memtui bench"
        elif version != SCHEMA_VERSION:
            why = f"has format {version}, and this memtui knows {SCHEMA_VERSION}"
        elif _columns(connection) != _known_columns():  # their names go into statements
            why = f"is not a database of memtui bench: its tables are not those of format {SCHEMA_VERSION}"
        if why:
            self.close()
            raise DatabaseError(f"{self.path}: {why}")
        connection.execute("PRAGMA synchronous=NORMAL")

    def _bring_up(self) -> None:
        """Give a file of an older format what it lacks, unless another one just did."""
        connection = self._connection
        with connection:
            connection.execute("BEGIN EXCLUSIVE")
            version = self._one("PRAGMA user_version")
            for change in (*(_SINCE_1 if version < 2 else ()), *(_SINCE_2 if version < 3 else ())):
                connection.execute(f"ALTER TABLE {change}")
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    def _identity(self) -> tuple[int, int, int]:
        """(application, format, number of tables) at one moment."""
        connection = self._connection
        connection.execute("BEGIN")
        try:
            tables = self._one("SELECT count(*) FROM sqlite_master")
            return self._one("PRAGMA application_id"), self._one("PRAGMA user_version"), tables
        finally:
            connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()

    def begin_run(self, plan: Plan, idle_w: float | None, idle_reason: str) -> str:
        """Name of a new run."""
        name = secrets.token_hex(8)
        row = name, time.time_ns(), socket.gethostname(), canonical(plan.to_plain()), idle_w, idle_reason
        self._connection.execute("INSERT INTO run VALUES (?, ?, ?, ?, ?, ?)", row)
        return name

    def device(self, kind: str, name: str, uuid: str) -> int:
        """Number of a device, which is taken in if it is new."""
        self._connection.execute("INSERT OR IGNORE INTO device(kind, name, uuid) VALUES (?, ?, ?)", (kind, name, uuid))
        return self._one("SELECT id FROM device WHERE kind = ? AND name = ? AND uuid = ?", kind, name, uuid)

    def environment(self, plain: dict[str, Any]) -> int:
        """Number of an environment, which is taken in if it is new."""
        self._connection.execute("INSERT OR IGNORE INTO environment(text) VALUES (?)", (canonical(plain),))
        return self._one("SELECT id FROM environment WHERE text = ?", canonical(plain))

    def add(self, row: Row, run: str, device: int, environment: int) -> None:
        """Take in a finished row with its windows, at once."""
        made = row.configuration
        values = row.columns() | {
            "run": run,
            "configuration": made.key,
            "device": device,
            "environment": environment,
            "t_wall_ns": time.time_ns(),
            "reference": int(row.reference),
            "flags": " ".join(row.flags),
        }
        with self._connection as connection:  # all of it or nothing
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT OR IGNORE INTO configuration VALUES (?, ?, ?)", (made.key, made.op, made.text))
            measurement = self._insert("measurement", values)
            for n, window in enumerate(row.windows):
                counter, integral = row.energies[n].counter, row.energies[n].integral
                plain = {
                    "measurement": measurement,
                    "number": n,
                    "calls": window.calls,
                    "wall_ns": window.wall_ns,
                    "busy_ns": window.busy_ns,
                    "cpu_ns": window.cpu_ns,
                    "block_ns": np.asarray(window.block_ns, "<f8").tobytes(),
                    "yard_ns": np.asarray(window.yard_ns, "<f8").tobytes(),
                    "counter_j": counter.energy_j,
                    "counter_ns": None if counter.energy_j is None else counter.end_ns - counter.begin_ns,
                    "integral_j": integral.energy_j,
                    "reason": counter.reason or integral.reason,
                    "state": canonical(row.states[n] if n < len(row.states) else {}),
                }
                self._insert("window", plain)

    def done(self, device: int, environment: int, plan: Plan) -> set[str]:
        """Keys of configurations that were measured there, as well as this plan would."""
        rows = self._connection.execute(
            "SELECT configuration FROM measurement WHERE device = ? AND environment = ? AND NOT reference "
            "AND status = 'ok' AND windows >= ? AND seconds >= ?",
            (device, environment, plan.windows, plan.seconds),
        )
        return {key for (key,) in rows}

    def rows(self, *, op: str | None = None, references: bool = False) -> Iterator[dict[str, Any]]:
        """Measurements as plain values, oldest first, with op, text, device, kind, environment, host; no windows."""
        query = (
            "SELECT m.*, c.op, c.text, d.name AS device_name, d.kind AS device_kind, d.uuid AS device_uuid, "
            "e.text AS environment_text, r.host, r.idle_w FROM measurement m "
            "JOIN configuration c ON c.key = m.configuration JOIN device d ON d.id = m.device "
            "JOIN environment e ON e.id = m.environment JOIN run r ON r.id = m.run "
            "WHERE (? IS NULL OR c.op = ?) AND (? OR NOT m.reference) ORDER BY m.t_wall_ns, m.id"
        )
        for row in self._connection.execute(query, (op, op, references)):
            yield dict(row)

    def window_means(self, measurement: int) -> list[float]:
        """Mean nanoseconds of a call in each window of a measurement."""
        query = "SELECT wall_ns, calls FROM window WHERE measurement = ? ORDER BY number"
        return [wall_ns / calls for wall_ns, calls in self._connection.execute(query, (measurement,))]

    def quiet_means(self, measurement: int, reference_ns: float | None = None) -> list[float]:
        """The same of the quiet blocks of the windows that have some; empty where there was no yardstick.

        At the speed of the CPU at which that takes ``reference_ns``; as measured where that is None.
        """
        query = (
            "SELECT w.block_ns, w.yard_ns, m.yard_limit_ns, m.follows FROM window w "
            "JOIN measurement m ON m.id = w.measurement "
            "WHERE w.measurement = ? AND m.yard_limit_ns IS NOT NULL AND length(w.block_ns) = length(w.yard_ns) "
            "ORDER BY w.number"
        )
        found = self._connection.execute(query, (measurement,))
        means = []
        for block, yard, limit_ns, follows in found:
            blocks, yards = np.frombuffer(block, "<f8"), np.frombuffer(yard, "<f8")
            if reference_ns is not None:
                blocks = at_reference(blocks, yards, reference_ns, follows)
            if len(quiet := quiet_blocks(blocks, yards, limit_ns)):
                means.append(float(quiet.mean()))
        return means

    def counts(self) -> dict[str, int]:
        """Rows of each table."""
        return {table: self._one(f"SELECT count(*) FROM {table}") for table in _TABLES}

    def merge(self, other: Path) -> int:
        """Take in what another database has and this one has not; how many measurements that were.

        Raises:
            DatabaseError: the other one is none.
        """
        with closing(Database(other, create=False)) as checked:
            devices = {r["id"]: self.device(r["kind"], r["name"], r["uuid"]) for r in checked._all("device")}
            environments = {r["id"]: self.environment(json.loads(r["text"])) for r in checked._all("environment")}
            with self._connection as connection:
                connection.execute("BEGIN IMMEDIATE")
                for table in ("configuration", "run"):
                    for r in checked._all(table):
                        marks = ", ".join("?" * len(r.keys()))
                        connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", tuple(r))
                known = {tuple(r) for r in connection.execute("SELECT run, configuration, t_wall_ns FROM measurement")}
                added = 0
                for r in checked._all("measurement"):
                    if (r["run"], r["configuration"], r["t_wall_ns"]) in known:
                        continue
                    plain = dict(r) | {"device": devices[r["device"]], "environment": environments[r["environment"]]}
                    before = plain.pop("id")
                    measurement = self._insert("measurement", plain)
                    for w in checked._connection.execute("SELECT * FROM window WHERE measurement = ?", (before,)):
                        self._insert("window", dict(w) | {"measurement": measurement})
                    added += 1
            return added

    def _insert(self, table: str, values: Mapping[str, Any]) -> int | None:
        """Take in a row, by column; its number."""
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        query = f"INSERT INTO {table}({names}) VALUES ({marks})"
        return self._connection.execute(query, tuple(values.values())).lastrowid

    def _all(self, table: str) -> list[sqlite3.Row]:
        return self._connection.execute(f"SELECT * FROM {table}").fetchall()

    def _one(self, query: str, *values: Any) -> int:
        return int(self._connection.execute(query, values).fetchone()[0])


def _is_new(path: Path) -> bool:
    """Whether a database has to be made there. Raises OSError, and UserError for what cannot be one."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return True
    check_plain(path, status)
    os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))  # SQLite's own words do not tell rights from damage
    return False


def _schema() -> str:
    return files("memtui.bench").joinpath("schema.sql").read_text()


def _columns(connection: sqlite3.Connection) -> set[tuple[str, ...]]:
    """(table, column, column ...) of every table."""
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
    query = "SELECT name FROM pragma_table_info(?) ORDER BY cid"
    return {(table, *(row[0] for row in connection.execute(query, (table,)))) for table in tables}


@cache
def _known_columns() -> set[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_schema())
        return _columns(connection)
