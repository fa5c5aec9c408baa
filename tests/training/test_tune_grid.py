"""Grids of trainings: which runs they are, in which order, and what a user reads whose grid is not a product."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.errors import UserError
from memtui.training.tune.grid import Grid, from_dict, from_file, from_options

WHOLE = """
epochs = 2
minimum_accuracy = [[1, 5], [3, 30.5]]

[grid]
name = ["fcReLu", "mine"]
type = ["BP", "DFA"]
batch_size = [50, 100, 200]
learning_rate = [0.01, 1e-3, 0.0001]

[networks.mine]
extends = "liao_mnist"
dataset_name = "clusters"
"""
# Values of each kind that a run could have.
VALUES: dict[str, Any] = {
    "name": ("fcReLu", "long_fc", "resnet_18", "vgg_16"),
    "type": ("BP", "FA", "DFA", "DFAMEM"),
    "batch_size": ("1", "50", "100", "200"),
    "learning_rate": ("0.01", "0.001", "1e-05"),
    "momentum": ("0", "0.9"),
    "memory_only": ("true", "false"),
    "seed": ("1", "2", "3"),
}


def grid_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(text)
    return path


def read(tmp_path: Path, text: str, network: str = "", **settings: str) -> Grid:
    return from_file(grid_file(tmp_path, text), network, settings, {})


def test_the_grid_of_the_seed_is_36_runs_with_the_first_axis_slowest(tmp_path):
    grid = read(tmp_path, WHOLE)
    assert len(grid.points) == 36
    assert grid.label(grid.points[0]) == "fcReLu type=BP batch_size=50 learning_rate=0.01"
    assert grid.label(grid.points[1]) == "fcReLu type=BP batch_size=50 learning_rate=0.001"
    assert grid.label(grid.points[3]) == "fcReLu type=BP batch_size=100 learning_rate=0.01"
    assert grid.label(grid.points[35]) == "mine type=DFA batch_size=200 learning_rate=0.0001"
    assert [point.network for point in grid.points] == ["fcReLu"] * 18 + ["mine"] * 18
    used = grid.settings_at(grid.points[35])
    assert (used.sequence, used.dataset_name, used.epochs) == ("liao_mnist", "clusters", 2)
    assert used.minimum_accuracy == ((1, 5.0), (3, 30.5))


def test_words_make_the_same_grid_as_a_file(tmp_path):
    grid = read(tmp_path, "[grid]\ntype = ['BP', 'DFA']\nbatch_size = [5, 6]\n", "fcReLu", epochs="2")
    assert grid == from_options(["type=BP, DFA", "batch_size=5,6"], "fcReLu", {"epochs": "2"}, {})


@given(st.data())
def test_runs_are_the_product_in_order(data):
    keys = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=5, unique=True))
    lists = [data.draw(st.lists(st.sampled_from(VALUES[key]), min_size=1, unique=True)) for key in keys]
    grid = from_options(
        [f"{key}={','.join(values)}" for key, values in zip(keys, lists, strict=True)],
        "" if "name" in keys else "fcReLu",
        {},
        {},
    )
    assert len(grid.points) == math.prod(map(len, lists))
    assert [point.values for point in grid.points] == list(itertools.product(*lists))
    assert from_dict(json.loads(json.dumps(grid.to_dict()))) == grid
    for point in grid.points:
        values = dict(zip(keys, point.values, strict=True))
        assert point.network == values.pop("name", "fcReLu")
        assert point.settings == values


def test_settings_of_the_command_line_go_before_those_of_the_file(tmp_path):
    grid = read(tmp_path, "epochs = 2\nseed = 3\n[grid]\ntype = ['BP']\n", "fcReLu", epochs="7")
    assert grid.points[0].settings == {"epochs": "7", "seed": "3", "type": "BP"}


def test_a_file_may_name_the_network_of_all_runs(tmp_path):
    text = "name = 'long_fc'\n[grid]\ntype = ['BP']\n"
    assert read(tmp_path, text).points[0].network == "long_fc"
    assert read(tmp_path, text, "fcSigmoid").points[0].network == "fcSigmoid"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no [grid]"),
        ("grid = 3", "there is no [grid]"),
        ("[grid]", "has no axis, so no run"),
        ("[grid]\ntype = []", "type has no value, so there is no run"),
        ("[grid]\ntype = 'BP'", "type is not a list"),
        ("[grid]\nbatch_size = 50", "batch_size is not a list; for one value of all runs write it before [grid]"),
        ("[grid]\nbatch_size = [50, [100, 200]]", "batch_size has a list in its list"),
        ("[grid]\nminimum_accuracy = [[10, 30]]", "it is written '10:30,20:50'"),
        ("[grid]\nbatch_size = [{a = 1}]", "batch_size has a list in its list"),
        ("[grid.type]\nvalues = ['BP']", "type is a table"),
        ("[grid]\ntype = ['BP']\ntype = ['DFA']", "is not TOML"),
        ("[[grid]]\ntype = ['BP']", "there is no [grid]"),
        ("[grid]\nbatchsize = [50]", "no setting batchsize; did you mean batch_size"),
        ("[grid]\nname = ['fcRelu']", "there is no network fcRelu; did you mean fcReLu"),
        ("name = '-x'\n[grid]\ntype = ['BP']\n[networks.-x]", "-x is an option, and no network"),
        ("[grid]\ntype = ['BP', 'DFB']", "type=DFB: type is one of BP, FA, DFA, DFAMEM, not DFB"),
        ("[grid]\ntype = ['BP', 'BP']", "type has the value BP twice"),
        ("[grid]\nlearning_rate = [0.001, '1e-3']", "learning_rate: 0.001 and 1e-3 are the same value"),
        ("[grid]\nbatch_size = [5, 0]", "batch_size=0: batch_size is at least 1"),
        ("[grid]\nlearning_rate = [nan]", "learning_rate is more than 0"),
        ('[grid]\ndata = ["a\\u0000b"]', "NUL"),
        ("epoch = 2\n[grid]\ntype = ['BP']", "no setting epoch; did you mean epochs"),
        ("type = 'BP'\n[grid]\ntype = ['BP']", "type is an axis, and is set for all runs as well"),
        ("seed = 2026-01-01\n[grid]\ntype = ['BP']", "seed cannot be"),
        ("sequence = [{layer = 'ReLu'}]\n[grid]\ntype = ['BP']", "belongs into a [networks.NAME]"),
        ("[mine]\nepochs = 2\n[grid]\ntype = ['BP']", "[mine] has no meaning; there are [grid] and [networks.NAME]"),
        ("networks = 3\n[grid]\ntype = ['BP']", "written [networks.name]"),
        ("[networks]\nmine = 3\n[grid]\ntype = ['BP']", "mine is not a table"),
        ("[networks.mine]\nlearning_reate = 3\n[grid]\ntype = ['BP']", "did you mean learning_rate"),
        ("[networks.mine]\nsequence = [{layer='x', a = 2026-01-01}]\n[grid]\ntype = ['BP']", "has a date"),
        (f"[grid]\nseed = {list(range(101))}\nepochs = {list(range(1, 101))}", "10100 runs are more than 10000"),
    ],
)  # fmt: skip
def test_what_is_no_product_is_one_line(tmp_path, text, message):
    network = "" if "name = " in text else "fcReLu"
    with pytest.raises(UserError) as result:
        read(tmp_path, text, network)
    assert message in str(result.value)
    assert str(result.value).startswith(f"{tmp_path}/grid.toml: ")
    assert "\n" not in str(result.value)
    assert result.value.code == 2


def test_every_run_is_checked_before_the_first(tmp_path):
    """Also what only goes wrong together: the last of the twelve needs a folder."""
    text = "[grid]\nbatch_size = [1, 2, 3]\nseed = [1, 2]\ndataset_name = ['digits', 'mnist']\n"
    with pytest.raises(UserError, match=r"batch_size=1 seed=1 dataset_name=mnist: mnist is read from a folder"):
        read(tmp_path, text, "fcReLu")


@pytest.mark.parametrize(
    "document",
    [
        None, [], {}, {"axes": [["type", ["BP"]]]}, {"axes": 3, "network": "fcReLu", "settings": {}, "networks": {}},
        {"axes": [["type", [3]]], "network": "fcReLu", "settings": {}, "networks": {}},
        {"axes": [["type", ["BP"]]], "network": "fcReLu", "settings": [], "networks": {}},
        {"axes": [["type", ["BP"]]], "network": "fcReLu", "settings": {}, "networks": {"mine": 3}},
        {"axes": [["type", ["BP"]]], "network": "fcReLu", "settings": {"epochs": 3}, "networks": {}},
        {"axes": [["type", ["BP"]]], "network": "fcReLu", "settings": {}, "networks": 3},
        {"axes": [["type", ["BP"]]], "network": None, "settings": {}, "networks": {}},
    ],
)  # fmt: skip
def test_what_memtui_did_not_write_is_refused(document):
    with pytest.raises(UserError):
        from_dict(document)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
def test_no_json_breaks_it(plain):
    whole = {"axes": [["type", ["BP"]]], "network": "fcReLu", "settings": {}, "networks": {}}
    for key in whole:
        try:
            from_dict({**whole, key: plain})
        except UserError:
            pass
