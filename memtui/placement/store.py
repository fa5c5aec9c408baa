"""A profile's file: one SQLite file that grows round by round; its content survives when memtui is killed.

A profile is not a session: a session is what happened to a process over time and belongs to its recorder, while samples
of one op gather over many runs and plans are added later. ``memtui replay`` tells them apart by their headers.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from memtui.core.errors import UserError
from memtui.core.json_fields import to_json
from memtui.core.os_errors import WRITE, refused
from memtui.placement.file_header import APPLICATION_ID, check_header, is_profile
from memtui.placement.graph import Configuration, Graph
from memtui.placement.plan import PlacementPlan
from memtui.placement.profile import Pool, Profile, Samples
from memtui.placement.schema import TABLES, CurveRecord, PlanRecord, SampleRecord
from memtui.placement.solvers.pareto import ParetoPoint
from memtui.placement.validation import Damaged
from memtui.session.columns import insertion_into
from memtui.session.file_format import (
    connect,
    connect_writer,
    read_all,
    seal,
    sqlite_temporary_files,
    tables_in,
    tables_of,
    unreadable,
)
from memtui.session.schema import MetaRecord

SCHEMA_VERSION = 1
_READ_ONLY = "cannot be written"


class ProfileFile:
    """One file. Every method opens it anew, so that a screen can read while another process writes.

    Methods raise UserError where the file is not a valid profile.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(
        cls,
        path: Path,
        graph: Graph,
        pools: Sequence[Pool],
        resolution_ns: float = 0.0,
        about: dict[str, str | int | float] | None = None,
        *,
        force: bool = False,
    ) -> ProfileFile:
        """Create a profile without samples (mode 0600).

        ``force`` replaces an existing profile, and no other kind of file.
        """
        if os.path.lexists(path):
            if not (force and is_profile(path)):
                what = (
                    "exists already; --force overwrites it"
                    if is_profile(path)
                    else "exists and is not a placement profile"
                )
                raise UserError(f"{path}: {what}")
            for old in (path, *sqlite_temporary_files(path)):
                old.unlink(missing_ok=True)
        meta = {"graph": to_json(graph), **_of_machine(pools, resolution_ns, about)}
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                head = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={SCHEMA_VERSION};"
                connection.executescript(f"BEGIN; {_schema()} {head} COMMIT;")
                with connection:
                    connection.execute("BEGIN")
                    _insert(connection, [MetaRecord(key, _json(value)) for key, value in meta.items()])
            created = cls(path)
            seal(path, created._check_tables)
        except OSError as error:
            raise refused(path, error, WRITE) from None
        except sqlite3.Error as error:
            raise UserError(f"{path}: {_READ_ONLY}: {error}") from None
        return created

    def renew(
        self, pools: Sequence[Pool], resolution_ns: float, about: dict[str, str | int | float] | None = None
    ) -> None:
        """Delete all samples, plans and curves, to measure the same graph with the same pools anew."""
        rows = [(_json(value), key) for key, value in _of_machine(pools, resolution_ns, about).items()]
        with self._writing() as connection:
            for table in ("sample", "plan", "curve"):
                connection.execute(f"DELETE FROM {table}")
            connection.executemany("UPDATE meta SET value = ? WHERE key = ?", rows)

    def add(self, samples: Iterable[Samples]) -> None:
        """Add the samples of a round: all of them or, when interrupted, none. Samples of one key add up."""
        self._add(samples, ())

    def replace(self, samples: Sequence[Samples]) -> None:
        """Store the samples of whole ops in place of their old ones: all of one sitting, or none."""
        self._add(samples, {(s.op, s.mode) for s in samples})

    def _add(self, samples: Iterable[Samples], instead_of: Iterable[tuple[str, str]]) -> None:
        rows = [
            SampleRecord(
                s.op,
                _json(s.configuration.to_dict()),
                s.mode,
                np.asarray(s.time_ns, "<f8").tobytes(),
                np.asarray(s.run, "<i8").tobytes(),
            )
            for s in samples
        ]
        with self._writing() as connection:
            connection.executemany("DELETE FROM sample WHERE op = ? AND mode = ?", instead_of)
            _insert(connection, rows)

    def store_plan(self, plan: PlacementPlan) -> None:
        """Store a plan with its profile, in place of an older plan of the same kind and limit."""
        with self._writing() as connection:
            text = _json(to_json(plan))
            row = PlanRecord(plan.formulation, plan.slow, plan.mode, plan.limit_bytes, time.time_ns(), text)
            _insert(connection, [row])

    def store_curve(self, formulation: str, slow: str, mode: str, points: Sequence[ParetoPoint]) -> None:
        """Store a curve in place of an older one of the same kind."""
        text = _json(to_json(points))
        with self._writing() as connection:
            _insert(connection, [CurveRecord(formulation, slow, mode, time.time_ns(), text)])

    def profile(self) -> Profile:
        """Return the profile with all samples so far."""
        with self._reading() as connection:
            meta = {k: json.loads(v) for k, v in self._all(connection, "SELECT key, value FROM meta")}
            gathered: dict[tuple[str, str, str], tuple[list[float], list[int]]] = {}
            for op, configuration, mode, times, runs in self._all(
                connection, "SELECT op, configuration, mode, time_ns, run FROM sample ORDER BY id"
            ):
                into = gathered.setdefault((op, configuration, mode), ([], []))
                into[0].extend(np.frombuffer(times, "<f8").tolist())
                into[1].extend(np.frombuffer(runs, "<i8").tolist())
            samples = [
                {"op": op, "configuration": json.loads(configuration), "mode": mode, "time_ns": times, "run": runs}
                for (op, configuration, mode), (times, runs) in gathered.items()
            ]
            return Profile.from_dict({**meta, "samples": samples})

    def measured(self) -> set[tuple[str, Configuration, str]]:
        """Return (op, configuration, mode) of all stored samples."""
        return {*self.profile().times}

    def plans(self) -> list[PlacementPlan]:
        """Return the stored plans, the newest first."""
        with self._reading() as connection:
            rows = self._all(connection, "SELECT text FROM plan ORDER BY t_wall_ns DESC")
            return [PlacementPlan.from_dict(json.loads(text)) for (text,) in rows]

    def curves(self) -> dict[tuple[str, str, str], list[ParetoPoint]]:
        """Return the stored curves, the newest first, by formulation, slow pool and mode."""
        with self._reading() as connection:
            rows = self._all(connection, "SELECT formulation, slow, mode, text FROM curve ORDER BY t_wall_ns DESC")
            return {
                (f, slow, mode): [ParetoPoint.from_dict(p) for p in _list(json.loads(t))] for f, slow, mode, t in rows
            }

    def _all(self, connection: sqlite3.Connection, query: str) -> list[tuple[Any, ...]]:
        return read_all(connection, self.path, query, ())

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Open a file that may come from a stranger: nothing in it is run, and any fault in it becomes a UserError."""
        check_header(self.path)
        try:
            with closing(connect(self.path, self._check_tables)) as connection:
                yield connection
        except Damaged as error:
            raise UserError(f"{self.path}: is damaged: {error}") from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise unreadable(self.path, error) from None
        except (ValueError, TypeError, RecursionError):
            raise UserError(f"{self.path}: is damaged: it holds what is not a profile") from None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction, which is committed at the end of the block; then no log is left beside the file."""
        check_header(self.path)
        try:
            with closing(connect_writer(self.path, self._check_tables)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                with connection:
                    connection.execute("BEGIN IMMEDIATE")
                    yield connection
            seal(self.path, self._check_tables)
        except sqlite3.Error as error:
            raise UserError(f"{self.path}: {_READ_ONLY}: {error}") from None

    def _check_tables(self, connection: sqlite3.Connection) -> None:
        """Raise UserError where the file has another format, or a trigger, view or other code."""
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != SCHEMA_VERSION:
            raise UserError(f"{self.path}: has format {version}, and this memtui knows {SCHEMA_VERSION}")
        if tables_in(connection, self.path) != _expected_tables():
            raise UserError(
                f"{self.path}: is not a placement profile: its tables are not those of format {SCHEMA_VERSION}"
            )


def _insert(connection: sqlite3.Connection, rows: Sequence[object]) -> None:
    """Insert rows of one kind; a row with a known key replaces the old one."""
    if rows:
        kind: type = type(rows[0])
        statement, values = insertion_into(TABLES[kind], kind)
        connection.executemany(statement, map(values, rows))


def _of_machine(
    pools: Sequence[Pool], resolution_ns: float, about: dict[str, str | int | float] | None
) -> dict[str, Any]:
    return {"pools": to_json(pools), "resolution_ns": resolution_ns, "about": about or {}}


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Damaged("a curve is not a list")
    return value


def _schema() -> str:
    return files("memtui.placement").joinpath("schema.sql").read_text()


@cache
def _expected_tables() -> list[tuple[str, ...]]:
    return tables_of(_schema())
