"""The ways that convolutions take, against what PyTorch and oneDNN say of them, and the steps by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import assume, given

from memtui.bench.configuration import make
from memtui.bench.predict.steps import steps_of, takes_own_loops
from memtui.bench.spaces import in_space
from tests.support.bench_strategies import convolutions

# What oneDNN calls them, behind the instruction set or before it.
_NAMES = {
    "conv2d depthwise": ("jit_dw",),
    "conv2d matrix products": ("gemm",),
    "conv2d blocks of channels": ("jit:", "jit_1x1:"),
}
_CALLS = """
import json, sys, torch
from memtui.bench.configuration import make
torch.set_num_threads(1)
for given in json.load(sys.stdin):
    made = make("conv2d", given)
    x, w = (tuple(torch.randn(t.shape) for t in tensors(made.parameters))
            for tensors in (made.operator.inputs, made.operator.weights))
    call = made.operator.bind(torch, made.parameters)
    with torch.inference_mode():
        print("begin", flush=True)
        call(x, w)
"""


@given(convolutions())
def test_what_pytorch_leaves_to_its_own_loops(configuration):
    torch = pytest.importorskip("torch")
    select = getattr(torch._C, "_select_conv_backend", None)
    if select is None:
        pytest.skip("this PyTorch does not say which way it takes")
    # Without AVX-512 the loops take every bf16; the ways are those of processors that have it (docs/guide/bench.md).
    assume(configuration.dtype != "bf16" or torch.ops.mkldnn._is_mkldnn_bf16_supported())
    p, dtype = configuration.parameters, {"fp32": torch.float32, "bf16": torch.bfloat16}[configuration.dtype]
    image = torch.empty(p["n"], p["cin"], p["h"], p["w"], dtype=dtype)
    weights = torch.empty(p["cout"], p["cin"] // p["groups"], p["k"], p["k"], dtype=dtype)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        way = select(image, weights, None, [p["s"]] * 2, [p["p"]] * 2, [1, 1], False, [0, 0], p["groups"], None)
    finally:
        torch.set_num_threads(threads)
    assert takes_own_loops(p, configuration.item_bytes) == ("Slow" in str(way))


def test_the_ways_are_those_of_onednn():
    torch = pytest.importorskip("torch")
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip(f"the ways are those of AVX512, and this CPU has {torch.backends.cpu.get_cpu_capability()}")
    requested = sorted(in_space("predict", "conv2d", {}), key=lambda c: c.flops)[:120]  # the quick half
    done = subprocess.run(
        [sys.executable, "-c", _CALLS], input=json.dumps([c.parameters for c in requested]), text=True,
        capture_output=True, check=True, timeout=120, env=os.environ | {"ONEDNN_VERBOSE": "1"},
    )  # fmt: skip
    messages = done.stdout.split("begin\n")[1:]
    assert len(messages) == len(requested)
    wrong = []
    for configuration, message in zip(requested, messages, strict=True):
        result = [line.split(",")[6] for line in message.splitlines() if ",exec,cpu,convolution," in line]
        names = _NAMES.get(steps_of(configuration).way)
        if (names is None) != (not result) or (names and not any(name in result[0] for name in names)):
            wrong.append((configuration.title, steps_of(configuration).way, result))
    assert len(wrong) <= 2, wrong  # versions of oneDNN differ in single ones


def test_steps_by_hand():
    """24 channels fill two blocks of 16; an image of 3 channels is read as it is."""
    dense = steps_of(make("conv2d", {"n": 2, "cin": 64, "cout": 24, "h": 8, "k": 3}))
    assert dense.way == "conv2d blocks of channels"
    assert dense.amounts == {
        "call": 1, "operations, filled": 2 * 2 * 64 * 9 * 64 * 32, "numbers read": 2 * 64 * 64,
        "numbers read, blocks not full": 0, "numbers written": 0, "numbers written, blocks not full": 2 * 24 * 64,
        "weights": 24 * 64 * 9, "numbers in new memory": 0,
    }  # fmt: skip
    image = steps_of(make("conv2d", {"n": 2, "cin": 3, "cout": 16, "h": 224, "k": 7})).amounts
    assert image["operations, filled"] == 2 * 2 * 224 * 224 * 49 * 3 * 16
    assert image["numbers read"] == image["numbers read, blocks not full"] == 0
    grouped = steps_of(make("conv2d", {"n": 2, "cin": 32, "cout": 16, "h": 8, "k": 3, "groups": 2})).amounts
    assert grouped["operations, filled"] == 2 * (2 * 2 * 64 * 9 * 16 * 8 * 2), "half of each register"
    deep = steps_of(make("conv2d", {"n": 2, "cin": 24, "h": 8, "k": 3, "groups": "depthwise", "cout": 24}))
    assert (deep.way, deep.amounts["operations, filled"]) == ("conv2d depthwise", 2 * 2 * 64 * 9 * 32)
    table = steps_of(make("conv2d", {"n": 2, "cin": 12, "cout": 8, "h": 8, "k": 3, "groups": 4}))
    assert (table.way, table.amounts["numbers of columns"]) == ("conv2d matrix products", 2 * 64 * 9 * 12)
    own = steps_of(make("conv2d", {"n": 3, "cin": 8, "cout": 8, "h": 8, "k": 1, "groups": 2}))
    assert (own.way, own.amounts["matrix products"], own.amounts["groups"]) == ("conv2d own loops", 6, 2)
    assert own.amounts["numbers of columns"] == 0


def test_large_tensors_take_new_memory():
    amounts = steps_of(make("conv2d", {"n": 32, "cin": 16, "cout": 32, "h": 112, "k": 3})).amounts
    read, written = 32 * 16 * 112 * 112, 32 * 32 * 112 * 112
    assert read * 4 < 32 << 20 < written * 4
    assert amounts["numbers in new memory"] == 2 * written


@pytest.mark.parametrize(
    ("given", "way"),
    [
        ({"dtype": "bf16"}, "conv2d bf16"),
        ({"mode": "forward-backward"}, "conv2d with backward pass"),
        ({"format": "channels_last"}, "conv2d"),
    ],
)
def test_ways_that_are_not_known_are_one(given, way):
    result = steps_of(make("conv2d", {"n": 2, "cin": 64, **given}))
    assert result.way == way
    assert result.amounts is result.general
    assert set(result.general) == {"call", "operations", "bytes"}
