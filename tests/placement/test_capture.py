"""A training step as a graph of kernels."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from memtui.core import networks  # noqa: E402
from memtui.placement.builtin_models import IMAGE_SIDES, MODELS, batch_of  # noqa: E402
from memtui.placement.configurations import all_configurations, configurations  # noqa: E402
from memtui.placement.graph import ARGUMENT, CONSTANT, INTERMEDIATE, RESULT  # noqa: E402
from memtui.placement.profile import MODES  # noqa: E402
from memtui.placement.profiling.alike import measured_count  # noqa: E402
from memtui.placement.torch.capture import Captured, capture  # noqa: E402
from memtui.placement.torch.decompositions import DECOMPOSITIONS  # noqa: E402
from memtui.placement.torch.kernels import out_variant  # noqa: E402
from memtui.placement.torch.models import BUNDLED, NoStep, TrainingStep, build  # noqa: E402

POOLS = ("dram", "slow")
LAYERS = ("Conv2d", "BatchNorm2d", "Linear")
OWN = """
import torch
def make():
    model = torch.nn.Linear(6, 2)
    return model, torch.randn(4, 6), lambda out: out.square().mean()
def values():
    class Peeks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(6, 2)
        def forward(self, x):
            return self.layer(x)[x[:, 0].nonzero().squeeze(1)]
    return Peeks(), torch.randn(4, 6), lambda out: out.sum()
