"""What a call becomes computes the same: each rule is held against the call that PyTorch made."""

from __future__ import annotations

import itertools

import pytest

from memtui.bench.operators import CATALOGUE

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.nn import functional  # noqa: E402 (needs torch)

from memtui.bench.torch.watch import watch  # noqa: E402 (needs torch)


def seen(function):
    """Return the calls that PyTorch made in a function, and its result."""
    one_pass, result = watch(torch.nn.Identity(), function, lambda: None)
    return one_pass.calls, result


def found(function):
    """Return the one operator of a function, and what the function returned."""
    calls, result = seen(function)
    ((operator,),) = [call.operators for call in calls]
    return *operator, result


def reasons(function) -> list[str]:
    return [call.reason for call in seen(function)[0]]


def computed(op, parameters, *tensors):
    """Return what the operator makes of the numbers of tensors, in the order in which they lie."""
    operator, p = CATALOGUE[op], CATALOGUE[op].resolve(parameters)
    shaped = [t.reshape(x.shape) for t, x in zip(tensors, operator.inputs(p), strict=True)]
    return operator.bind(torch, p)(tuple(shaped), ()).flatten()


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_a_copy_in_any_order_has_the_same_numbers_in_the_same_places(order):
    x = torch.randn(2, 3, 4, 5)
    op, p, result = found(lambda: x.permute(order).clone(memory_format=torch.contiguous_format))
    assert torch.equal(computed(op, p, x), result.flatten())


def test_most_orders_are_two_groups_exchanged():
    x = torch.randn(2, 3, 4, 5)
    assert found(lambda: x.transpose(1, 2).contiguous())[:2] == ("copy", {"b": 2, "m": 3, "n": 4, "run": 5})
    assert found(lambda: x.permute(0, 2, 3, 1).contiguous())[:2] == ("copy", {"b": 2, "m": 3, "n": 20, "run": 1})
    assert found(lambda: x.permute(3, 2, 1, 0).contiguous())[0] == "permute"
    assert found(lambda: x.permute(1, 0, 2, 3).reshape(-1))[:2] == ("copy", {"b": 1, "m": 2, "n": 3, "run": 20})
    plain = "copy", {"b": 1, "m": 1, "n": 1, "run": 120}
    assert found(lambda: x.clone())[:2] == plain
    assert found(lambda: x[:, :1].expand(2, 3, 4, 5).contiguous())[:2] == plain
    assert found(lambda: x[:, :, ::2].repeat(1, 1, 2, 1))[:2] == plain
    assert seen(lambda: x.view(6, 20).transpose(0, 1)[1:])[0] == [], "a view moves nothing"


SHAPES = [
    ((2, 3, 4, 5), (3, 1, 1)),
    ((2, 3, 4, 5), (2, 3, 1, 1)),
    ((2, 3, 4, 5), (5,)),
    ((2, 3, 4, 5), (2, 1, 4, 5)),
    ((2, 3, 4, 5), (1, 3, 1, 5)),
    ((2, 1, 4, 5), (4, 1)),
    ((7,), (1,)),
]


@pytest.mark.parametrize(("large", "small"), SHAPES)
@pytest.mark.parametrize("function", ["add", "sub", "mul", "div", "maximum"])
def test_two_tensors_of_which_one_is_repeated(large, small, function):
    x, y = torch.randn(large), torch.randn(small)
    op, p, result = found(lambda: getattr(torch, function)(x, y))
    assert op == "binary"
    assert torch.equal(computed(op, p, x, y), result.flatten())


@pytest.mark.parametrize(("large", "small"), SHAPES)
def test_a_product_and_a_sum_with_small_tensors(large, small):
    x, y, z = torch.randn(large), torch.randn(small), torch.randn(small)
    op, p, result = found(lambda: torch.addcmul(z, y, x))
    assert op == "addcmul"
    assert torch.allclose(computed(op, p, x, y, z), result.flatten())


