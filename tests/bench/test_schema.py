"""The declarations of the bench's tables are those of its file, and rows go in by the names of their columns."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import fields

import pytest

from memtui.bench.database_file import checked_columns
from memtui.bench.plan import BenchPlan
from memtui.bench.schema import TABLES, MeasurementRecord, RunRecord
from memtui.bench.store import Database
from memtui.session.columns import columns_of
from tests.support.bench_database import add, row
from tests.support.declared_tables import declared, in_file


@pytest.fixture
def path(tmp_path):
    with closing(Database(tmp_path / "bench.db")) as database:
        add(database, row())
    return tmp_path / "bench.db"


NUMBERED = ("device", "environment", "measurement")  # by the file: their id is in no record


def test_declarations_and_file_have_the_same_tables_and_columns(path):
    with closing(sqlite3.connect(path)) as connection:
        tables = declared(TABLES)
        for table in NUMBERED:
            tables[table] |= {"id": ("INTEGER", True)}
        assert tables == in_file(connection)
        checked = checked_columns(connection, path)
    kinds = {table: {name: kind for name, (kind, _) in columns.items()} for table, columns in checked.items()}
    columns = {table: columns_of(record) for record, table in TABLES.items()}
    numbered = {table: columns[table] | {"id": "i"} for table in NUMBERED}
    assert columns | numbered == kinds, "as what is read is checked"


def test_every_value_is_in_the_column_of_its_name(path):
    plan = BenchPlan(windows=7)
    with closing(Database(path)) as database:
        name = database.start_run(plan, 3.5, "no reason")
        assert database.device("gpu", "a GPU", "GPU-1") == database.device("gpu", "a GPU", "GPU-1")
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        run = RunRecord(**dict(connection.execute("SELECT * FROM run WHERE id = ?", (name,)).fetchone()))
        device = dict(connection.execute("SELECT kind, name, uuid FROM device WHERE uuid = 'GPU-1'").fetchone())
        measurement = dict(connection.execute("SELECT * FROM measurement").fetchone())
        configuration = dict(connection.execute("SELECT * FROM configuration").fetchone())
    assert (run.idle_w, run.idle_reason) == (3.5, "no reason")
    assert '"windows":7' in run.plan
    assert device == {"kind": "gpu", "name": "a GPU", "uuid": "GPU-1"}
    stored = row()
    wanted = stored.configuration
    assert configuration == {"key": wanted.key, "op": wanted.op, "text": wanted.text}
    for field in fields(MeasurementRecord):
        if hasattr(stored, field.name) and field.name not in ("configuration", "flags", "windows", "reference"):
            assert measurement[field.name] == getattr(stored, field.name), field.name
