"""The database of measurements: what went in comes out, once; foreign and newer files are refused in one line."""

from __future__ import annotations

import json
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from memtui.bench.configuration import from_text
from memtui.bench.database_file import DatabaseError
from memtui.bench.plan import BenchPlan
from memtui.bench.result import Conditions, Visit, evaluate, failed
from memtui.bench.store import Database
from tests.support.bench_database import CONFIGURATIONS, ENVIRONMENT, add, row
from tests.support.bench_readings import PLAN, series, windows


@pytest.fixture
def database(tmp_path):
    with closing(Database(tmp_path / "state" / "bench.db")) as stored:
        yield stored


def test_what_goes_in_comes_out(database):
    stored = row(reference=False)
    add(database, stored, failed(CONFIGURATIONS[1], PLAN, "out of memory", "much"))
    result, lost = database.rows()
    for name in ("call_ns", "iqr_ns", "energy_j", "power_3s_w", "walked_bytes", "copies", "energy_status", "status"):
        assert result[name] == getattr(stored, name), name
    assert from_text(result["text"]) == CONFIGURATIONS[0]
    assert (result["op"], result["device_name"], result["idle_w"]) == ("linear", "here", 60.0)
    assert json.loads(result["environment_text"]) == ENVIRONMENT
    assert (result["flops"], result["moved_bytes"]) == (stored.configuration.flops, stored.configuration.moved_bytes)
    assert (lost["status"], lost["reason"], lost["call_ns"], lost["energy_j"]) == (
        "failed",
        "out of memory: much",
        None,
        None,
    )
    assert database.counts() == {
        "device": 1, "environment": 1, "configuration": 2, "run": 1, "measurement": 2, "window": 3
    }  # fmt: skip


def test_raw_values_are_kept(database):
    stored = row()
    add(database, stored)
    with closing(sqlite3.connect(database.path)) as file:
        kept = file.execute("SELECT block_ns, counter_j, counter_ns, integral_j, state FROM window").fetchall()
    for (blocks, counter_j, counter_ns, integral_j, state), window, energy in zip(
        kept, stored.windows, stored.energies, strict=True
    ):
        assert tuple(np.frombuffer(blocks, "<f8")) == window.block_ns
        assert (counter_j, integral_j) == (energy.counter.energy_j, energy.integral.energy_j)
        assert counter_j / counter_ns * 1e9 == pytest.approx(250)
        assert json.loads(state) == {"sm_mhz": 1000}


def test_only_as_good_a_measurement_is_done(database):
    quick = replace(row(), plan=BenchPlan(windows=3, seconds=0.5))
    where = add(
        database, quick, row(CONFIGURATIONS[1]), failed(CONFIGURATIONS[2], PLAN, "out of memory", ""),
    )  # fmt: skip
    assert database.done(*where, PLAN) == {CONFIGURATIONS[1].key}
    assert database.done(*where, BenchPlan(windows=2, seconds=0.5)) == {c.key for c in CONFIGURATIONS[:2]}
    assert database.done(*where, BenchPlan(windows=5, seconds=1.0)) == set()
    assert database.done(database.device("cpu", "there", ""), where[1], PLAN) == set()
    assert database.done(where[0], database.environment({"torch": "3"}), PLAN) == set()
    add(database, row(reference=True))
    assert database.done(*where, PLAN) == {CONFIGURATIONS[1].key}, "a reference is not a result"
    assert len(list(database.rows())) == 3


def test_a_file_is_private_and_survives(database):
    add(database, row())
    assert database.path.stat().st_mode & 0o777 == 0o600
    database.close()
    with closing(Database(database.path)) as again:
        assert len(list(again.rows())) == 1


def test_databases_are_merged_without_doubles(database, tmp_path):
    with closing(Database(tmp_path / "other.db")) as other:
        add(other, row(CONFIGURATIONS[1]), name="there")
        add(database, row())
        assert database.merge(other.path) == 1
        assert database.merge(other.path) == 0
        add(other, row(CONFIGURATIONS[2]), name="there")
        assert database.merge(other.path) == 1
    result = list(database.rows())
    assert [r["device_name"] for r in result] == ["there", "here", "there"], "oldest first"
    assert database.counts()["window"] == 9
    assert database.merge(database.path) == 0


