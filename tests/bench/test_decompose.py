"""A network is taken apart into the operators that a pass of it calls, modules and functions alike."""

from __future__ import annotations

import sys

import pytest

from memtui.bench.configuration import make
from memtui.bench.decomposition.client import decompose as asked
from memtui.bench.decomposition.loading import NoNetwork
from memtui.bench.decomposition.names import NetworkName
from memtui.bench.spaces import resnet50_counts
from memtui.core.errors import UserError
from tests.support.networks import library, write_networks

torch = pytest.importorskip("torch", reason="torch is not installed")

from memtui.bench.torch.decompose import decompose  # noqa: E402 (needs torch)

COMMON = (
    *("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "googlenet", "swin_t", "convnext_tiny"),
    pytest.param("vit_b_16", marks=pytest.mark.slow),  # 86 million random weights
)
OF_TIMM = ("efficientnet_b0", "mobilenetv4_conv_small", "vit_tiny_patch16_224", "convnextv2_atto", "regnetx_002")


@pytest.fixture
def file(tmp_path):
    return write_networks(tmp_path)


def apart(file, function):
    return decompose(NetworkName(f"{file}:{function}"), "cpu", "fp32")


def calls_of(decomposition) -> dict[str, int]:
    calls = {}
    for each in decomposition.operators:
        calls[each.op] = calls.get(each.op, 0) + each.calls
    return calls


def test_modules_and_functions_between_them_are_operators(file):
    result = apart(file, "small")
    assert calls_of(result) == {
        "conv2d": 3, "batchnorm": 1, "hardswish": 1, "maxpool": 1, "groupnorm": 2, "add": 2, "relu": 2, "reduce": 1,
        "linear": 1,
    }  # fmt: skip
    assert (result.leaf_modules, result.leaf_modules_covered) == (9, 9), "the unused one is not called"
    assert result.not_covered == ()
    assert result.time_share == 1
    assert result.shapes == ("2x3x16x24",)
    assert result.parameters == sum((3 * 8 * 7 + 8, 16, 2 * (8 * 8 * 9 + 8 + 16), 12, 45))
    assert result.numbers == 2 * 3 * 16 * 24 + 2 * 5


def test_their_parameters_are_those_of_the_calls(file):
    counts = apart(file, "small").counts({"cache": "warm"})
    first = {"n": 2, "cin": 3, "cout": 8, "h": 16, "w": 24, "k": 1, "kw": 7, "s": 2, "bias": True, "cache": "warm"}
    assert counts[make("conv2d", first)] == 1
    assert counts[make("conv2d", {"n": 2, "cin": 8, "cout": 8, "h": 4, "w": 6, "bias": True, "cache": "warm"})] == 2
    assert counts[make("add", {"elements": 2 * 8 * 4 * 6, "cache": "warm"})] == 2
    assert counts[make("linear", {"m": 2, "in": 8, "out": 5, "cache": "warm"})] == 1


def test_recurrent_layers_and_tables_are_operators_in_one_piece(file):
    result = apart(file, "recurrent")
    given = {each.op: each.parameters for each in result.operators}
    assert given["lstm"] == {
        "b": 3, "s": 7, "in": 16, "hidden": 8, "layers": 2, "bidirectional": True, "bias": True,
    }  # fmt: skip
    assert (given["gru"]["b"], given["gru"]["s"], given["gru"]["in"]) == (7, 3, 16), "its batch is not first"
    assert given["rnn"]["nonlinearity"] == "relu"
    assert given["embedding"] == {"vocab": 50, "dim": 16, "tokens": 21}
    assert given["embedding_bag"] == {"vocab": 50, "dim": 4, "bags": 3, "bag": 7, "reduce": "mean"}
    assert given["reduce"] == {"function": "amax", "outer": 3, "reduced": 7, "inner": 4}
    assert (result.leaf_modules_covered, result.leaf_modules) == (5, 5)


def test_attention_is_an_operator_in_each_of_its_forms(file):
    result = apart(file, "attention")
    given = {each.op: each.parameters for each in result.operators}
    assert given["mha"] == {"b": 2, "s": 6, "dim": 16, "heads": 4}
    assert given["encoderlayer"] == {
        "b": 2, "s": 6, "dim": 16, "heads": 2, "ff": 32, "gelu": False, "norm_first": False,
    }  # fmt: skip
    assert given["sdpa"]["causal"] is True
    assert given["bmm"] == {"b": 2, "m": 6, "n": 6, "k": 16}
    assert given["softmax"] == {"rows": 12, "cols": 6, "inner": 1}
    assert result.not_covered == ()


def test_what_is_no_operator_is_named_with_its_share_of_the_time(file):
    result = apart(file, "strange")
    assert calls_of(result) == {"relu": 1, "linear": 1}
    assert (result.leaf_modules, result.leaf_modules_covered) == (2, 1), "a leaf is covered as a whole or not"
    (one,) = result.not_covered
    assert (one.function, one.module, one.calls) == ("sort", "Sorting", 1)
    assert 0 < one.time_share < 1
    assert result.time_share == pytest.approx(1 - one.time_share)
    text = "\n".join(result.lines())
    assert "operators cover 1 of 2 leaf modules" in text
    assert "not covered: sort in Sorting (1 calls, " in text
    assert result.coverage()["not_covered"][0]["reason"] == "there is no such operator"


def test_a_leaf_whose_call_an_operator_refuses_is_not_covered(file):
    result = apart(file, "empty")
    assert (result.leaf_modules, result.leaf_modules_covered) == (2, 1)
    assert [(one.function, one.reason) for one in result.not_covered] == [("relu", "elements=0 is too small")]


def test_tensors_anywhere_in_the_input_are_of_the_chosen_type(file):
    result = decompose(NetworkName(f"{file}:nested"), "cpu", "bf16")
    assert calls_of(result) == {"add": 1, "linear": 1}, "and none of them is converted"
    assert result.shapes == ("4x8", "4x8")


def test_the_bundled_network_has_the_operators_that_are_listed_for_it(tmp_path):
    file = tmp_path / "bundled.py"
    file.write_text(
        "import torch\nfrom memtui.core.networks import resnet50\n"
        "def build(): return resnet50(torch), torch.randn(1, 3, 64, 64)\n"
    )
    result = apart(file, "build")
    assert result.counts({}) == resnet50_counts(1, 64)
    assert list(result.counts({})) == list(resnet50_counts(1, 64)), "in the same order"
    assert result.leaf_modules == result.leaf_modules_covered
    counts = result.counts({})
    whole = result.network({"cache": "warm"}, counts)
    assert whole.flops == make("resnet50", {"size": 64}).flops
    assert whole.operator.weight_count(whole.parameters) == 25_557_032


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("smal", "has no function smal; did you mean small"),
        ("no_model", "has to return a torch.nn.Module and its input"),
        ("no_input", "an input is a tensor, a list of arguments, or a dict of them, not int"),
        ("wrong_input", "RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        ("fails", r"KeyError: 'weights of mine' \(net.py:\d+: raise KeyError"),
    ],
)
def test_what_cannot_be_taken_apart_is_said_in_a_line(file, function, message):
    with pytest.raises(NoNetwork, match=message) as caught:
        apart(file, function)
    assert "\n" not in str(caught.value)


def test_a_process_of_its_own_takes_it_apart_whatever_it_prints(file):
    result = asked(NetworkName(f"{file}:small"), "cpu", "fp32", 1)
    assert sum(each.calls for each in result.operators) == 14
    with pytest.raises(UserError, match="KeyError: 'weights of mine'") as caught:
        asked(NetworkName(f"{file}:fails"), "cpu", "fp32", 1)
    assert caught.value.code == 2
    with pytest.raises(UserError, match="a pass calls no operator that is known here"):
        asked(NetworkName(f"{file}:nothing"), "cpu", "fp32", 1)
    with pytest.raises(UserError, match="cuda:7 cannot be measured") as caught:
        asked(NetworkName(f"{file}:small"), "cuda:7", "fp32", 1)
    assert caught.value.code == 1


@pytest.mark.parametrize(
    ("script", "last"),
    [
        ("echo a warning >&2; kill -9 $$", "it was killed by SIGKILL"),
        ("echo a warning >&2; echo the reason >&2; exit 1", "the reason"),
        ("exit 3", r"it ended \(3\)"),
        ("test -f /proc/$$/fd/2 && echo a file >&2", "a file"),
    ],
)
def test_a_process_that_says_nothing_is_described(monkeypatch, tmp_path, script, last):
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(UserError, match=f"net.py:small cannot be taken apart: {last}$"):
        asked(NetworkName("net.py:small"), "cpu", "fp32", 1)


@pytest.mark.parametrize("name", COMMON)
def test_common_networks_are_covered_whole(name):
    library(torch, "torchvision")
    result = decompose(NetworkName(f"torchvision:{name}", size=64 if name != "vit_b_16" else 0), "cpu", "fp32")
    assert result.leaf_modules_covered == result.leaf_modules
    assert result.not_covered == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_TIMM)
def test_common_networks_of_timm_are_covered_whole(name):
    library(torch, "timm")
    result = decompose(NetworkName(f"timm:{name}"), "cpu", "fp32")
    assert result.leaf_modules_covered == result.leaf_modules
    assert result.not_covered == ()
