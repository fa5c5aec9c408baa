"""What an operator works on: walked in a line through more than the cache, weights really distinct, zeros as asked."""

from __future__ import annotations

from itertools import islice, pairwise
from types import SimpleNamespace

import pytest

from memtui.bench import data as data_module
from memtui.bench.configuration import make
from memtui.bench.data import ALIGN_BYTES, Data, OutOfMemory, out_of_memory

torch = pytest.importorskip("torch", reason="torch is not installed")
MIB = 1 << 20


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(data_module, "BUFFER_BYTES", MIB)


def data(op: str, cache_bytes: int = 0, **given) -> Data:
    return Data(torch, "cpu", make(op, given), cache_bytes, seed=3)


def test_inputs_are_walked_in_a_line_and_again_from_the_begin():
    tensors = data("relu", elements=1000)
    places = [x[0].data_ptr() for x in islice(tensors.walk()[0], len(tensors.inputs) + 1)]
    assert all(b - a == 4096 for a, b in pairwise(places[:-1])), "4000 bytes, and the next multiple"
    assert places[-1] == places[0]
    assert len(tensors.inputs) == MIB // 4096
    assert all(place % ALIGN_BYTES == places[0] % ALIGN_BYTES for place in places)
    assert tensors.walked_bytes == len(tensors.inputs) * 4000


def test_the_buffer_is_larger_than_the_cache():
    assert data("relu", elements=1000, cache_bytes=MIB).walked_bytes > 3.8 * MIB
    assert len(data("relu", elements=1000, cache="warm").inputs) == 1
    assert len(data("relu", elements=MIB).inputs) == 2, "two take turns, however large they are"


def test_two_inputs_of_a_call_are_different_memory():
    tensors = data("add", elements=1000)
    seen = [t.data_ptr() for x in tensors.inputs for t in x]
    assert len(set(seen)) == len(seen)


def test_weights_take_turns_and_are_distinct_memory():
    tensors = data("conv2d", cin=8, cout=8, h=8, bias=True)
    assert tensors.copies == data_module.COPIES
    seen = [w.data_ptr() for copy in tensors.weights for w in copy]
    assert len(set(seen)) == len(seen) == 2 * tensors.copies
    in_turn = [w[0].data_ptr() for w in islice(tensors.walk()[1], tensors.copies + 1)]
    assert len(set(in_turn)) == tensors.copies
    assert in_turn[0] == in_turn[-1]
    assert data("conv2d", cin=8, cout=8, h=8, weights="same").copies == 1
    assert data("conv2d", cin=512, cout=512, h=8).copies == 1, "8 sets of 9 MiB are more than the buffer"


def test_weights_that_are_one_memory_are_found(monkeypatch):
    kept = {}
    first = Data._weight
    monkeypatch.setattr(Data, "_weight", lambda self, t, *rest: kept.setdefault(t, first(self, t, *rest)))
    with pytest.raises(RuntimeError, match="same memory"):
        data("conv2d", cin=8, cout=8, h=8)


def test_numbers_are_random_and_the_same_for_the_same_seed():
    one, two = (data("relu", elements=5000).inputs[0][0] for _ in range(2))
    assert torch.equal(one, two)
    assert abs(one.mean()) < 0.1
    assert abs(one.std() - 1) < 0.1
    other = Data(torch, "cpu", make("relu", {"elements": 5000}), 0, seed=4).inputs[0][0]
    assert not torch.equal(one, other)


@pytest.mark.parametrize(("dtype", "kind"), [("fp32", "float32"), ("fp16", "float16"), ("bf16", "bfloat16")])
def test_types(dtype, kind):
    tensors = data("linear", m=8, dtype=dtype, **{"in": 64, "out": 32})
    assert {t.dtype for t in (*tensors.inputs[0], *tensors.weights[0])} == {getattr(torch, kind)}
    assert data("embedding", vocab=10, dim=4, tokens=50, dtype=dtype).inputs[0][0].dtype == torch.int64


def test_indices_stay_below_their_end():
    result = data("embedding", vocab=10, dim=4, tokens=500).inputs[0][0]
    assert (int(result.min()), int(result.max())) == (0, 9)


def zeros(tensor) -> float:
    return float((tensor == 0).float().mean())


@pytest.mark.parametrize("share", [10, 50, 90])
def test_zeros_by_chance(share):
    tensors = data("linear", m=100, input_zeros=share, weight_zeros=share, **{"in": 200, "out": 100})
    assert zeros(tensors.inputs[0][0]) == pytest.approx(share / 100, abs=0.02)
    assert zeros(tensors.weights[0][0]) == pytest.approx(share / 100, abs=0.02)


