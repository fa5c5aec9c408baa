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
    "conv1d": {"n": 2, "cin": 6, "cout": 8, "l": 9, "s": 2},
    "conv3d": {"n": 2, "cin": 6, "cout": 8, "t": 5, "h": 7, "s": 2},
    "convtranspose2d": {"n": 2, "cin": 6, "cout": 8, "h": 5},
    "mha": {"b": 2, "s": 5, "dim": 8, "heads": 2},
    "encoderlayer": {"b": 2, "s": 5, "dim": 8, "heads": 2, "ff": 16},
    "lstm": {"b": 2, "s": 3, "in": 4, "hidden": 5, "layers": 2, "bidirectional": True},
    "gru": {"b": 2, "s": 3, "in": 4, "hidden": 5},
    "rnn": {"b": 2, "s": 3, "in": 4, "hidden": 5, "bias": False},
    "rmsnorm": {"rows": 4, "dim": 6},
    "groupnorm": {"n": 2, "c": 6, "h": 4, "groups": 3},
    "logsoftmax": {"rows": 4, "cols": 6},
    "embedding_bag": {"vocab": 11, "dim": 4, "bags": 3, "bag": 5},
    "upsample": {"n": 2, "c": 3, "h": 4, "out": 7, "out_w": 9},
    "unary": {"elements": 100},
    "binary": {"a": 2, "b": 3, "c": 4, "d": 5},
    "addcmul": {"a": 2, "b": 3, "c": 4, "d": 5},
    "outer": {"a": 2, "b": 3, "c": 4},
    "reduce": {"outer": 2, "reduced": 3, "inner": 4},
    "copy": {"b": 2, "m": 3, "n": 4, "run": 5},
    "permute": {"shape": "2x3x4x5", "order": "3,1,0,2"},
    "cat": {"outer": 2, "inner": 11, "parts": 3},
    "roll": {"n": 2, "h": 5, "c": 3, "shift": 2},
    "pad": {"outer": 2, "rows": 3, "cols": 4, "inner": 5},
}
# PyTorch's own counter knows these.
COUNTED = (
    *("conv2d", "conv1d", "conv3d", "convtranspose2d", "linear", "matmul", "bmm", "sdpa", "mha", "lstm", "gru", "rnn"),
    "resnet50",
)
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
        ("conv2d", {"kw": 1}),
        ("conv2d", {"k": 1, "kw": 7, "s": 1}),
        ("conv2d", {"d": 2, "pw": 3}),
        ("conv1d", {"groups": "depthwise", "cout": 6, "d": 2, "bias": True}),
        ("conv3d", {"kt": 1, "st": 1, "bias": True}),
        ("convtranspose2d", {"groups": 2, "op": 1, "bias": True}),
        ("convtranspose2d", {"w": 9, "k": 3, "s": 1, "d": 2}),
        ("sdpa", {"t": 5, "mask": True}),
        ("sdpa", {"heads": 4, "kv": 2}),
        ("lstm", {"bidirectional": False, "bias": False}),
        ("gru", {"layers": 3}),
        ("rnn", {"nonlinearity": "relu", "bidirectional": True}),
    ],
)
def test_its_operations_are_those_that_pytorch_counts(name, more, request):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    operator = CATALOGUE[name]
    p = operator.resolve(SMALL[name] | more)
    inputs, weights = (tuple(map(made, some(p))) for some in (operator.inputs, operator.weights))
    # Attention and recurrent layers in one piece are not counted on CPUs; in their parts they are.
    torch._C._set_mkldnn_enabled(name not in ("lstm", "gru", "rnn"))  # ``flags`` of its module warns of Intel's GPUs
    request.addfinalizer(lambda: torch._C._set_mkldnn_enabled(True))
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