def test_two_tensors_of_the_same_shape():
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    assert found(lambda: x + y)[:2] == ("add", {"elements": 6})
    op, p, result = found(lambda: x * y)
    assert torch.equal(computed(op, p, x, y), result.flatten())


@pytest.mark.parametrize(
    ("first", "second"), [((2, 3, 1), (2, 1, 4)), ((3, 1), (1, 4)), ((3, 2, 1), (3, 1, 5)), ((3, 1), (4,))]
)
def test_two_tensors_of_which_both_are_repeated(first, second):
    x, y = torch.randn(first), torch.randn(second)
    op, p, result = found(lambda: x - y)
    assert op == "outer"
    assert torch.equal(computed(op, p, x, y), result.flatten())


@pytest.mark.parametrize("dims", [1, (2, 3), (1, 2), (0,), (0, 1, 2, 3), -1])
@pytest.mark.parametrize("function", ["mean", "sum", "amax"])
def test_numbers_of_which_one_is_left(dims, function):
    x = torch.randn(2, 3, 4, 5)
    op, p, result = found(lambda: getattr(x, function)(dims))
    assert op == "reduce"
    assert torch.allclose(computed(op, p, x), result.flatten(), atol=1e-6)


def test_tensors_beside_each_other():
    x, y = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    for function in (torch.cat, torch.stack):
        for dim in range(3):
            op, p, result = found(lambda function=function, dim=dim: function([x, y], dim))
            assert op == "cat"
            assert torch.equal(computed(op, p, x, y), result.flatten())


@pytest.mark.parametrize("pad", [(0, 0, 0, 2, 0, 3), (0, 2, 0, 3), (0, 1), (0, 0)])
def test_zeros_beside_numbers(pad):
    x = torch.randn(2, 3, 4, 5)
    op, p, result = found(lambda: functional.pad(x, pad))
    assert op == "pad"
    assert torch.equal(computed(op, p, x), result.flatten())


def test_softmax_along_any_side():
    x = torch.randn(2, 3, 4)
    for dim in range(-1, 3):
        op, p, result = found(lambda dim=dim: torch.softmax(x, dim))
        assert op == "softmax"
        assert torch.allclose(computed(op, p, x), result.flatten())


def test_images_that_are_moved_around_their_edges():
    x = torch.randn(2, 5, 6, 3)
    op, p, result = found(lambda: torch.roll(x, (-2, -2), (1, 2)))
    assert torch.equal(computed(op, p, x), result.flatten())


def test_products_are_of_a_weight_or_of_two_inputs():
    model, x, y = torch.nn.Linear(4, 3, bias=False), torch.randn(2, 5, 4), torch.ones(4, 3)
    one_pass, _ = watch(model, lambda: x @ model.weight.t(), lambda: None)
    assert one_pass.calls[0].operators == (("linear", {"m": 10, "in": 4, "out": 3, "bias": False}),)
    assert found(lambda: x[0] @ y)[:2] == ("matmul", {"m": 5, "n": 3, "k": 4})
    assert found(lambda: x @ x.transpose(1, 2))[:2] == ("bmm", {"b": 2, "m": 5, "n": 5, "k": 4})
    calls, _ = seen(lambda: torch.einsum("bij,bkj->bik", x, x))
    assert calls[0].operators == (("bmm", {"b": 2, "m": 5, "n": 5, "k": 4}),), "seen in its parts"
    calls, _ = seen(lambda: x.unsqueeze(1) @ y.expand(3, 4, 3))
    assert [op for call in calls for op, _ in call.operators][-1] == "bmm"