def test_two_of_every_four_are_zero():
    tensors = data("conv2d", cin=16, cout=8, h=8, weight_zeros=50, zeros="2:4")
    assert ((tensors.weights[0][0].reshape(-1, 4) == 0).sum(1) == 2).all()
    assert zeros(tensors.inputs[0][0]) == 0


def test_whole_channels_are_zero():
    tensors = data("conv2d", cin=10, cout=20, h=8, n=2, input_zeros=50, weight_zeros=90, zeros="channels")
    assert [bool((tensors.inputs[3][0][:, c] == 0).all()) for c in range(10)] == [True] * 5 + [False] * 5
    assert sum(bool((w == 0).all()) for w in tensors.weights[0][0]) == 18
    tensors = data("linear", m=4, input_zeros=50, zeros="channels", **{"in": 8, "out": 3})
    assert [bool((tensors.inputs[0][0][:, c] == 0).all()) for c in range(8)] == [True] * 4 + [False] * 4


def test_channels_last_is_another_order_of_the_same_shape():
    tensors = data("conv2d", cin=16, cout=8, h=8, format="channels_last")
    assert tensors.inputs[0][0].shape == (8, 16, 8, 8)
    assert tensors.inputs[0][0].is_contiguous(memory_format=torch.channels_last)
    assert tensors.weights[0][0].is_contiguous(memory_format=torch.channels_last)


def test_where_memory_is_short_the_buffer_becomes_smaller(monkeypatch):
    first = Data._numbers

    def short(self, tensor, count):
        if count > 100_000:
            raise OutOfMemory("no")
        return first(self, tensor, count)

    monkeypatch.setattr(Data, "_numbers", short)
    tensors = data("relu", elements=1000)
    assert 50 < len(tensors.inputs) < 100
    with pytest.raises(OutOfMemory):
        data("relu", elements=60_000)


def test_what_torch_says_when_memory_is_short():
    with pytest.raises(RuntimeError) as result:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert out_of_memory(result.value)
    assert out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None


def test_numbers_of_8_bits_are_multiplied():
    """With all scales 1 the product is that of the numbers themselves, rounded to bf16."""
    configuration = make("linear", {"m": 8, "in": 64, "out": 32, "dtype": "fp8"})
    tensors = Data(torch, "cpu", configuration, 1 << 20, seed=0)
    x, (weight, bias) = tensors.inputs[0], tensors.weights[0]
    assert {x[0].dtype, weight.dtype} == {torch.float8_e4m3fn}
    result = configuration.operator.bind_fp8(torch, configuration.parameters, "cpu")(x, (weight, bias))
    expected = x[0].float() @ weight.float().t() + bias.float()
    assert result.dtype == bias.dtype == torch.bfloat16
    assert torch.allclose(result.float(), expected, rtol=0.01, atol=0.05)
    assert configuration.moved_bytes == 8 * 64 + 32 * 64 + 2 * (8 * 32 + 32)


def test_an_operator_without_numbers_of_8_bits_says_so_where_it_is_called():
    relu = make("relu", {})
    with pytest.raises(RuntimeError, match=r"^relu has no fp8: PyTorch has it for linear$"):
        relu.operator.bind_fp8(torch, relu.parameters, "cpu")


def test_an_old_pytorch_has_no_fp8():
    old = SimpleNamespace(nn=SimpleNamespace(functional=SimpleNamespace()), __version__="2.4.0")
    configuration = make("linear", {"dtype": "fp8"})
    with pytest.raises(RuntimeError, match=r"fp8 needs PyTorch 2\.10 or newer; this is 2\.4\.0"):
        configuration.operator.bind_fp8(old, configuration.parameters, "cpu")


def test_weights_without_their_zeros_need_a_gpu():
    given = {"m": 8, "in": 64, "out": 32, "dtype": "bf16", "weight_zeros": 50}
    compressed, dense = (make("linear", {**given, "zeros": zeros}) for zeros in ("semi_structured", "2:4"))
    with pytest.raises(RuntimeError, match="needs a GPU with sparse tensor cores"):
        Data(torch, "cpu", compressed, 1 << 20, seed=0)
    assert compressed.flops == dense.flops
    assert dense.moved_bytes - compressed.moved_bytes == 64 * 32 * 2 - (64 * 32 // 2 * 2 + 64 * 32 // 2 * 2 // 8)
