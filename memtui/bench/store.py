"""The database of measurements: one SQLite file; a finished row stays in it, whatever is killed afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.bench.configuration import canonical
from memtui.bench.cpu_speed import scaled_to_reference
from memtui.bench.database_file import (
    SCHEMA_VERSION,
    Columns,
    DatabaseError,
    bring_up,
    check_place,
    checked_columns,
    make_tables,
)
from memtui.bench.plan import BenchPlan
from memtui.bench.result import BenchRow
from memtui.bench.schema import (
    TABLES,
    ConfigurationRecord,
    DeviceRecord,
    EnvironmentRecord,
    MeasurementRecord,
    RunRecord,
    WindowRecord,
)
from memtui.bench.undisturbed_blocks import quiet_blocks
from memtui.core.errors import FAILURE, UserError
from memtui.core.json_fields import to_json
from memtui.core.os_errors import why
from memtui.core.text import printable
from memtui.session.columns import insert_statement, insertion_into
from memtui.session.file_format import (
    SessionError,
    connect,
    connect_writer,
    format_of,
    is_own_file,
    read_all,
    seal,
    sqlite_temporary_files,
    unreadable,
)
from memtui.session.validation import check_rows, parse_json

_TABLES = ("device", "environment", "configuration", "run", "measurement", "window")
ABORT, IGNORE = "ABORT", "IGNORE"  # as SQLite calls it

Environment = Mapping[str, str | int | float]  # versions, threads and limits by name


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A measurement, with the columns that other parts of the bench read. ``schema.sql`` explains the columns.

    Attributes:
        configuration: key of the configuration.
        op: name of the operator.
        text: text of the configuration.
        environment_text: JSON.
        flags: flags of the row.
    """

    id: int
    run: str
    configuration: str
    op: str
    text: str
    device: int
    device_kind: str
    device_name: str
    environment: int
    environment_text: str
    windows: int
    seconds: float
    status: str
    call_ns: float | None
    energy_status: str
    energy_reason: str
    energy_source: str
    energy_scope: str
    energy_j: float | None
    reference_ns: float | None
    flags: tuple[str, ...]

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any]) -> StoredRow:
        """Take a row of ``Database.rows``."""
        values = {field.name: columns[field.name] for field in fields(cls)}
        return cls(**{**values, "flags": tuple(columns["flags"].split())})


