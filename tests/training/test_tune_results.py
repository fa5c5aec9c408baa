"""The folder of a grid: names, the table that is the state, what a run's output says, and broken folders."""

from __future__ import annotations

import csv
import json
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.errors import UserError
from memtui.core.text import printable
from memtui.training.settings import networks_from_file
from memtui.training.tune.grid import Grid, from_options
from memtui.training.tune.results import (  # fmt: skip
    FIGURES,
    GRID_FILE,
    NETWORKS_FILE,
    Results,
    TuneRow,
    _toml,
    create_results,
    last_line,
    left_s,
    newest,
    reopen,
    row_of,
)
from tests.support.folders import names_in

NOW = datetime(2026, 7, 31, 12, 0, 5, tzinfo=UTC)
GRID = from_options(["type=BP,DFA", "batch_size=50,100"], "fcReLu", {}, {})
numbers = st.none() | st.floats(allow_nan=False)
wholes = st.none() | st.integers(-(1 << 62), 1 << 62)
# A text that begins as csv_cell begins a formula comes back without that; no file has lone surrogates either.
words = st.text(max_size=30).map(printable).filter(lambda text: not text.startswith("'"))
rows = st.builds(
    TuneRow,
    accuracy=numbers, loss=numbers, epochs=wholes, iterations=wholes, stopped=words, peak_bytes=wholes,
    peak_above_start_bytes=wholes, seconds=st.floats(0, 1e9), exit=st.integers(-64, 255), error=words, session=words,
)  # fmt: skip


def test_a_folder_is_named_by_its_time_and_holds_the_grid(tmp_path):
    results = create_results(tmp_path / "results", GRID, NOW)
    assert results.path == tmp_path / "results" / "2026-07-31T12-00-05Z"
    assert reopen(results.path).grid == GRID
    assert create_results(tmp_path / "results", GRID, NOW).path.name == "2026-07-31T12-00-05Z-2"
    assert results.rows() == {}
    assert names_in(results.path) == [GRID_FILE]


def test_networks_of_the_user_are_kept_for_the_runs(tmp_path):
    mine = {
        "extends": "liao_mnist",
        "epochs": 3,
        "sequence": [{"layer": "FullyConnected", "units": 3, "é": [1.5, True]}],
    }
    grid = Grid(
        (("name", ("mine", 'odd "n\\ame\x7f\U0001f600')),), networks={"mine": mine, 'odd "n\\ame\x7f\U0001f600': {}}
    )
    results = create_results(tmp_path, grid, NOW)
    assert results.networks == results.path / NETWORKS_FILE
    assert networks_from_file(results.networks) == grid.networks
    assert reopen(results.path).grid == grid


keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
simple = st.booleans() | st.integers(-(1 << 60), 1 << 60) | st.floats(allow_nan=False) | keys


layers = st.recursive(
    simple, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=6
)


@given(st.dictionaries(keys, st.dictionaries(keys, layers, max_size=3), max_size=3))
def test_networks_are_written_as_toml(networks):
    assert tomllib.loads(_toml(networks)) == networks


@given(st.dictionaries(st.integers(0, 3), rows))
def test_the_table_comes_back_as_it_was(tmp_path_factory, found):
    results = Results(tmp_path_factory.mktemp("r"), GRID)
    results.write(found)
    assert results.rows() == found
    before = results.summary.read_bytes()
    results.write(results.rows())
    assert results.summary.read_bytes() == before


def test_the_table_has_the_axes_first_and_no_formula(tmp_path):
    results = Results(tmp_path, GRID)
    results.write({2: TuneRow(seconds=1.5, exit=1, error="=cmd()\x1b[31m")})
    head, line = csv.reader(results.summary.read_text().splitlines())
    assert head == ["type", "batch_size", *FIGURES, "output"]
    assert line == ["DFA", "50", *[""] * 7, "1.5", "1", "'=cmd()\\x1b[31m", "", "3-type=DFA-batch_size=50.out"]
    assert not [name for name in names_in(tmp_path) if name.endswith(".new")]


