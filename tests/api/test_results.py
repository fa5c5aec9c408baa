"""Results of measurements as tables: those of a bench database, of a grid of trainings, of a placement profile."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

import pytest

import memtui
from memtui.api.results import Profile
from memtui.bench.store import Database
from memtui.core.errors import UserError
from memtui.placement.export import TABLES
from memtui.training.tune.grid import from_options
from memtui.training.tune.results import TuneRow, create_results
from tests.support.bench_database import CONFIGURATIONS, add, row
from tests.support.placement_profiles import CASE, written

pandas = pytest.importorskip("pandas", reason="pandas is not installed")


def test_measurements_of_a_bench_database(tmp_path):
    path = tmp_path / "bench.db"
    with closing(Database(path)) as database:
        add(database, row(CONFIGURATIONS[0]), row(CONFIGURATIONS[1], energy_j=None))
        stored = list(database.rows())
    frame = memtui.open_bench(path).to_pandas()
    assert frame["op"].tolist() == ["linear", "linear"]
    assert frame["p_m"].tolist() == [1, 2]
    assert frame["p_m"].dtype == "Int64"
    assert frame["call_ns"].tolist() == [each["call_ns"] for each in stored]
    assert frame["energy_j"].isna().tolist() == [False, True]
    assert frame["time"][0] == pandas.Timestamp(stored[0]["t_wall_ns"], tz="UTC")
    assert memtui.open_bench(path).to_numpy()["energy_j"].mask.tolist() == [False, True]


def test_trainings_of_a_grid(tmp_path):
    grid = from_options(["batch_size=10,100", "learning_rate=0.1"], "fcReLu", {}, {})
    results = create_results(tmp_path / "results", grid, datetime.now(UTC))
    ended = {0: TuneRow(accuracy=91.5, epochs=3, seconds=12.5), 1: TuneRow(exit=1, error="it went wrong")}
    results.write(ended)
    frame = memtui.open_tune(results.path).to_pandas()
    assert frame["batch_size"].tolist() == [10, 100]
    assert frame["accuracy"].isna().tolist() == [False, True]
    assert frame["accuracy"][0] == 91.5
    assert frame["error"].tolist()[1] == "it went wrong"
    results.write({})
    assert len(memtui.open_tune(results.path)) == 0


def test_a_placement_profile(tmp_path):
    path = tmp_path / "p.memtui"
    written(path)
    profile = memtui.open_profile(path)
    assert isinstance(profile, Profile)
    for name, (columns, rows) in TABLES.items():
        frame = getattr(profile, name).to_pandas()
        assert list(frame.columns) == list(columns)
        assert len(frame) == len(list(rows(CASE)))
    assert profile.tensors.to_pandas()["size_bytes"].dtype == "Int64"


@pytest.mark.parametrize("of", [memtui.open_bench, memtui.open_tune, memtui.open_profile])
def test_what_is_something_else_is_one_line(tmp_path, of):
    (tmp_path / "x").write_text("something else")
    for name in ("x", "missing"):
        with pytest.raises(UserError) as caught:
            of(tmp_path / name)
        assert "\n" not in str(caught.value)
        assert name in str(caught.value)
