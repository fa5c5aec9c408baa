"""Two databases: what changed, what did not, and what cannot be said."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from memtui.bench.compare import FASTER, SAME, SLOWER, UNKNOWN, Comparison, compare, table
from memtui.bench.configuration import make
from memtui.bench.result import Conditions, Series, Visit, evaluate, failed
from memtui.bench.store import Database
from tests.support.bench_database import add, of_another_version
from tests.support.bench_readings import PLAN, series, windows
from tests.support.cli import memtui

CONFIGURATIONS = [make("linear", {"m": m}) for m in range(1, 6)]


def row(configuration, call_ns, energy=None):
    return evaluate(configuration, PLAN, Visit(windows(call_ns), energy or Series(), Conditions()))


@pytest.fixture
def paths(tmp_path):
    calm = (1.00e6, 1.01e6, 0.99e6)
    sides = [[row(c, calm) for c in CONFIGURATIONS[:4]] for _ in range(2)]
    sides[1][1] = row(CONFIGURATIONS[1], tuple(1.2 * ns for ns in calm))
    sides[1][2] = row(CONFIGURATIONS[2], tuple(0.8 * ns for ns in calm))
    sides[1][3] = row(CONFIGURATIONS[3], (1e6,))
    sides[0].append(row(CONFIGURATIONS[4], calm))
    sides[1].append(failed(CONFIGURATIONS[4], PLAN, "out of memory", ""))
    result = []
    for name, rows in zip(("a", "b"), sides, strict=True):
        with closing(Database(tmp_path / f"{name}.db")) as database:
            add(database, *rows)
        result.append(tmp_path / f"{name}.db")
    return result


def test_verdicts(paths):
    with closing(Database(paths[0])) as a, closing(Database(paths[1])) as b:
        result = {one.configuration: one for one in compare(a, b)[0]}
    assert [result[c].verdict for c in CONFIGURATIONS[:4]] == [SAME, SLOWER, FASTER, UNKNOWN]
    assert CONFIGURATIONS[4] not in result, "a failure is not a figure"
    assert result[CONFIGURATIONS[1]].time[0] == pytest.approx(1.2, rel=1e-4)
    assert result[CONFIGURATIONS[3]].time is None


@pytest.mark.parametrize(("known", "verdict"), [(True, SAME), (False, SLOWER)])
def test_a_neighbour_of_b_is_no_difference(tmp_path, known, verdict):
    """Quiet blocks are held against quiet blocks; where A knows of none, all against all."""
    calm, yard = (1.00e6, 1.01e6, 0.99e6), 40.0
    one = [replace(w, yard_ns=(yard,) * 50) for w in windows(calm)]
    other = [
        replace(w, block_ns=(ns,) * 10 + (1.5 * ns,) * 40, yard_ns=(yard,) * 10 + (70.0,) * 40)
        for w, ns in zip(windows([1.4 * ns for ns in calm]), calm, strict=True)
    ]
    limits = (44.0 if known else None, 44.0)
    databases = []
    for name, some, limit_ns in zip("ab", (one, other), limits, strict=True):
        databases.append(Database(tmp_path / f"{name}.db"))
        add(
            databases[-1],
            evaluate(CONFIGURATIONS[0], PLAN, Visit(tuple(some), Series(), Conditions(yard_limit_ns=limit_ns))),
        )
    (result,) = compare(*databases)[0]
    for database in databases:
        database.close()
    assert result.verdict == verdict


def test_what_another_version_wrote_is_left_out_and_told(paths):
    for path in paths:
        of_another_version(path, CONFIGURATIONS[0], "unheard")
    with closing(Database(paths[0])) as a, closing(Database(paths[1])) as b:
        result, unknown = compare(a, b)
    assert (len(result), unknown) == (3, 1)
    result = memtui("bench", "compare", *paths)
    assert result.returncode == 0
    assert result.stderr == "1 are left out, which another version of memtui wrote\n"


def test_energy_of_the_same_source_only(tmp_path):
    slow = row(CONFIGURATIONS[0], (1e6, 1e6, 1e6), series(lambda t: 250.0))
    more = row(CONFIGURATIONS[0], (1e6, 1e6, 1e6), series(lambda t: 300.0))
    for other, expected in (
        (more, 1.2),
        (replace(more, energy_source="rapl"), None),
        (replace(more, energy_j=None), None),
    ):
        for path, one in ((tmp_path / "a.db", slow), (tmp_path / "b.db", other)):
            with closing(Database(path)) as database:
                add(database, one)
        with closing(Database(tmp_path / "a.db")) as a, closing(Database(tmp_path / "b.db")) as b:
            ((result,), _) = compare(a, b)
        assert result.energy == (None if expected is None else pytest.approx(expected, rel=0.01))


def test_as_it_is_typed(paths, tmp_path):
    result = memtui("bench", "compare", *paths)
    assert result.returncode == 0, result.stderr
    assert "1.200 [1.1" in result.stdout
    assert result.stdout.count("slower") == 1
    assert "n/a: one window only on a side" in result.stdout
    document = json.loads(memtui("bench", "compare", *paths, "--json").stdout)
    assert [one["verdict"] for one in document["rows"]] == [SAME, SLOWER, FASTER, UNKNOWN]
    with closing(sqlite3.connect(paths[1])) as database, database:
        database.execute("UPDATE device SET name = name || char(10) || 'every row: the same'")
    forged = memtui("bench", "compare", *paths)
    assert (forged.returncode, "\\nevery row: the same" in forged.stdout) == (0, True), forged.stderr
    refused = memtui("bench", "compare", paths[0])
    assert (refused.returncode, "name two databases" in refused.stderr) == (2, True)
    Database(tmp_path / "empty.db").close()
    refused = memtui("bench", "compare", paths[0], tmp_path / "empty.db")
    assert (refused.returncode, "no configuration in common" in refused.stderr) == (2, True)


@pytest.mark.parametrize("columns", [80, 120, None])
def test_names_differ_at_every_width(columns):
    """What is the same in all is told in the head; what is left of a name says which row it is."""
    some = [
        make("conv2d", {"n": 8, "cin": 64, "cout": cout, "h": h, "k": k})
        for cout in (64, 256)
        for h in (7, 14, 28, 56)
        for k in (1, 3)
    ]
    head, *lines = table([Comparison(c, (1.0, 0.9, 1.1), None, SAME, ("x", "x")) for c in some], columns)
    assert "(all: n=8 cin=64" in head
    assert len({line.rpartition("  ")[2] for line in lines}) == len(some)
    assert all("cout=256" in line for line in lines[8:]) or columns == 80
    assert columns is None or max(map(len, lines)) <= columns