@pytest.mark.parametrize(
    "text",
    [
        "", "a,b\n", "\0", '"', "type,batch_size," + ",".join(FIGURES) + ",output\nBP,50,x\n",
        "type,batch_size," + ",".join(FIGURES) + ",output\nBP,50,,,,,,,,1.0,0,,,9-other.out\n",
        "type,batch_size," + ",".join(FIGURES) + ",output\nBP,50,much,,,,,,,1.0,0,,,1-type=BP-batch_size=50.out\n",
    ],
)  # fmt: skip
def test_a_table_that_somebody_changed_is_refused(tmp_path, text):
    results = Results(tmp_path, GRID)
    results.summary.write_text(text)
    with pytest.raises(UserError, match="is not as memtui wrote it") as result:
        results.rows()
    assert "\n" not in str(result.value)


def test_a_table_without_the_peak_above_the_start_is_read_and_goes_on(tmp_path):
    results = Results(tmp_path, GRID)
    before = "accuracy,loss,epochs,iterations,stopped,peak_bytes,seconds,exit,error,session,output"
    results.summary.write_text(
        f"type,batch_size,{before}\nDFA,50,93.06,0.25,4,576,,4096,2.5,0,,/a.memtui,3-type=DFA-batch_size=50.out\n"
    )
    old = TuneRow(93.06, 0.25, 4, 576, "", 4096, None, 2.5, 0, "", "/a.memtui")
    assert results.rows() == {2: old}
    results.write({2: old, 3: replace(old, peak_above_start_bytes=1024)})
    cells = [row["peak_above_start_bytes"] for row in csv.DictReader(results.summary.read_text().splitlines())]
    assert cells == ["", "1024"]
    assert [row.peak_above_start_bytes for row in results.rows().values()] == [None, 1024]


def test_a_table_that_is_no_text(tmp_path):
    results = Results(tmp_path, GRID)
    results.summary.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="is not text"):
        results.rows()
    results.summary.unlink()
    results.summary.mkdir()
    with pytest.raises(UserError, match="is not a file, but a folder"):
        results.rows()


def test_the_newest_folder_of_the_same_grid(tmp_path):
    assert newest(tmp_path / "nowhere", GRID) is None
    other = from_options(["type=BP,DFA", "batch_size=50,200"], "fcReLu", {}, {})
    first, second = create_results(tmp_path, GRID, NOW), create_results(tmp_path, GRID, NOW)
    create_results(tmp_path, other, NOW.replace(day=1))
    create_results(tmp_path, other, NOW.replace(year=2030))
    assert first.path != second.path
    (tmp_path / "2031").mkdir()
    (tmp_path / "2031" / GRID_FILE).write_text("{}")
    (tmp_path / "2032").write_text("a file")
    assert newest(tmp_path, GRID).path == second.path


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "[" * 100_000, '{"axes": []}',
        '{"axes": [], "network": "fcReLu", "settings": {}, "networks": {}}',
    ],
)  # fmt: skip
def test_a_folder_that_is_none_is_one_line(tmp_path, text):
    with pytest.raises(UserError, match=r"has no grid\.json"):
        reopen(tmp_path)
    (tmp_path / GRID_FILE).write_text(text)
    with pytest.raises(UserError) as result:
        reopen(tmp_path)
    assert str(result.value).startswith(f"{tmp_path}/{GRID_FILE}: ")
    assert "\n" not in str(result.value)


def test_where_nothing_can_be_made(tmp_path):
    (tmp_path / "results").write_text("a file")
    with pytest.raises(UserError, match="no folder for the results can be made: File exists"):
        create_results(tmp_path / "results", GRID, NOW)


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0"), min_size=1, max_size=400), min_size=1, max_size=12, unique=True
    )
)
def test_names_of_files_are_unique_safe_and_short(values):
    names = Results(Path("r"), Grid((("data", tuple(values)),), "fcReLu")).names
    assert len({name.casefold() for name in names}) == len(values)
    for name in names:
        assert name.isascii()
        assert name.isprintable()
        assert not set(name) & set("/\\:*?\"<>| '$`;&")
        assert name[0].isdigit()
        assert len((name + ".out").encode()) <= 255


def test_names_say_which_run_it_is():
    assert Results(Path("r"), GRID).names == (
        "1-type=BP-batch_size=50", "1-type=BP-batch_size=100".replace("1-", "2-", 1), "3-type=DFA-batch_size=50",
        "4-type=DFA-batch_size=100",
    )  # fmt: skip


# What a run left

