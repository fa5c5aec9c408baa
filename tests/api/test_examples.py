"""The examples in the docstrings of everything that programs call: each runs, and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import inspect
from contextlib import closing
from datetime import UTC, datetime

import pytest

import memtui
from memtui.api.plots import Plots
from memtui.api.recording import Recording
from memtui.api.results import Profile
from memtui.api.sessions import Tables
from memtui.api.table import Table
from memtui.api.window_pages import Pages, WindowPages
from memtui.bench.store import Database
from memtui.training.tune.grid import from_options
from memtui.training.tune.results import TuneRow, create_results
from tests.support.bench_database import CONFIGURATIONS, add, row
from tests.support.hostile_sessions import small_stream
from tests.support.placement_profiles import written
from tests.support.sessions import write_session

pytest.importorskip("pandas", reason="pandas is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

FUNCTIONS = (
    *(memtui.open, memtui.open_bench, memtui.open_tune, memtui.open_profile, memtui.record, memtui.trace, memtui.mark),
    *(memtui.backward, importlib.import_module("memtui.bench").run, importlib.import_module("memtui.placement").solve),
)
CLASSES = (Tables, Table, Plots, WindowPages)
WITHOUT = {"close", "show_working_set", "sample", "pid", "size_bytes"}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def documented(kind: type) -> dict[str, object]:
    """Return what a class has for programs, by name."""
    return {name: value for name, value in vars(kind).items() if not name.startswith("_") and name not in WITHOUT}


PUBLIC = {
    **{f"{each.__module__}.{each.__name__}": each for each in FUNCTIONS},
    **{f"{kind.__name__}.{name}": value for kind in CLASSES for name, value in documented(kind).items()},
    **{kind.__name__: kind for kind in (Table, Profile, Recording)},
    "Pages.__call__": Pages.__call__,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files that the examples name."""
    path = tmp_path_factory.mktemp("examples")
    write_session(path / "run.memtui", small_stream())
    written(path / "profile.memtui")
    with closing(Database(path / "bench.db")) as database:
        add(database, row(CONFIGURATIONS[0]), row(CONFIGURATIONS[1], energy_j=None))
    grid = from_options(["batch_size=10,100", "learning_rate=0.1"], "fcReLu", {}, {})
    results = create_results(path, grid, datetime.now(UTC))
    results.write({0: TuneRow(accuracy=91.5, epochs=3, seconds=12.5), 1: TuneRow(exit=1, error="it went wrong")})
    results.path.rename(path / "results")
    return path


@pytest.mark.parametrize("name", PUBLIC)
def test_its_example_runs_and_prints_what_it_says(name, folder, monkeypatch, one_thread_of_torch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.setenv("MPLBACKEND", "agg")
    layer = torch.nn.Linear(4, 1)
    names = {
        "memtui": memtui,
        "torch": torch,
        "layer": layer,
        "model": layer,
        "optimizer": torch.optim.SGD(layer.parameters(), lr=0.1),
        "data": torch.ones(20, 2, 4),
    }
    text = inspect.getdoc(PUBLIC[name]) or ""
    example = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    assert example.examples, "it has none"
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=FLAGS).run(example, out=failures.append)
    assert not failures, "".join(failures)
