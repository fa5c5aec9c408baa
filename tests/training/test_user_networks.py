"""Networks in a Python file: what it defines, what its functions return, and what it may not do to this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from memtui.core.errors import UserError
from memtui.training import user_networks
from memtui.training.network_specs import layers_of
from memtui.training.user_networks import definitions_in, sequence_in
from tests.support.network_files import DEFINITIONS, write_zpp_files


def written(folder: Path, text: str) -> Path:
    path = folder / "mine.py"
    path.write_text(text)
    return path


def test_functions_are_networks_and_imports_and_private_ones_are_not(tmp_path):
    path = written(tmp_path, "from math import sqrt\nfrom json import dumps\n" + DEFINITIONS + "\ndef _own(n): ...\n")
    defined = definitions_in(path)
    assert defined.functions == dict.fromkeys(("small", "pictures", "wrong"), path)
    assert (defined.networks, defined.ignored) == ({}, {})


def test_layers_are_named_and_their_values_go_to_parameters_in_order(tmp_path):
    path = written(tmp_path, DEFINITIONS)
    assert sequence_in(path, "small", 7) == [
        {"layer": "FullyConnected", "units": 20, "flatten": True},
        {"layer": "Tanh"},
        {"layer": "Block", "head": {"layer": "FullyConnected", "units": 15}, "tail": [{"layer": "LeakyReLu"}]},
        {"layer": "FullyConnected", "units": 7},
    ]
    first, *_, last = sequence_in(path, "pictures", 3)
    assert (first["layer"], first["filter_dim"], first["strides"]) == ("Convolutional", [3, 3], [1, 1])
    assert last == {"layer": "FullyConnected", "units": 3, "flatten": True}


OF_ZPP_MEM = """
from layer import *

def pool(n):
    return [ConvolutionalLayer([5, 5], num_of_filters=8, strides=[1, 1], padding="SAME"), BatchNormalization(),
            MaxPool([3, 3], [2, 2]), LeakyReLu(alpha=0.1), FullyConnected(output_dim=n, flatten=True, scope="fc")]

def named(n):
    return [Block([FullyConnected(20, flatten=True), BatchNormalization(-1, 0.8), Tanh()]), FullyConnected(n),
            BatchNormalization(axis=-1, momentum=0.7)]

def rows(n):
    return [BatchNormalization(axis=1), FullyConnected(n)]
"""


def test_what_comes_from_layer_has_the_parameters_and_defaults_of_zpp_mem(tmp_path):
    path = written(tmp_path, OF_ZPP_MEM)
    convolution, norm, pool, leaky, full = layers_of(sequence_in(path, "pool", 10), 10)
    assert (convolution["filter_dim"], convolution["padding"], convolution["add_biases"]) == ((5, 5), "SAME", False)
    assert norm == {"layer": "BatchNormalization", "momentum": 0.99, "epsilon": 0.001}
    assert (pool["strides"], pool["padding"], leaky["slope"], full["units"]) == ((2, 2), "VALID", 0.1, 10)
    block, _, last = layers_of(sequence_in(path, "named", 10), 10)
    assert (block["head"]["units"], block["tail"][0]["momentum"], last["momentum"]) == (20, 0.8, 0.7)
    assert block["tail"][1] == {"layer": "Tanh"}
    with pytest.raises(UserError, match="is over channels, axis=-1, and not axis=1"):
        sequence_in(path, "rows", 10)
    own = written(tmp_path, "def mine(n):\n    return [MaxPool(2), BatchNormalization(), FullyConnected(n, True)]\n")
    pool, norm, _ = layers_of(sequence_in(own, "mine", 10), 10)
    assert (pool["padding"], norm["momentum"]) == ("SAME", 0.9), "names that are there already are memtui's"


def test_tables_are_networks_and_their_other_keys_are_ignored(tmp_path):
    path = write_zpp_files(tmp_path)
    defined = definitions_in(path)
    assert defined.networks.keys() == {"default_network", "liao_network"}
    default, liao = defined.networks.values()
    assert (default["type"], default["batch_size"], liao["epochs"]) == ("DFA", 100, 1)
    assert isinstance(default["seed"], int), "numpy's number"
    assert defined.ignored == {name: ["minimize_manually"] for name in defined.networks}
    beside = path.with_name("sequence_definitions.py")
    assert defined.functions == dict.fromkeys(("wide", "narrow"), beside)
    assert sequence_in(beside, "narrow", 4)[-1] == {"layer": "FullyConnected", "units": 4}, "by a file beside it"


def test_the_file_beside_is_run_only_where_a_table_needs_it(tmp_path):
    (tmp_path / "sequence_definitions.py").write_text("raise SystemExit")
    table = "net = {'sequence': 'small', 'epochs': 2}\n"
    assert definitions_in(written(tmp_path, DEFINITIONS + table)).networks == {
        "net": {"sequence": "small", "epochs": 2}
    }
    assert definitions_in(written(tmp_path, "net = {'sequence': 'fcReLu'}\n")).functions == {}
    with pytest.raises(UserError, match=r"sequence_definitions.py: ended without a word"):
        definitions_in(written(tmp_path, "net = {'sequence': 'other'}\n"))


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        (DEFINITIONS, "wrong", "mine.py: NameError: name 'FullyConected' is not defined"),
        (DEFINITIONS, "smal", "mine.py has no function smal; did you mean small"),
        ("", "small", "mine.py has no function small; "),
        ("def f(n):\n    return Tanh(1)\n", "f", "mine.py: TypeError: Tanh takes at most 0 values: none"),
        ("def f(n):\n    return FullyConnected(1, 2, 3, 4)\n", "f", "at most 3 values: units, flatten, add_biases"),
        ("def f(n):\n    return {1, 2}\n", "f", "mine.py: TypeError: Object of type set is not JSON serializable"),
        ("import sys\nsys.exit('no more')\n", "f", "mine.py: no more"),
        ("import os\nos._exit(0)\n", "f", "mine.py: ended without a word"),
    ],
)
def test_a_file_that_cannot_be_run_is_one_line(text, name, says, tmp_path):
    with pytest.raises(UserError) as caught:
        sequence_in(written(tmp_path, text), name, 10)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_it_prints_is_not_its_answer(tmp_path):
    path = written(tmp_path, "print('loading', end='')\n" + DEFINITIONS)
    assert len(sequence_in(path, "small", 7)) == 4


def test_it_runs_in_another_process(tmp_path):
    path = written(
        tmp_path, "import os, sys\nsys.modules['x_of_mine'] = os\ndef pid(n):\n    return [os.getpid(), n]\n"
    )
    pid, outputs = sequence_in(path, "pid", 10)
    assert (pid != os.getpid(), outputs) == (True, 10)
    assert "x_of_mine" not in sys.modules


def test_one_that_does_not_end_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(user_networks, "_MOST_S", 0.3)
    with pytest.raises(UserError, match=r"mine.py: did not end within 0 s"):
        definitions_in(written(tmp_path, "import time\ntime.sleep(60)\n"))