class Database:
    """One file. It is not trusted: nothing in it is executed, and every value is validated. Raises DatabaseError."""

    def __init__(self, path: Path, *, writable: bool = True) -> None:
        """Open a file. ``writable``: also for writing; the file is created, or upgraded from an older format."""
        self.path, self._writable = path, writable
        try:
            check_place(path, writable=writable)
            if not writable and is_own_file(path) and not any(map(os.path.lexists, sqlite_temporary_files(path))):
                self._seal_for_reading()
            self._connection = (connect_writer if writable else connect)(path, self._prepare)
        except DatabaseError:
            raise
        except UserError as error:
            raise DatabaseError(str(error)) from None
        except OSError as error:
            raise DatabaseError(f"{path}: cannot be used: {why(path, error)}") from None
        if writable:
            with suppress(sqlite3.Error):  # another process reads it: then without a log
                if self._connection.execute("PRAGMA journal_mode=WAL").fetchone()[0] == "wal":
                    self._connection.execute("PRAGMA synchronous=NORMAL")

    def _seal_for_reading(self) -> None:
        """Fold the log away, also an empty one: SQLite would leave files next to it. Raises UserError."""
        try:
            seal(self.path, self._check, 0.0)
        except (sqlite3.OperationalError, OSError):
            pass  # with its log it can be read, too
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise unreadable(self.path, error) from None

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Validate the file, and create the tables where it is empty. Raises SessionError and sqlite3.Error."""
        if self._writable:
            make_tables(connection)
        self._columns = self._check(connection)
        if self._writable and format_of(connection) < SCHEMA_VERSION:
            bring_up(connection)
            self._columns = self._check(connection)

    def _check(self, connection: sqlite3.Connection) -> Columns:
        return checked_columns(connection, self.path)

    def close(self) -> None:
        """Close the file. A writer leaves a single file without a log, if no other process has it open."""
        self._connection.close()
        if self._writable:
            with suppress(UserError, sqlite3.Error, OSError):  # another file has taken its place, or the log stays
                seal(self.path, self._check, 0.0)

    def start_run(self, plan: BenchPlan, idle_w: float | None, idle_reason: str) -> str:
        """Insert a run and return its name."""
        name, text = secrets.token_hex(8), canonical(to_json(plan))
        self._insert_record(RunRecord(name, time.time_ns(), socket.gethostname(), text, idle_w, idle_reason))
        return name

    def device(self, kind: str, name: str, uuid: str) -> int:
        """Return the number of a device, which is inserted if it is new."""
        self._insert_record(DeviceRecord(kind, name, uuid), IGNORE)
        return self._scalar("SELECT id FROM device WHERE kind = ? AND name = ? AND uuid = ?", kind, name, uuid)

    def environment(self, versions: Environment) -> int:
        """Return the number of an environment, which is inserted if it is new."""
        self._insert_record(EnvironmentRecord(canonical(versions)), IGNORE)
        return self._scalar("SELECT id FROM environment WHERE text = ?", canonical(versions))

    def add(self, row: BenchRow, run: str, device: int, environment: int) -> None:
        """Insert a finished row with its windows in one transaction."""
        configuration = row.configuration
        columns = MeasurementRecord(
            run=run,
            configuration=configuration.key,
            device=device,
            environment=environment,
            t_wall_ns=time.time_ns(),
            reference=int(row.reference),
            flags=" ".join(row.flags),
            **row.columns(),
        )
        with self._transaction():
            self._insert_record(ConfigurationRecord(configuration.key, configuration.op, configuration.text), IGNORE)
            measurement = self._insert_record(columns)
            assert measurement is not None
            for n, window in enumerate(row.windows):
                counter, integral = row.energies[n].counter, row.energies[n].integral
                record = WindowRecord(
                    measurement=measurement,
                    number=n,
                    calls=window.calls,
                    wall_ns=window.wall_ns,
                    busy_ns=window.busy_ns,
                    cpu_ns=window.cpu_ns,
                    block_ns=np.asarray(window.block_ns, "<f8").tobytes(),
                    yard_ns=np.asarray(window.yard_ns, "<f8").tobytes(),
                    counter_j=counter.energy_j,
                    counter_ns=None if counter.energy_j is None else counter.end_ns - counter.start_ns,
                    integral_j=integral.energy_j,
                    reason=counter.reason or integral.reason,
                    state=canonical(row.states[n] if n < len(row.states) else {}),
                )
                self._insert_record(record)

    def done(self, device: int, environment: int, plan: BenchPlan) -> set[str]:
        """Return the keys of configurations that were measured there, at least as well as this plan would."""
        query = (
            "SELECT configuration FROM measurement WHERE device = ? AND environment = ? AND NOT reference "
            "AND status = 'ok' AND windows >= ? AND seconds >= ?"
        )
        return {key for (key,) in self._read(query, "t", device, environment, plan.windows, plan.seconds)}

    def finished(self) -> Iterator[StoredRow]:
        """Yield the measurements that have figures, oldest first, without references."""
        return (StoredRow.from_columns(row) for row in self.rows() if row["status"] == "ok")

    def rows(self, *, op: str | None = None, references: bool = False) -> Iterator[dict[str, Any]]:
        """Yield measurements by column, oldest first, with op, text, device, kind, environment, host; no windows."""
        more = {
            "op": "c.op", "text": "c.text", "device_name": "d.name", "device_kind": "d.kind", "device_uuid": "d.uuid",
            "environment_text": "e.text", "host": "r.host", "idle_w": "r.idle_w",
        }  # fmt: skip
        own = self._columns["measurement"]
        wanted = [*(instead or f"m.{name}" for name, (_, instead) in own.items()), *more.values()]
        query = (
            f"SELECT {', '.join(wanted)} FROM measurement m "
            "JOIN configuration c ON c.key = m.configuration JOIN device d ON d.id = m.device "
            "JOIN environment e ON e.id = m.environment JOIN run r ON r.id = m.run "
            "WHERE (? IS NULL OR c.op = ?) AND (? OR NOT m.reference) ORDER BY m.t_wall_ns, m.id"
        )
        names = (*own, *more)
        checked: set[tuple[str, ...]] = set()
        for row in self._read(query, "".join(kind for kind, _ in own.values()) + "t" * 7 + "r", op, op, references):
            columns = dict(zip(names, row, strict=True))
            texts = columns["configuration"], columns["op"], columns["text"], columns["environment_text"]
            if texts not in checked:
                self._check_configuration(*texts[:3])
                self._object(texts[3])
                checked.add(texts)
            yield columns

    def window_means(self, measurement: int) -> list[float]:
        """Return the mean nanoseconds of a call in each window of a measurement."""
        query = "SELECT wall_ns, calls FROM window WHERE measurement = ? ORDER BY number"
        windows = self._read(query, "ii", measurement)
        if not all(wall_ns and calls for wall_ns, calls in windows):
            raise self._damaged("a window has no calls")
        return [wall_ns / calls for wall_ns, calls in windows]

    def clocks_mhz(self) -> dict[int, float]:
        """Return the mean clock of a GPU's multiprocessors in the windows of each measurement that has one."""
        if self._columns["window"]["state"][1]:
            return {}
        clocks: dict[int, list[float]] = {}
        for measurement, text in self._read("SELECT measurement, state FROM window", "it"):
            mhz = self._object(text).get("sm_mhz")
            if isinstance(mhz, int | float) and not isinstance(mhz, bool) and 0 < mhz < 1e6:
                clocks.setdefault(measurement, []).append(float(mhz))
        return {measurement: sum(some) / len(some) for measurement, some in clocks.items()}

    def quiet_means(self, measurement: int, reference_ns: float | None = None) -> list[float]:
        """Return the mean of the quiet blocks of each window that has some; empty without a yardstick.

        Times are scaled to the speed at which the yardstick takes ``reference_ns``; None: as measured.
        """
        window, own = self._columns["window"], self._columns["measurement"]
        if window["yard_ns"][1] or own["yard_limit_ns"][1]:
            return []
        follows = own["follows"][1] or "m.follows"
        query = (
            f"SELECT w.block_ns, w.yard_ns, m.yard_limit_ns, {follows} FROM window w "
            "JOIN measurement m ON m.id = w.measurement "
            "WHERE w.measurement = ? AND m.yard_limit_ns IS NOT NULL AND length(w.block_ns) = length(w.yard_ns) "
            "ORDER BY w.number"
        )
        means = []
        for block, yard, limit_ns, share in self._read(query, "bbnr", measurement):
            blocks, yards = self._times(block), self._times(yard)
            if reference_ns is not None:
                blocks = scaled_to_reference(blocks, yards, reference_ns, share)
            if len(quiet := quiet_blocks(blocks, yards, limit_ns)):
                means.append(float(quiet.mean()))
        return means

    def counts(self) -> dict[str, int]:
        """Return the rows of each table."""
        return {table: self._scalar(f"SELECT count(*) FROM {table}") for table in _TABLES}

    def merge(self, other: Path) -> int:
        """Insert the rows of another database that this one lacks; return the number of new measurements.

        Raises:
            DatabaseError: the other file is not a database, or damaged.
        """
        with closing(Database(other, writable=False)) as checked, self._transaction():
            devices = {r["id"]: self.device(r["kind"], r["name"], r["uuid"]) for r in checked._all("device")}
            environments = {r["id"]: self.environment(checked._object(r["text"])) for r in checked._all("environment")}
            configurations = {c["key"]: c for c in checked._all("configuration")}
            for configuration in configurations.values():
                checked._check_configuration(*configuration.values())
                self._insert("configuration", configuration, IGNORE)
            runs = {run["id"]: run for run in checked._all("run")}
            for run in runs.values():
                self._insert("run", run, IGNORE)
            there: dict[str, Mapping[Any, Any]]
            there = {"device": devices, "environment": environments, "configuration": configurations, "run": runs}
            present = set(self._read("SELECT run, configuration, t_wall_ns FROM measurement", "tti"))
            added = 0
            for r in checked._all("measurement"):
                if (r["run"], r["configuration"], r["t_wall_ns"]) in present:
                    continue
                if absent := [name for name, those in there.items() if r[name] not in those]:
                    raise checked._damaged(f"a measurement has no {absent[0]}")
                columns = r | {"device": devices[r["device"]], "environment": environments[r["environment"]]}
                before = columns.pop("id")
                measurement = self._insert("measurement", columns)
                for w in checked._all("window", "WHERE measurement = ?", before):
                    self._insert("window", w | {"measurement": measurement})
                added += 1
            return added

    def _insert_record(self, record: object, or_else: str = ABORT) -> int | None:
        """Insert a record (``bench/schema.py``); return its number."""
        kind: type = type(record)
        statement, values = insertion_into(TABLES[kind], kind, or_else=or_else)
        return self._write(statement, *values(record)).lastrowid

    def _insert(self, table: str, values: Mapping[str, Any], or_else: str = ABORT) -> int | None:
        """Insert a row, by column; return its number. ``or_else``: what becomes of it where its key is there."""
        return self._write(insert_statement(table, values, or_else), *values.values()).lastrowid

    def _all(self, table: str, where: str = "", *values: Any) -> list[dict[str, Any]]:
        """Return the rows of a table, by column."""
        columns = self._columns[table]
        wanted = ", ".join(instead or name for name, (_, instead) in columns.items())
        kinds = "".join(kind for kind, _ in columns.values())
        rows = self._read(f"SELECT {wanted} FROM {table} {where}", kinds, *values)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def _scalar(self, query: str, *values: Any) -> int:
        rows = self._read(query, "i", *values)
        if not rows:
            raise self._damaged("what was just written is not there")
        return int(rows[0][0])

    def _read(self, query: str, kinds: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query, in bounded time, with values of these kinds. Raises DatabaseError."""
        try:
            rows = read_all(self._connection, self.path, query, values)
            check_rows(rows, kinds)
        except SessionError as error:
            raise DatabaseError(str(error)) from None
        except sqlite3.Error as error:
            raise DatabaseError(str(unreadable(self.path, error))) from None
        except ValueError as error:
            raise self._damaged(str(error)) from None
        return rows

    def _write(self, query: str, *values: Any) -> sqlite3.Cursor:
        try:
            return self._connection.execute(query, values)
        except sqlite3.Error as error:
            raise self._unwritable(error) from None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write everything in the block, or nothing."""
        self._write("BEGIN IMMEDIATE")
        try:
            with self._connection:
                yield
        except sqlite3.Error as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: sqlite3.Error) -> DatabaseError:
        return DatabaseError(f"{self.path}: cannot be written: {printable(str(error)[:120])}", FAILURE)

    def _damaged(self, what: str) -> DatabaseError:
        return DatabaseError(f"{self.path}: is damaged: {what}")

    def _check_configuration(self, key: str, op: str, text: str) -> None:
        """Raise DatabaseError unless a configuration matches its key."""
        document = self._object(text)
        if hashlib.sha256(text.encode()).hexdigest() != key or document.get("op") != op:
            raise self._damaged("a configuration is not the one that its key is of")
        if not all(isinstance(document.get(name), dict) for name in ("parameters", "conditions")):
            raise self._damaged("a configuration has no parameters")

    def _object(self, text: str) -> dict[str, Any]:
        """Return a JSON object whose texts can be encoded. Raises DatabaseError."""
        try:
            document = parse_json(text)
            json.dumps(document, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise self._damaged("a text is no JSON object")
        return document

    def _times(self, blob: bytes) -> NDArray[np.float64]:
        """Return f8[n] nanoseconds. Raises DatabaseError."""
        if len(blob) % 8 == 0:
            times = np.frombuffer(blob, "<f8")
            if ((times > 0) & (times < np.inf)).all():
                return times
        raise self._damaged("a window holds what is not a duration")