def test_numbers_and_tensors():
    x = torch.rand(6) + 1
    pairs = [
        (lambda: x * 3, "scale"), (lambda: 3 + x, "shift"), (lambda: x - 1, "shift"), (lambda: x / 2, "scale"),
        (lambda: x**2, "square"), (lambda: x**0.5, "sqrt"), (lambda: x**3.5, "pow"), (lambda: x.clamp(0, 1), "clamp"),
    ]  # fmt: skip
    for function, name in pairs:
        assert found(function)[:2] == ("unary", {"function": name, "elements": 6})
    assert found(lambda: x == 0)[:2] == ("compare", {"elements": 6})
    assert found(lambda: functional.relu6(x))[0] == "hardtanh"
    assert found(lambda: functional.leaky_relu_(x))[0] == "leakyrelu", "in place or not"
    assert found(lambda: functional.interpolate(x.view(1, 1, 2, 3), scale_factor=2))[1]["how"] == "nearest"


@pytest.mark.parametrize(
    "function", [lambda x: x.sum(), lambda x: x.mean(-1), lambda x: torch.softmax(x, 0), lambda x: x.log_softmax(-1)]
)
def test_a_tensor_of_no_sides_is_one_number(function):
    x = torch.randn(())
    op, p, result = found(lambda: function(x))
    assert torch.equal(computed(op, p, x), result.reshape(1))


def test_tensors_without_numbers_beside_each_other_are_nothing():
    x = torch.empty(2, 0)
    for function in (torch.cat, torch.stack):
        for dim in range(2):
            assert seen(lambda function=function, dim=dim: function([x, x], dim))[0] == []


def test_other_forms_of_a_call_are_known():
    x = torch.randn(1, 1, 2, 3)
    assert found(lambda: torch.ops.aten.upsample_nearest2d(x, [4, 9]))[1]["out_w"] == 9
    assert found(lambda: torch._softmax(x, 1, False))[0] == "softmax"
    assert set(reasons(lambda: functional.linear(torch.randn(2, 3), torch.randn(3)))) == {"there is no such operator"}


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # PyTorch copies the input of the even kernel
@pytest.mark.parametrize(("k", "d"), [(3, 1), (3, 2), (4, 1)])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_a_padding_that_is_a_word_is_seen_as_what_it_pads(k, d, padding):
    x, weight = torch.randn(1, 3, 16, 16), torch.randn(2, 3, k, k)
    calls, result = seen(lambda: functional.conv2d(x, weight, padding=padding, dilation=d))
    *pads, (op, p) = [operator for call in calls for operator in call.operators]
    assert op == "conv2d"
    assert CATALOGUE[op].output(CATALOGUE[op].resolve(p)) == tuple(result.shape)
    assert [name for name, _ in pads] == (["pad"] if padding == "same" and k % 2 == 0 else [])


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda: functional.layer_norm(torch.ones(2, 0), (0,)), "its form is not known here (ZeroDivisionError: "),
        (
            lambda: functional.conv2d(torch.randn(1, 3, 8, 8), torch.randn(2, 3, 3, 3), stride=(1, 2)),
            "its stride is 1x2",
        ),
        (lambda: functional.max_pool2d(torch.randn(1, 3, 8, 8), 3, dilation=2), "its kernel has holes"),
        (lambda: functional.max_pool2d(torch.randn(3, 8, 8), 3), "its input is one image without a batch"),
        (lambda: torch.roll(torch.randn(8), 2, 0), "it is not of the rows and columns of n x h x w x c"),
        (lambda: torch.ones(3, dtype=torch.int64) + 1, "it is of whole numbers"),
        (lambda: torch.sort(torch.randn(4)), "there is no such operator"),
        (lambda: torch.randn(2, 3, 1, 5) - torch.randn(1, 3, 4, 1), "both of its tensors are repeated, along several"),
        (lambda: torch.linalg.vector_norm(torch.randn(4, 4), 1), "it is no Euclidean norm"),
        (lambda: torch.randn(2, 3, 4).sum((0, 2)), "it reduces sides that are not beside each other"),
    ],
)
def test_what_the_operators_do_not_have_is_said(function, reason):
    assert any(each.startswith(reason) for each in reasons(function))
