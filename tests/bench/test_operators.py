"""Every operator does what its shapes, its count of operations and its parameters say, in PyTorch itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from memtui.bench.operators import CATALOGUE
from memtui.bench.operators.base import Tensor

SMALL = {
    "conv2d": {"n": 2, "cin": 6, "cout": 8, "h": 9, "k": 3, "s": 2},
    "linear": {"m": 5, "in": 7, "out": 3},
    "matmul": {"m": 5, "n": 4, "k": 6},
    "bmm": {"b": 2, "m": 5, "n": 4, "k": 6},
    "sdpa": {"b": 2, "heads": 3, "s": 8, "d": 4},
    "layernorm": {"rows": 4, "dim": 6},
    "batchnorm": {"n": 2, "c": 3, "h": 4},
    "softmax": {"rows": 4, "cols": 6},
    "embedding": {"vocab": 11, "dim": 4, "tokens": 6},
    "cross_entropy": {"rows": 4, "classes": 5},
    "maxpool": {"n": 2, "c": 3, "h": 8},
    "avgpool": {"n": 2, "c": 3, "h": 8, "k": 2, "p": 0},
    "adaptiveavgpool": {"n": 2, "c": 3, "h": 6, "out": 2},
    "resnet50": {"n": 1, "size": 32},
}
COUNTED = ("conv2d", "linear", "matmul", "bmm", "sdpa", "resnet50")  # PyTorch's own counter knows these
torch = pytest.importorskip("torch", reason="torch is not installed")


def parameters_of(name: str) -> dict:
    return CATALOGUE[name].resolve(SMALL.get(name, {"elements": 100}))


def made(tensor: Tensor):
    if tensor.below:
        return torch.randint(tensor.below, tensor.shape)
    numbers = torch.randn(tensor.shape)
    return numbers.abs() if tensor.positive else numbers


@pytest.mark.parametrize("name", CATALOGUE)
def test_its_output_has_the_shape_it_says(name):
    operator, p = CATALOGUE[name], parameters_of(name)
    result = operator.bind(torch, p)(*(tuple(map(made, some(p))) for some in (operator.inputs, operator.weights)))
    assert tuple(result.shape or (1,)) == operator.output(p)
    assert torch.isfinite(result).all()


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.parametrize("seed", range(2))
def test_it_can_be_called_again_and_again(name, seed):
    """What it does to its own weights does not run away."""
    operator, p = CATALOGUE[name], parameters_of(name)
    torch.manual_seed(seed)
    inputs, weights = (tuple(map(made, some(p))) for some in (operator.inputs, operator.weights))
    call = operator.bind(torch, p)
    for _ in range(10 if name == "resnet50" else 2000):
        result = call(inputs, weights)
    assert torch.isfinite(result).all()


@pytest.mark.parametrize(
    ("name", "more"),
    [
        *((name, {}) for name in COUNTED),
        ("conv2d", {"groups": 2}),
        ("conv2d", {"groups": "depthwise", "cin": 4}),
        ("conv2d", {"k": 1, "s": 1, "bias": True}),
        ("resnet50", {"size": 224}),
        ("linear", {"bias": False}),
    ],
)
def test_its_operations_are_those_that_pytorch_counts(name, more):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    operator = CATALOGUE[name]
    p = operator.resolve(SMALL[name] | more)
    inputs, weights = (tuple(map(made, some(p))) for some in (operator.inputs, operator.weights))
    # Attention in one piece is not counted on CPUs; in its parts it is.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        operator.bind(torch, p)(inputs, weights)
    assert counter.get_total_flops() == operator.flops(p)


@pytest.mark.parametrize("name", [n for n, operator in CATALOGUE.items() if operator.trains])
def test_it_has_a_backward_pass(name):
    operator, p = CATALOGUE[name], parameters_of(name)
    inputs, weights = (tuple(map(made, some(p))) for some in (operator.inputs, operator.weights))
    requested = [t.requires_grad_() for t in (*inputs, *weights) if t.is_floating_point()]
    result = operator.bind(torch, p)(inputs, weights)
    gradients = torch.autograd.grad(result, requested, torch.ones_like(result), allow_unused=True)
    assert any(g is not None for g in gradients)


def test_bytes_are_those_of_inputs_weights_and_output():
    p = CATALOGUE["linear"].resolve({"m": 5, "in": 7, "out": 3, "bias": True})
    assert CATALOGUE["linear"].moved_bytes(p, 4) == 4 * (5 * 7 + 7 * 3 + 3 + 5 * 3)
    p = CATALOGUE["embedding"].resolve({"vocab": 1000, "dim": 4, "tokens": 6})
    assert CATALOGUE["embedding"].moved_bytes(p, 2) == 6 * 8 + 2 * (6 * 4 * 2)
    assert CATALOGUE["adamw"].moved_bytes(CATALOGUE["adamw"].resolve({"elements": 10}), 4) == 280


def test_words_become_numbers():
    p = CATALOGUE["conv2d"].resolve({"cin": 32, "cout": 64, "groups": "depthwise", "k": 5, "h": 20})
    assert (p["groups"], p["p"], p["w"]) == (32, 2, 20)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("conv2d", {"kernel": 3}, "no parameter kernel; it has n, cin"),
        ("conv2d", {"k": 7, "h": 3, "p": 1}, "kernel of 7 does not fit"),
        ("conv2d", {"cin": 6, "groups": 4}, "cin=6 cannot be shared among 4"),
        ("conv2d", {"cin": 0}, "cin=0 is too small"),
        ("conv2d", {"cin": "many"}, "cin is a whole number, not many"),
        ("conv2d", {"k": "many"}, "k is a whole number, not many"),
        ("conv2d", {"k": 1.5}, "k is a whole number, not 1.5"),
        ("conv2d", {"n": True}, "n is a whole number, not True"),
        ("conv2d", {"bias": 1}, "bias is true or false, not 1"),
        ("conv2d", {"format": "nchw"}, "format is one of contiguous, channels_last, not nchw"),
        ("maxpool", {"k": 2, "p": 2}, "more than half"),
        ("dropout", {"percent": 100}, "at most 99"),
        ("resnet50", {"size": 31}, "at least 32"),
        ("batchnorm", {"n": 1, "h": 1, "train": True}, "more than one value"),
    ],
)
def test_what_cannot_be_is_said(name, given, message):
    with pytest.raises(ValueError, match=message):
        CATALOGUE[name].resolve(given)


def test_they_are_listed_without_torch():
    code = "import sys; sys.modules['torch'] = None\nfrom memtui.bench.operators import CATALOGUE as c; print(len(c))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(result.stdout) == len(CATALOGUE) >= 20