DOCUMENT = {
    "network": "fcReLu", "type": "BP", "settings": {"a": {"b": 1}}, "seed": 1, "epochs": 4, "iterations": 576,
    "accuracy": 93.06, "loss": 0.25, "stopped": None, "peak_bytes": 4096, "peak_above_start_bytes": 1024,
    "peak_segment": "x", "session": "/a/b.memtui",
}  # fmt: skip


@pytest.fixture
def left(tmp_path):
    """What a run left in its files, as a row."""

    def ended(out: str | bytes, err: str | bytes = "", code: int = 0) -> TuneRow:
        paths = tmp_path / "r.out", tmp_path / "r.err"
        for path, what in zip(paths, (out, err), strict=True):
            path.write_bytes(what if isinstance(what, bytes) else what.encode())
        return row_of(*paths, code, 2.5)

    return ended


@pytest.mark.parametrize("indent", [None, 2])
def test_the_result_is_the_json_at_the_end(left, indent):
    text = "words before\n{ no json\n" + json.dumps(DOCUMENT, indent=indent) + "\n"
    assert left(text) == TuneRow(93.06, 0.25, 4, 576, "", 4096, 1024, 2.5, 0, "", "/a/b.memtui")
    assert left(text).state == "finished"


def test_a_stop_for_too_low_an_accuracy_is_no_failure(left):
    row = left(json.dumps({**DOCUMENT, "stopped": "expected 30 after 3 epochs, got 28"}))
    assert (row.state, row.stopped, row.error) == ("stopped early", "expected 30 after 3 epochs, got 28", "")


def test_figures_that_are_none(left):
    """A diverged loss is kept for people and is null in JSON; what is not a number is not known."""
    odd = {"accuracy": True, "loss": float("nan"), "epochs": 1.5, "iterations": 10**30, "peak_bytes": "many"}
    row = left(json.dumps(odd | {"stopped": 3, "session": ["x"]}))
    assert (row.accuracy, row.epochs, row.iterations, row.peak_bytes, row.stopped, row.session) == (*[None] * 4, "", "")
    assert row.loss != row.loss
    document = Results(Path("r"), GRID).to_dict({0: row})[0]
    assert (document["loss"], document["type"], document["batch_size"]) == (None, "BP", 50)
    json.dumps(document, allow_nan=False)


@pytest.mark.parametrize("out", ["", "{", "[]", "3", "no\n", "[" * 5000, b"\xff\xfe\x00"])
def test_no_result_is_a_failure_though_it_ended_well(left, out):
    assert left(out).error == "has no result at the end of r.out"
    assert left(out).state == "failed"


def test_why_a_run_failed(left):
    assert left("", "a\nmemtui train: no folder\n\n", 2) == TuneRow(seconds=2.5, exit=2, error="no folder")
    assert left("", "50%\r100%\rRuntimeError: \x1b[31mred\xe9\r\n", 1).error == "RuntimeError: \\x1b[31mred\xe9"
    assert left("", b"bad \xff byte", 1).error == "bad \\xff byte"
    assert left("", "", 3).error == "ended with code 3, and said nothing"
    assert left(json.dumps(DOCUMENT), "some words", -9).error == "was killed by SIGKILL"
    assert left("", "", -40).error == "was killed by signal 40"
    assert len(left("", "x" * 100_000, 1).error) == 500


def test_files_that_cannot_be_read_say_nothing(tmp_path):
    (tmp_path / "link").symlink_to("/etc/passwd")
    for name in ("nowhere", "link", "."):
        assert last_line(tmp_path / name) == ""


def test_time_left():
    assert left_s([], 3, []) is None
    assert left_s([TuneRow(error="x", seconds=9)], 3, []) is None
    assert left_s([TuneRow(seconds=10), TuneRow(seconds=20)], 3, [5.0]) == 3 * 15 + 10
    assert left_s([TuneRow(seconds=10)], 4, [5.0, 50.0]) == (40 + 5) / 2


def test_what_will_be_repeated_is_forgotten(tmp_path):
    results = Results(tmp_path, GRID)
    for run in (0, 1, 2):
        results.output(run).write_text("x")
    results.errors(1).write_text("x")
    assert results.begun() == {0, 1, 2}
    results.forget([1, 3])
    assert results.begun() == {0, 2}
    assert not results.errors(1).exists()
    assert Results(tmp_path / "nowhere", GRID).begun() == set()