def test_bytes_and_operations_of_what_pytorch_does_not_count_by_hand():
    def counted(name, **given):
        operator = CATALOGUE[name]
        p = operator.resolve(given)
        return operator.flops(p), operator.moved_bytes(p, 4)

    # 3 bags of 5 rows of 4 numbers: 15 indices of 8 bytes, 15 rows read, 3 written; 60 additions.
    assert counted("embedding_bag", vocab=1000, dim=4, bags=3, bag=5) == (60, 15 * 8 + (15 + 3) * 4 * 4)
    # 2 x 6 x 4 x 4 numbers in and out, and a scale and a shift of each channel.
    assert counted("groupnorm", n=2, c=6, h=4, groups=3) == (8 * 192, 4 * (192 + 192 + 12))
    assert counted("rmsnorm", rows=4, dim=6) == (4 * 24, 4 * (24 + 24 + 6))
    assert counted("hardswish", elements=10) == (10, 80)
    # 2 x 3 x 7 x 9 numbers of 4 neighbours each, out of 2 x 3 x 4 x 4.
    assert counted("upsample", n=2, c=3, h=4, out=7, out_w=9) == (8 * 378, 4 * (96 + 378))
    assert counted("upsample", n=2, c=3, h=4, out=7, how="nearest")[0] == 0
    assert counted("binary", a=2, b=3, c=4, d=5) == (120, 4 * (120 + 15 + 120))
    assert counted("addcmul", a=2, b=3, c=4, d=5) == (240, 4 * (120 + 15 + 15 + 120))
    assert counted("outer", a=2, b=3, c=4) == (24, 4 * (6 + 8 + 24))
    assert counted("reduce", outer=2, reduced=3, inner=4) == (24, 4 * (24 + 8))
    assert counted("copy", b=2, m=3, n=4, run=5) == (0, 8 * 120)
    assert counted("permute", shape="2x3x5", order="2,0,1") == (0, 8 * 30)
    assert counted("cat", outer=2, inner=11, parts=3) == (0, 8 * 22)
    assert counted("pad", outer=2, rows=3, cols=4, inner=5, more_rows=1, more_cols=0) == (0, 4 * (120 + 160))
    assert counted("compare", elements=10) == (10, 50)
    assert counted("masked_fill", elements=10) == (0, 90)
    # Four projections of 2 x 5 tokens of 8 numbers, two products of 5 x 5 tokens, two products with 8 x 16 weights.
    projections, products = 4 * 2 * 10 * 8 * 8, 2 * 2 * 2 * 5 * 5 * 8
    assert counted("mha", b=2, s=5, dim=8, heads=2)[0] == projections + products
    assert counted("encoderlayer", b=2, s=5, dim=8, heads=2, ff=16)[0] == projections + products + 2 * 2 * 10 * 8 * 16
    # 2 x 3 tokens through 4 gates, of 4 and 5 numbers into 5, and back.
    assert counted("lstm", b=2, s=3, hidden=5, bidirectional=True, **{"in": 4})[0] == 2 * 6 * 2 * 20 * (4 + 5)


@pytest.mark.parametrize("function", CATALOGUE["unary"].choices["function"])
def test_functions_of_one_tensor_are_finite(function):
    p = CATALOGUE["unary"].resolve({"function": function, "elements": 1000})
    result = CATALOGUE["unary"].bind(torch, p)(tuple(map(made, CATALOGUE["unary"].inputs(p))), ())
    assert result.shape == (1000,)
    assert torch.isfinite(result).all()


@pytest.mark.parametrize("function", CATALOGUE["reduce"].choices["function"])
def test_reductions_have_one_number_for_each(function):
    p = CATALOGUE["reduce"].resolve({"function": function, "outer": 2, "reduced": 3, "inner": 4})
    assert CATALOGUE["reduce"].bind(torch, p)((torch.randn(2, 3, 4),), ()).shape == (2, 4)