def item():
    class Asks(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * x.sum().item()
    return Asks(6, 2), torch.randn(4, 6), lambda out: out.sum()
def guard():
    class Chooses(torch.nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            if y.sum() > 0:
                y = y * 2
            return y
    return Chooses(6, 2), torch.randn(4, 6), lambda out: out.sum()
def count():
    class Counts(torch.nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            y = y[y > 0]
            return y * 2 if y.shape[0] > 3 else y
    return Counts(6, 2), torch.randn(4, 6), lambda out: out.sum()
def unfit():
    class Unfit(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) @ x
    return Unfit(6, 2), torch.randn(4, 6), lambda out: out.sum()
def empty(): return torch.nn.ReLU(), torch.randn(4, 6), lambda out: out.sum()
def frozen(): return torch.nn.Linear(6, 2).requires_grad_(False), torch.randn(4, 6), lambda out: out.sum()
def apart(): return torch.nn.Linear(6, 2), torch.randn(4, 6), lambda out: out.detach().sum()
def several(): return torch.nn.Linear(6, 2), torch.randn(4, 6), lambda out: out
def nothing(): return 1
def broken(): raise KeyError("no such thing")
def strange(): return 1, 2, 3
"""


class Layers(nn.Module):
    """A layer with one weight, and a function of its output."""

    def __init__(self, work) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.work = work

    def forward(self, x):
        return self.work(x @ self.weight)


def captured(work) -> Captured:
    return capture(TrainingStep(Layers(work), [torch.randn(4, 8)], lambda out: out.sum()), "by hand")


def recurrent(kind: type[nn.Module], steps: int, layers: int = 1, **more: bool) -> Captured:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = kind(16, 16, layers, batch_first=True, **more)

        def forward(self, x):
            return self.layers(x)[0][:, -1]

    return capture(TrainingStep(Last(), [torch.randn(4, steps, 16)], lambda out: out.square().sum()), "recurrent")


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_the_steps_of_a_recurrent_layer_are_the_same_few_ops_however_many_they_are(kind: type[nn.Module]) -> None:
    short, long = recurrent(kind, 6).graph, recurrent(kind, 9).graph
    assert not any("rnn" in op.kind for op in long.ops), "oneDNN's backward pass has 16384 configurations"
    assert max(len([*configurations(long, op, POOLS)]) for op in long.ops) <= 32
    more = len(long.ops) - len(short.ops)
    assert more % 3 == 0
    assert more // 3 > 20
    for mode in MODES:
        counts = [measured_count(graph, POOLS, mode) for graph in (short, long)]
        assert counts[0] == counts[1] < len(all_configurations(short, POOLS)), mode


def test_a_deep_lstm_that_reads_both_ways_is_captured() -> None:
    step = recurrent(nn.LSTM, 3, 2, bidirectional=True)
    sigmoids = [op for op in step.graph.ops if op.kind == "aten.sigmoid_.default"]
    assert len(sigmoids) == 3 * 3 * 2 * 2, "three gates, in three steps of two layers, both ways"


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_many_tensors_are_joined_one_by_one_and_few_at_once(dim: int) -> None:
    parts = [torch.randn(2, 2) for _ in range(6)]
    for together, decomposed in ((torch.cat, DECOMPOSITIONS[torch.ops.aten.cat.default]),
                                 (torch.stack, DECOMPOSITIONS[torch.ops.aten.stack.default])):  # fmt: skip
        assert torch.equal(decomposed(parts, dim), together(parts, dim))
        assert decomposed(parts[:4], dim) is NotImplemented
    legacy = [torch.empty(0), *parts]
    assert torch.equal(DECOMPOSITIONS[torch.ops.aten.cat.default](legacy, dim), torch.cat(legacy, dim))
    graph = captured(lambda x: torch.cat([x.relu() for _ in range(6)], dim)).graph
    copies = [op for op in graph.ops if op.kind == "aten.copy_.default"]
    assert len(copies) == 6
    assert all(len(op.inputs) == 1 for op in copies), "where it writes it does not read"
    assert {len([*configurations(graph, op, POOLS)]) for op in copies} == {4}


@pytest.mark.parametrize("together", [torch.cat, torch.stack])
def test_a_join_of_many_has_the_type_and_strides_that_the_join_at_once_has(together: Any) -> None:
    decomposed = DECOMPOSITIONS[getattr(torch.ops.aten, together.__name__).default]
    images = [torch.randn(2, 3, 4, 5) for _ in range(6)]
    last = [image.to(memory_format=torch.channels_last) for image in images]
    mixed_types = [*images, images[0].double()]
    assert decomposed(mixed_types) is NotImplemented
    for parts in (images, last, [*images, *last], [image.mT for image in images], [torch.empty(0), *last]):
        if together is torch.stack and parts[0].shape == (0,):
            continue  # which it does not take
        for dim in range(-4, 4):
            result, expected = decomposed(parts, dim), together(parts, dim)
            assert result is NotImplemented or result.stride() == expected.stride()
            assert result is NotImplemented or torch.equal(result, expected)
    assert (decomposed(last) is NotImplemented) == (together is torch.stack)
    assert decomposed(images) is not NotImplemented


def test_where_a_view_begins_matters_to_its_alignment_alone() -> None:
    graph = captured(lambda x: sum(x.view(-1)[start:][:8].relu().sum() for start in (0, 16, 3, 19))).graph
    keys = [op.key for op in graph.ops if op.kind == "aten.relu.default"]
    assert keys[0] == keys[1] != keys[2] == keys[3]


def test_the_step_of_784_100_30_10_has_148_configurations_over_32_kernels() -> None:
    graph = capture(build("mlp", 10, 0), "mlp").graph
    assert len(graph.ops) == 32
    assert len(all_configurations(graph, POOLS)) == 148
    assert Counter(len([*configurations(graph, op, POOLS)]) for op in graph.ops) == {2: 8, 4: 17, 8: 6, 16: 1}


def test_names_roles_and_sizes() -> None:
    graph = capture(build("mlp", 10, 0), "mlp").graph
    tensors = graph.tensor
    assert {name for name, t in tensors.items() if t.role == ARGUMENT} == {
        "0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias", "input 0",
    }  # fmt: skip
    assert [t.name for t in tensors.values() if t.role == CONSTANT] == ["constant 0"]
    assert sum(t.size_bytes for t in tensors.values() if t.role == RESULT) == 327_360  # the parameters after the step
    assert tensors["0.weight"].size_bytes == 784 * 100 * 4


def test_a_view_is_its_base_and_no_tensor() -> None:
    graph = captured(lambda x: x.t()[1:].reshape(-1, 2).relu()).graph
    assert not {op.kind for op in graph.ops} & {"aten.t.default", "aten.slice.Tensor", "aten.view.default"}
    relu = next(op for op in graph.ops if op.kind == "aten.relu.default")
    (read,) = relu.inputs
    assert graph.producer[read].kind in ("aten.clone.default", "aten.mm.default")


def test_what_writes_in_place_makes_a_new_tensor_in_old_memory() -> None:
    graph = captured(lambda x: x.mul_(2).view(-1)[4:].add_(1)).graph
    mm, mul, add = graph.ops[:3]
    assert [op.kind for op in (mm, mul, add)] == ["aten.mm.default", "aten.mul_.Tensor", "aten.add_.Tensor"]
    assert mul.inputs == mm.outputs
    assert add.inputs == mul.outputs
    assert len({graph.tensor[t].storage for op in (mm, mul, add) for t in op.outputs}) == 1
    # One place for all of them: two configurations, and four for the product, whose other tensors are given.
    assert [len([*configurations(graph, op, POOLS)]) for op in (mm, mul, add)] == [2, 2, 2]


def test_a_tensor_that_is_read_twice_is_an_input_once() -> None:
    graph = captured(lambda x: x + x).graph
    add = next(op for op in graph.ops if op.kind == "aten.add.Tensor")
    assert len(add.inputs) == 1
    assert len([*configurations(graph, add, POOLS)]) == 4


def test_what_only_asks_for_a_shape_reads_nothing() -> None:
    graph = captured(lambda x: x + torch.ones_like(x)).graph
    assert all(not op.inputs for op in graph.ops if "ones_like" in op.kind)


def test_running_means_are_changed_where_they_lie() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    step = capture(TrainingStep(model, [torch.randn(2, 1, 8, 8)], lambda out: out.square().sum()), "norm")
    changed = {layout.storage for layout in step.changed}
    assert "1.num_batches_tracked" in changed
    assert {"1.running_mean", "1.running_var"} <= changed


def test_ops_of_one_key_share_their_times() -> None:
    graph = capture(build("mlp", 10, 0), "mlp").graph
    keys = Counter((op.kind, op.key) for op in graph.ops)
    assert len(keys) == len(graph.ops)  # no two layers of this net are alike
    twice = nn.Sequential(*(nn.Linear(16, 16, bias=False) for _ in range(3)))
    graph = capture(TrainingStep(twice, [torch.randn(4, 16)], lambda out: out.sum()), "alike").graph
    assert max(Counter((op.kind, op.key) for op in graph.ops).values()) >= 3


@pytest.mark.parametrize("name", ["mlp", "conv", "transformer"])
def test_most_ops_write_to_given_tensors(name: str) -> None:
    step = capture(build(name, 4, 0), name)
    copied = [k.op.kind for k in step.kernels if k.copies]
    assert copied in (
        [],
        ["aten.convolution_backward.default"],
        ["aten.mse_loss.default", "aten.native_layer_norm_backward.default"],
    )
    assert all(t.size_bytes > 0 for t in step.graph.tensors if t.role == INTERMEDIATE)


def test_overloads_with_other_names_for_their_results_are_recognised() -> None:
    aten = torch.ops.aten
    for op, names in (
        (aten.threshold_backward.default, ("grad_input",)),
        (aten.nll_loss_forward.default, ("output", "total_weight")),
        (aten.max_pool2d_with_indices.default, ("out", "indices")),
        (aten.convolution_backward.default, ("out0", "out1", "out2")),
        (aten.ones_like.default, ("out",)),
    ):
        variant = out_variant(op)
        assert variant is not None
        assert variant[1] == names


def test_an_op_that_makes_room_for_more_than_its_result_does_not_do_so_in_the_memory_of_others() -> None:
    step = capture(build("transformer", 4, 0), "transformer")
    assert [k.copies for k in step.kernels if k.op.kind == "aten.mse_loss.default"] == [True]
    assert out_variant(torch.ops.aten.mse_loss.default) is not None


# A whole one takes up to a minute: all blocks of a kind have the same layers. Sides, and numbers of layers by type.
SHRUNK: dict[str, tuple[int, dict[str, Any], dict[str, int]]] = {
    "vgg16": (32, {"VGG_STAGES": ((8,), (8, 8)), "VGG_HIDDEN": (16, 16)}, {"Conv2d": 3, "Linear": 3, "MaxPool2d": 2}),
    "resnet50": (
        32,
        {"RESNET_STAGES": ((2, 8, 32), (1, 16, 64))},
        {"Conv2d": 12, "BatchNorm2d": 12, "Linear": 1, "MaxPool2d": 1, "Bottleneck": 3},
    ),
    "inception_v3": (
        299,  # its auxiliary classifier needs as much
        {"WIDE_BLOCKS": (64,), "FACTORED_BLOCKS": (), "LAST_BLOCKS": 0},
        {"Conv2d": 24, "BatchNorm2d": 24, "Linear": 2, "MaxPool2d": 4, "Branches": 3},
    ),
}


@pytest.mark.parametrize("name", SHRUNK)
def test_published_networks_are_steps_with_the_ops_of_their_layers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    side, blocks, expected = SHRUNK[name]
    monkeypatch.setitem(IMAGE_SIDES, name, side)
    monkeypatch.setattr(networks, "CLASSES", 10)
    for constant, value in blocks.items():
        monkeypatch.setattr(networks, constant, value)
    model = build(name, 2, 0)
    step = capture(model, name)
    kinds = Counter(op.kind for op in step.graph.ops)
    layers = Counter(type(module).__name__ for module in model.model.modules())
    assert {layer: layers[layer] for layer in expected} == expected
    assert kinds["aten.convolution.default"] == kinds["aten.convolution_backward.default"] == layers["Conv2d"]
    assert kinds["aten.native_batch_norm_backward.default"] == layers["BatchNorm2d"]
    assert kinds["aten.addmm.default"] == layers["Linear"]
    assert kinds["aten.max_pool2d_with_indices_backward.default"] == layers["MaxPool2d"]
    losses = 2 if name == "inception_v3" else 1
    assert kinds["aten.nll_loss_forward.default"] == kinds["aten.nll_loss_backward.default"] == losses
    assert kinds["aten.cat.default"] == layers["Branches"]
    assert len(step.results) == len(model.state()[0]) > 0, "the parameters after the step"
    if losses == 2:
        out = torch.randn(2, 10)
        assert float(model.loss((out, out))) == pytest.approx(1.4 * float(model.loss(out))), "the auxiliary one: 0.4"


def test_a_published_network_is_a_step_with_the_ops_of_its_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(IMAGE_SIDES, "densenet121", 32)
    monkeypatch.setattr(networks, "DENSE_BLOCKS", (2, 1))  # all have the same layers, and a whole one takes a minute
    model = build("densenet121", 2, 0)
    step = capture(model, "densenet121")
    kinds = Counter(op.kind for op in step.graph.ops)
    layers = Counter(type(module).__name__ for module in model.model.modules())
    assert (layers["Conv2d"], layers["BatchNorm2d"], layers["Layer"]) == (8, 9, 3)
    assert kinds["aten.convolution.default"] == kinds["aten.convolution_backward.default"] == layers["Conv2d"]
    assert kinds["aten.native_batch_norm_backward.default"] == layers["BatchNorm2d"]
    assert kinds["aten.cat.default"] == layers["Layer"]
    assert len(step.changed) == 3 * layers["BatchNorm2d"], "mean, variance and count"
    assert len(step.results) == len(model.state()[0]), "the parameters after the step"
    most = max(len([*configurations(step.graph, op, POOLS)]) for op in step.graph.ops)
    assert most == 128, "the backward pass of a normalisation"


def test_every_bundled_model_has_a_step_and_a_batch() -> None:
    assert MODELS.keys() == BUNDLED.keys() > IMAGE_SIDES.keys()
    assert (batch_of("vgg16", None), batch_of("mlp", None), batch_of("vgg16", 2)) == (4, 256, 2)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def test_a_model_of_the_users_own(own: Path) -> None:
    step = capture(build(f"{own}:make", 1, 0), "own")
    assert {"weight", "bias", "input 0"} <= {*step.graph.tensor}


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (
            "values",
            r"aten.nonzero.default makes a tensor whose shape depends on values "
            r"\(own.py:12: return self.layer\(x\)\[x\[:, 0\].nonzero\(\).squeeze\(1\)\]\)$",
        ),
        (
            "item",
            r"aten._local_scalar_dense.default makes a number of a tensor, .* \(own.py:17: .*x.sum\(\).item\(\)\)$",
        ),
        (
            "guard",
            r"values that aten._local_scalar_dense.default takes from a tensor \(own.py:23: if y.sum\(\) > 0:\)$",
        ),
        ("count", r"values that aten.index.Tensor takes from a tensor \(own.py:32: return y \* 2 if .*\)$"),
        ("unfit", r"RuntimeError: .* \(own.py:37: return super\(\).forward\(x\) @ x\)$"),
        ("empty", "nothing to train: the model has no parameters$"),
        ("frozen", "nothing to train: none of its parameters requires a gradient$"),
        ("apart", "nothing to train: the loss does not depend on any parameter$"),
        ("several", r"the loss has to be a tensor of one number, and is a tensor of shape \[4, 2\]$"),
        ("nothing", r"has to return \(model, inputs, loss\)"),
        ("broken", r"KeyError: 'no such thing' \(own.py:44: "),
        ("strange", r"has to return \(model, inputs, loss\)"),
        ("valves", "own.py has no function valves; did you mean values"),
        ("zzz", "own.py has no function zzz; there are make, values, item"),
    ],
)
def test_what_cannot_be_captured_is_reported_in_one_line_with_the_op(own: Path, function: str, why: str) -> None:
    name = f"{own}:{function}"
    with pytest.raises(NoStep, match=why) as caught:
        capture(build(name, 1, 0), name)
    assert "\n" not in str(caught.value)
