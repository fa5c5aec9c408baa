"""Grids, files and spaces of configurations: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.bench.configuration import CONDITIONS, MANY, from_file, from_text, make, parse_grid, product
from memtui.bench.operators import CATALOGUE
from memtui.bench.spaces import SPACES, in_space
from memtui.core.errors import UserError


@given(st.permutations([("cin", 32), ("cout", 48), ("h", 10), ("dtype", "bf16")]))
def test_the_order_of_words_makes_no_other_configuration(pairs):
    assert make("conv2d", dict(pairs)).key == make("conv2d", {"cin": 32, "cout": 48, "h": 10, "dtype": "bf16"}).key


def test_a_word_and_the_number_it_stands_for_are_the_same():
    assert make("conv2d", {"k": 3, "p": "same"}).key == make("conv2d", {"k": 3, "p": 1}).key
    assert make("conv2d", {}).key == make("conv2d", dict(CATALOGUE["conv2d"].resolve({}))).key
    assert make("conv2d", {"h": 10}) in {make("conv2d", {"h": 10})}


def test_a_backward_pass_is_two_more():
    there, back = (make("linear", {"m": 2, "in": 3, "out": 4, "mode": m}) for m in ("forward", "forward-backward"))
    assert back.flops == 3 * there.flops == 3 * 2 * 24
    assert there.moved_bytes == 4 * (6 + 12 + 4 + 8)
    assert back.moved_bytes is None
    assert make("linear", {"m": 2, "in": 3, "out": 4, "dtype": "fp16"}).moved_bytes * 2 == there.moved_bytes


def test_labels_tell_what_is_unusual():
    assert make("relu", {"elements": 10}).label() == "elements=10"
    assert make("relu", {"elements": 10, "cache": "warm"}).label() == "elements=10 cache=warm"
    assert make("conv2d", {"k": 3}).label() == "n=8 cin=64 cout=64 h=56 k=3 s=1 groups=1"
    assert make("conv2d", {"k": 3, "p": 0, "w": 7, "bias": True}).label().split()[4:] == [
        "w=7",
        "k=3",
        "s=1",
        "p=0",
        "groups=1",
        "bias=true",
    ]


def test_grids():
    assert parse_grid(["cin=32, 64", "bias=true", "format=channels_last"]) == {
        "cin": [32, 64], "bias": [True], "format": ["channels_last"]
    }  # fmt: skip
    result = product("conv2d", {"cin": [32, 64], "k": [1, 3], "dtype": ["fp32", "bf16"]})
    assert len(result) == len({c.key for c in result}) == 8
    assert len(product("conv2d", {"cin": [64], "groups": [64, "depthwise"]})) == 1, "the same thing said twice"


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["cin"], "not of the form"),
        (["=3"], "not of the form"),
        (["cin=1,,2"], "not of the form"),
        (["cin=1", "cin=2"], "twice"),
    ],
)
def test_grids_that_are_none(texts, message):
    with pytest.raises(ValueError, match=message):
        parse_grid(texts)


@pytest.mark.parametrize(
    ("op", "grid", "message"),
    [
        ("relu", {"cin": [3]}, "relu has no parameter cin; it has elements, dtype"),
        ("conv2d", {"h": [2, 56], "k": [7], "p": [0]}, "h=2 k=7 p=0: a kernel of 7 does not fit"),
        ("relu", {"dtype": ["fp4"]}, "dtype is one of fp32, tf32, fp16, bf16, fp8, not fp4"),
        ("relu", {"dtype": ["fp8"]}, "relu has no fp8: PyTorch has it for linear"),
        ("linear", {"dtype": ["fp8"], "in": [24]}, "in and out are multiples of 16"),
        ("linear", {"dtype": ["fp8"], "mode": ["forward-backward"]}, "forward only"),
        ("linear", {"dtype": ["fp8"], "weight_zeros": [50]}, "without zeros"),
        ("relu", {"input_zeros": [101]}, "whole number of percent, not 101"),
        ("relu", {"input_zeros": [True]}, "whole number of percent, not true"),
        ("relu", {"weight_zeros": [50]}, "relu has no weights"),
        ("linear", {"weight_zeros": [90], "zeros": ["2:4"]}, "0 or 50"),
        ("relu", {"zeros": ["semi_structured"]}, "PyTorch has them for linear"),
        ("linear", {"zeros": ["semi_structured"], "in": [96]}, "in one of 64"),
        ("linear", {"zeros": ["semi_structured"]}, "weight_zeros=50"),
        ("linear", {"zeros": ["semi_structured"], "weight_zeros": [50]}, "dtype=fp16 or bf16"),
        ("sgd", {"mode": ["forward-backward"]}, "sgd has no backward pass"),
        ("relu", {"elements": list(range(1, MANY + 2))}, "more than"),
    ],
)
def test_grids_that_cannot_be(op, grid, message):
    with pytest.raises(ValueError, match=message):
        product(op, grid)


def test_a_file_has_grids_and_lists(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text("[conv2d.grid]\ncin = [32, 64]\nk = 1\n[[conv2d.list]]\ncin = 3\n[relu.grid]\nelements = [5]\n")
    result = from_file(path, "conv2d", {"dtype": "bf16"})
    assert sorted(c.parameters["cin"] for c in result) == [3, 32, 64]
    assert {c.conditions["dtype"] for c in result} == {"bf16"}
    assert [c.parameters["elements"] for c in from_file(path, "relu", {})] == [5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[conv2d.grid]\ncin = [32,\nk = \n", "is not TOML.*line 3"),
        ("[conv4d.grid]\ncin = [32]\n", r"\[conv4d\] is not an operator"),
        ("[conv2d]\ncin = [32]\n", r"\[conv2d\] has grid and list, not cin"),
        ("conv2d = 3\n", r"\[conv2d\] has grid and list"),
        ("[relu.grid]\nelements = [3]\n", r"there is no \[conv2d.grid\]"),
        ("[conv2d.grid]\nkernel = [3]\n", r"\[conv2d\]: .*conv2d has no parameter kernel"),
        ("[conv2d]\nlist = 3\n", r"\[conv2d\]: list is written \[\[...\]\]"),
        ("[conv2d]\nlist = [3]\n", r"\[conv2d\]: a table of keys"),
        ("[conv2d.grid]\ncin = [[3]]\n", "cin is a whole number"),
    ],
)
def test_files_that_are_wrong_name_the_place(tmp_path, text, message):
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        from_file(path, "conv2d", {})


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        from_file(tmp_path / "none.toml", "conv2d", {})


@pytest.mark.parametrize(
    "text", ['{"op":"conv9d","parameters":{},"conditions":{}}', '{"op":[],"parameters":{}}', "[1]"]
)
def test_a_text_of_another_version_is_refused(text):
    with pytest.raises(ValueError, match=r"there is no operator conv9d|is not a configuration"):
        from_text(text)


def test_every_operator_is_in_the_small_space():
    for name in CATALOGUE:
        assert 3 <= len(in_space("small", name, {})) <= 24
    assert len(in_space("small", "conv2d", {})) == 24


@pytest.mark.parametrize("space", SPACES)
def test_spaces_have_each_configuration_once_and_keep_what_is_asked(space):
    for name in CATALOGUE:
        result = SPACES[space](name, {"cache": "warm"})
        assert len({c.key for c in result}) == len(result)
        assert {c.conditions["cache"] for c in result} <= {"warm"}
        assert all(set(c.conditions) == set(CONDITIONS) for c in result)


def test_sparsity_has_all_shares_and_patterns():
    result = [c.conditions for c in in_space("sparsity", "conv2d", {})]
    assert {c["weight_zeros"] for c in result} == {c["input_zeros"] for c in result} == {0, 50, 90}
    assert {c["zeros"] for c in result} == {"random", "2:4", "channels"}
    assert sum(c["weight_zeros"] == c["input_zeros"] == 0 for c in result) == 1


def test_the_space_to_fit_to_is_wide_and_small_enough():
    result = in_space("predict", "conv2d", {})
    assert len(result) == 240
    kinds = Counter((p["k"], p["s"], p["groups"] > 1) for p in (c.parameters for c in result))
    assert kinds == {(k, s, grouped): 20 if grouped else 10 for k in (1, 3, 5, 7) for s in (1, 2) for grouped in (0, 1)}
    assert len({(c.parameters["cin"], c.parameters["cout"]) for c in result}) > 50
    assert {c.parameters["n"] for c in result} == {1, 2, 4, 8, 16, 32}
    assert max(c.flops for c in result) <= 10**9
    assert max(c.flops for c in result if c.parameters["groups"] > 1) <= 10**8
    assert max(c.moved_bytes for c in result) <= 64 << 20


def test_the_space_to_fit_to_is_the_same_everywhere():
    """Machines take parts of it, and databases of years are put together: another draw would be another space."""
    result = in_space("predict", "conv2d", {})
    text = "\n".join(c.text for c in result)
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "41c210868514d81c122fb9edbe5bf769385cad21b137155166a629c1687b60e3"
    )
    other = in_space("predict", "conv2d", {"dtype": "bf16", "cache": "warm", "mode": "forward-backward"})
    assert [c.parameters for c in other] == [c.parameters for c in result]


def test_a_space_without_the_operator_says_what_it_has():
    with pytest.raises(ValueError, match="the space resnet50 has no gelu; it has conv2d, linear"):
        in_space("resnet50", "gelu", {})