def test_many_open_a_new_file_at_once(tmp_path):
    path, errors = tmp_path / "bench.db", []

    def use():
        try:
            with closing(Database(path)) as stored:
                add(stored, row())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with closing(Database(path)) as stored:
        assert stored.counts()["measurement"] == 6


def foreign(path):
    path.write_bytes(b"no database " * 100)


def another(path):
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE t(x)")
        file.commit()


def newer(path):
    Database(path).close()
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version=99")


def another_column(path):
    Database(path).close()
    with closing(sqlite3.connect(path)) as file:
        file.execute('ALTER TABLE measurement ADD COLUMN "x) SELECT 1; --"')


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (another_column, "its tables are not those of format 3"),
        (foreign, "file is not a database"),
        (another, "is not a database of memtui bench"),
        (newer, "has format 99, and this memtui knows"),
        (lambda path: path.mkdir(), "is not a file, but a folder"),
    ],
)
def test_files_that_are_none_of_ours(tmp_path, make_it, message):
    path = tmp_path / "file.db"
    make_it(path)
    with pytest.raises(DatabaseError, match=message):
        Database(path)


def test_one_that_is_not_there(tmp_path, database):
    with pytest.raises(DatabaseError, match="No such file"):
        database.merge(tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()
    add(database, row())
    assert len(list(database.rows())) == 1, "and goes on"


def test_half_a_row_is_none(database):
    """What breaks while a row is taken in leaves nothing of it."""
    broken = replace(row(), energies=())
    with pytest.raises(IndexError):
        add(database, broken)
    assert database.counts()["measurement"] == 0


SINCE_2 = tuple(("measurement", column) for column in ("measured_ns", "speed", "follows", "reference_ns"))
SINCE_1 = (("measurement", "quiet"), ("measurement", "yard_limit_ns"), ("window", "yard_ns"), *SINCE_2)


def of_older_format(path, version, since):
    """A file of one row, as it was without those columns."""
    with closing(Database(path)) as old:
        add(old, row(CONFIGURATIONS[1]))
    with closing(sqlite3.connect(path)) as file:
        for table, column in since:
            file.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        file.execute(f"PRAGMA user_version={version}")
    return path


def test_a_file_of_the_second_format_goes_on(tmp_path, database):
    """Its rows know nothing of the speed of the CPU."""
    path = of_older_format(tmp_path / "old.db", 2, SINCE_2)
    assert database.merge(path) == 1
    with closing(Database(path)) as old:
        (result,) = old.rows()
        assert (result["speed"], result["follows"], result["reference_ns"]) == (None, None, None)
        assert result["call_ns"] == row().call_ns
        add(old, row(CONFIGURATIONS[2]))


def test_a_file_of_the_first_format_goes_on(tmp_path, database):
    """Its rows stay as they are, and say that they know nothing of neighbours; also where it is merged."""
    path = of_older_format(tmp_path / "old.db", 1, SINCE_1)
    assert database.merge(path) == 1
    with closing(Database(path)) as old:
        (result,) = old.rows()
        assert (result["quiet"], result["yard_limit_ns"]) == (None, None)
        assert result["call_ns"] == row().call_ns
        assert len(old.window_means(result["id"])) == 3
        assert old.quiet_means(result["id"]) == []
        add(old, row(CONFIGURATIONS[2]))
    assert database.merge(path) == 1


def test_of_a_disturbed_cpu_windows_have_their_quiet_blocks(database):
    yards = (40.0,) * 10 + (70.0,) * 40
    some = [replace(w, block_ns=(1e6,) * 10 + (1.5e6,) * 40, yard_ns=yards) for w in windows((1.4e6, 1.4e6, 1.4e6))]
    stored = evaluate(
        CONFIGURATIONS[0], PLAN, Visit(tuple(some), series(lambda t: 250.0), Conditions(yard_limit_ns=44.0))
    )
    add(database, stored)
    (result,) = database.rows()
    assert (result["call_ns"], result["quiet"], result["flags"]) == (1e6, 0.2, "")
    assert result["mean_ns"] == pytest.approx(1.4e6, rel=1e-3)
    assert database.quiet_means(result["id"]) == [1e6] * 3
    assert database.window_means(result["id"]) == pytest.approx([1.4e6] * 3, rel=1e-3)