@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize(
    ("h", "w", "k", "s", "p"), [(7, 9, 3, 2, 0), (8, 8, 3, 2, 1), (5, 6, 2, 3, 1), (4, 4, 2, 2, 0)]
)
def test_neighbourhoods_at_the_edge_are_those_of_pytorch(h, w, k, s, p, ceil):
    given = CATALOGUE["maxpool"].resolve({"n": 1, "c": 2, "h": h, "w": w, "k": k, "s": s, "p": p, "ceil": ceil})
    result = CATALOGUE["maxpool"].bind(torch, given)((torch.randn(1, 2, h, w),), ())
    assert tuple(result.shape) == CATALOGUE["maxpool"].output(given)


@torch.inference_mode()
def test_attention_in_one_piece_is_attention_in_parts():
    operator, p = CATALOGUE["mha"], parameters_of("mha")
    inputs, weights = (tuple(map(made, some(p))) for some in (operator.inputs, operator.weights))
    one = operator.bind(torch, p)(inputs, weights)
    with torch.enable_grad():
        other = operator.bind(torch, p)(inputs, weights)
    assert torch.allclose(one, other, rtol=1e-4, atol=1e-4)


def test_a_copy_is_of_the_same_numbers_in_the_order_it_says():
    p = CATALOGUE["copy"].resolve(SMALL["copy"])
    x = torch.arange(120.0).view(2, 3, 4, 5)
    assert torch.equal(CATALOGUE["copy"].bind(torch, p)((x,), ()), x.transpose(1, 2).contiguous())
    p = CATALOGUE["permute"].resolve(SMALL["permute"])
    result = CATALOGUE["permute"].bind(torch, p)((x.view(2, 3, 4, 5),), ())
    assert torch.equal(result, x.permute(3, 1, 0, 2))
    assert result.is_contiguous()


def test_words_become_numbers():
    p = CATALOGUE["conv2d"].resolve({"cin": 32, "cout": 64, "groups": "depthwise", "k": 5, "h": 20})
    assert (p["groups"], p["p"], p["w"], p["kw"], p["pw"], p["d"]) == (32, 2, 20, 5, 2, 1)
    p = CATALOGUE["conv2d"].resolve({"k": 1, "kw": 7})
    assert (p["p"], p["pw"]) == (0, 3), "padded by the half of each side"
    p = CATALOGUE["conv3d"].resolve({"kt": 1, "s": 2})
    assert (p["k"], p["p"], p["pt"], p["st"], p["w"]) == (3, 1, 0, 2, 28)


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
        ("conv2d", {"kw": 9, "w": 4, "p": 1, "pw": 1}, "a kernel of 3x9 does not fit into 56x4"),
        ("conv1d", {"cin": 6, "groups": 4}, "cin=6 cannot be shared among 4"),
        ("convtranspose2d", {"op": 2}, "op=2 has to be smaller than the stride"),
        ("sdpa", {"heads": 6, "kv": 4}, "6 heads cannot be shared among 4"),
        ("sdpa", {"causal": True, "mask": True}, "causal or has a mask"),
        ("mha", {"heads": 7}, "dim=768 cannot be shared among 7 heads"),
        ("groupnorm", {"groups": 7}, "c=64 cannot be shared among 7 groups"),
        ("softmax", {"rows": 5, "inner": 2}, "5 rows do not lie 2 beside each other"),
        ("reduce", {"function": "var", "reduced": 1}, "two numbers at least"),
        ("unary", {"function": "sinh"}, "function is one of abs, clamp"),
        ("cat", {"inner": 2, "parts": 3}, "2 numbers cannot come in 3 parts"),
        ("permute", {"order": "0,0,1,2,3,4"}, "does not name each of 6 sides once"),
        ("permute", {"shape": "2x"}, "are written 2x3x5 and 2,0,1"),
        ("permute", {"shape": 3}, "shape is a text, not 3"),
    ],
)
def test_what_cannot_be_is_said(name, given, message):
    with pytest.raises(ValueError, match=message):
        CATALOGUE[name].resolve(given)


def test_they_are_listed_without_torch():
    code = "import sys; sys.modules['torch'] = None\nfrom memtui.bench.operators import CATALOGUE as c; print(len(c))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(result.stdout) == len(CATALOGUE) >= 20
