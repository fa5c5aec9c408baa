"""Exact steps of small networks: numbers derived by hand, and what must hold for every step."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

from memtui.analysis.allocation_trace import CATEGORIES, PHASES, StepTrace
from memtui.recording.tracer.inject import QUIET_ENVIRONMENT

torch = pytest.importorskip("torch")

from memtui.recording.tracer import step_recorder, torch_private  # noqa: E402
from memtui.recording.tracer.layer_labels import layer_labels  # noqa: E402
from memtui.recording.tracer.step_recorder import ExactStep  # noqa: E402
from memtui.recording.tracer.tensor_registry import Departures, Storage, TensorRegistry, build_registry  # noqa: E402

nn = torch.nn
pytestmark = [
    pytest.mark.skipif(torch_private.problem() is not None, reason=str(torch_private.problem())),
    pytest.mark.usefixtures("one_thread_of_torch"),
]
KERNELS_KNOWN = torch.__version__.startswith("2.13.")
only_these_kernels = pytest.mark.skipif(
    not KERNELS_KNOWN, reason=f"the exact sequence is that of torch 2.13, this is {torch.__version__}"
)


def tiny() -> tuple[nn.Sequential, torch.Tensor, torch.Tensor]:
    """8-4-2 with a batch of 16."""
    return (
        nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)),
        torch.randn(16, 8),
        torch.randint(0, 2, (16,)),
    )


def recorded(
    step: Callable[[ExactStep], None], modules=(), optimizers=(), inputs=(), number=0
) -> tuple[StepTrace, ExactStep]:
    """A step as it is recorded in a tracer; every trace is checked against the invariants."""
    recorder = ExactStep(number, build_registry(modules, optimizers, inputs))
    with layer_labels(modules), recorder:
        step(recorder)
    trace = recorder.trace(build_registry(modules, optimizers, inputs))
    assert trace.check() == []
    assert np.array_equal(trace.usage_bytes, np.cumsum(trace.delta_bytes))
    assert np.array_equal(trace.by_category().sum(axis=1), trace.usage_bytes)
    assert trace.step == number
    return trace, recorder


def own(trace: StepTrace) -> list[int]:
    """Changes of the step itself, in bytes."""
    return trace.delta_bytes[trace.existing :].tolist()


def held(trace: StepTrace, row: int) -> dict[str, int]:
    """Bytes by category after a row, without the empty ones."""
    return {name: size for name, size in zip(CATEGORIES, trace.by_category()[row].tolist(), strict=True) if size}


def tiny_backward() -> tuple[StepTrace, ExactStep]:
    model, x, y = tiny()

    def step(recorder: ExactStep | None = None) -> None:
        nn.functional.cross_entropy(model(x), y).backward()

    for _ in range(3):
        step()
        model.zero_grad(set_to_none=True)
    return recorded(step, [model], inputs=(x, y))


B1 = [256, 256, -256, 128, 128, 4, 4, -128, 4, 128, -4, 128, -128, -128, 256, 32, 8, -128, 256, -256, -256, 128, 16]
B1 += [-256, -4, -4]


@only_these_kernels
def test_the_tiny_step_allocation_by_allocation():
    trace, recorder = tiny_backward()
    assert own(trace) == B1
    assert recorder.dropped == 0
    peak = trace.peak_row
    # Loss 4, root gradient 4, output of ReLU 256, dW2 32, db2 8, dh 256, dz 256.
    assert trace.peak_above_start_bytes == 816
    assert trace.name(int(trace.op[peak])) == "aten::threshold_backward"
    assert PHASES[trace.phase[peak]] == "backward"
    start = {"weights": 184, "inputs": 16 * 8 * 4 + 16 * 8}
    assert held(trace, trace.existing - 1) == start
    assert held(trace, peak) == start | {"gradients": 32 + 8, "activations": 256 + 4 + 4, "temporaries": 256 + 256}
    assert held(trace, -1) == start | {"gradients": 4 * (8 * 4 + 4 + 4 * 2 + 2)}
    assert int(trace.usage_bytes[-1]) - trace.start_bytes == 184


def test_the_tiny_step_by_formulas():
    trace, _ = tiny_backward()
    assert int(trace.usage_bytes[-1]) - trace.start_bytes == 184
    assert trace.peak_above_start_bytes == pytest.approx(816, rel=0.5)
    assert held(trace, -1)["gradients"] == held(trace, -1)["weights"] == 184


def test_layers_and_phases_of_the_tiny_step():
    trace, _ = tiny_backward()
    # The free of what the first layer gave happens in the network's own forward pass.
    assert [trace.name(int(n)) for n in trace.layer[: trace.existing]] == ["0", "0", "2", "2", "", ""]
    rows = range(trace.existing, len(trace))
    sizes = [
        (PHASES[trace.phase[n]], trace.name(int(trace.op[n])).removeprefix("aten::"), trace.name(int(trace.layer[n])))
        for n in rows
        if trace.delta_bytes[n] > 0
    ]
    assert [row for row in sizes if row[2]] == [
        ("forward", "addmm", "0"),
        ("forward", "clamp_min", "1"),
        ("forward", "addmm", "2"),
        ("backward", "mm", "2"),  # dh
        ("backward", "mm", "2"),  # dW2
        ("backward", "sum", "2"),  # db2
        ("backward", "threshold_backward", "1"),
        ("backward", "mm", "0"),  # dW1
        ("backward", "sum", "0"),  # db1
    ]
    # The loss belongs to no layer.
    assert [row[1] for row in sizes if not row[2] and row[0] == "backward"] == [
        "nll_loss_backward",
        "_log_softmax_backward_data",
    ]
    kinds = [CATEGORIES[trace.category[n]] for n in rows if trace.delta_bytes[n] > 0]
    assert kinds[:4] == ["temporaries", "activations", "temporaries", "activations"], "freed in forward, or kept"
    freed = [n for n in rows if trace.delta_bytes[n] < 0]
    assert PHASES[trace.phase[freed[0]]] == "forward"
    assert [trace.name(int(trace.op[n])) for n in freed[-2:]] == ["", ""]
    assert [PHASES[trace.phase[n]] for n in freed[-2:]] == ["backward", "backward"]  # what came before


def medium(momentum: float) -> tuple[StepTrace, ExactStep]:
    model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 30), nn.ReLU(), nn.Linear(30, 10))
    x, y = torch.randn(10, 784), torch.randint(0, 10, (10,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=momentum)

    def step(recorder: ExactStep | None = None) -> None:
        nn.functional.cross_entropy(model(x), y).backward()
        if recorder is not None:
            recorder.note_gradients(build_registry([model], []))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
    return recorded(step, [model], [optimizer], (x, y))


PARAMETERS = 4 * (784 * 100 + 100 + 100 * 30 + 30 + 30 * 10 + 10)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_peak_of_a_perceptron(momentum):
    """All gradients, the last gradient of an activation, the loss and its gradient; x is not asked for its own."""
    assert PARAMETERS == 327_360
    trace, _ = medium(momentum)
    tolerance = 0 if KERNELS_KNOWN else 8_000
    assert trace.peak_above_start_bytes == pytest.approx(PARAMETERS + 10 * 100 * 4 + 8, abs=tolerance)
    start = {"weights": PARAMETERS, "inputs": 31_360 + 80}
    if momentum:
        start["optimiser state"] = PARAMETERS
        assert trace.peak_bytes == pytest.approx(1_017_528, abs=tolerance)
    assert held(trace, trace.existing - 1) == start
    assert held(trace, trace.peak_row)["gradients"] == PARAMETERS
    assert trace.returns_to_start


def mlp() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 5)), torch.randn(
        8, 12
    )


def convolutions() -> tuple[nn.Module, torch.Tensor]:
    return (
        nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3),
            nn.Flatten(),
            nn.Linear(4 * 2 * 2, 5),
        ),
        torch.randn(6, 1, 8, 8),
    )


def transformer() -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(16, 2, dim_feedforward=32, dropout=0.1, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(16 * 4, 5)), torch.randn(3, 4, 16)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("make_optimizer", [momentum, adam])
@pytest.mark.parametrize("make", [mlp, convolutions, transformer])
def test_what_holds_for_every_step(make, make_optimizer, set_to_none, accumulated):
    model, x = make()
    y = torch.randint(0, 5, (len(x),))
    optimizer = make_optimizer(model.parameters())
    weights = sum(p.numel() * 4 for p in model.parameters())

    def step(recorder: ExactStep) -> None:
        for _ in range(accumulated):
            nn.functional.cross_entropy(model(x), y).backward()
        recorder.note_gradients(build_registry([model], [optimizer]))
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)

    traces = [recorded(step, [model], [optimizer], (x, y), number)[0] for number in range(4)]
    first, last = traces[0], traces[-1]
    state = sum(t.numel() * t.element_size() for s in optimizer.state.values() for t in s.values())
    names = ("weights", "gradients", "optimiser state")
    kept = 0 if set_to_none else weights
    assert [held(first, first.existing - 1).get(name, 0) for name in names] == [weights, 0, 0]
    assert [held(first, -1).get(name, 0) for name in names] == [weights, kept, state]
    for trace in traces[1:]:
        assert trace.returns_to_start
        assert [held(trace, n).get(name, 0) for n in (trace.existing - 1, -1) for name in names] == (
            [weights, kept, state] * 2
        )
        by_category = trace.by_category()[trace.existing - 1 :]
        assert (trace.usage_bytes[trace.existing - 1 :] >= trace.start_bytes).all()
        for constant in ("weights", "optimiser state", "inputs", "buffers"):
            column = by_category[:, CATEGORIES.index(constant)]
            assert (column == column[0]).all()
        gradients = by_category[:, CATEGORIES.index("gradients")]
        assert gradients.max() == weights
        assert not by_category[:, CATEGORIES.index("unknown")].any()
        assert by_category[:, CATEGORIES.index("activations")].max() > 0
        assert not by_category[-1, [CATEGORIES.index("activations"), CATEGORIES.index("temporaries")]].any()
        phases = [PHASES[n] for n in trace.phase[trace.existing :]]
        assert {"forward", "backward"} <= set(phases) <= set(PHASES)
        turns = [phase for n, phase in enumerate(phases) if n == 0 or phases[n - 1] != phase]
        wanted = ["forward", "backward"] * accumulated + ["optimiser", "between"]
        assert turns == [phase for phase in wanted if phase in set(phases)]
    if KERNELS_KNOWN:
        assert own(last) == own(traces[-2])


def test_gradients_are_reported_without_a_note_when_the_optimiser_frees_them():
    model, x, y = tiny()
    optimizer = momentum(model.parameters())

    def step(recorder: ExactStep) -> None:
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    trace, _ = recorded(step, [model], [optimizer], (x, y))
    assert held(trace, trace.peak_row)["gradients"] > 0
    gradients = trace.by_category()[:, CATEGORIES.index("gradients")]
    assert (gradients.max(), gradients[-1]) == (184, 0)


def test_gradients_from_before_the_profiler_go_when_the_optimiser_lets_them_go():
    """Torch does not report these frees: the blocks are older than its profiler."""
    model = nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 10))
    x, y = torch.randn(4, 300), torch.randint(0, 10, (4,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(recorder: ExactStep | None = None) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    step()
    trace, recorder = recorded(step, [model], [optimizer], (x, y))
    size = sum(p.numel() * 4 for p in model.parameters())
    rows = range(trace.existing, trace.existing + 4)
    assert sorted(trace.delta_bytes[rows.start : rows.stop].tolist()) == sorted(
        -4 * p.numel() for p in model.parameters()
    )
    assert {PHASES[trace.phase[n]] for n in rows} == {"between"}
    assert {trace.name(int(trace.op[n])) for n in rows} == {"Optimizer.zero_grad#SGD.zero_grad"}
    gradients = trace.by_category()[trace.existing - 1 :, CATEGORIES.index("gradients")]
    assert (gradients[0], gradients.min(), gradients[-1]) == (size, 0, size)
    assert trace.returns_to_start
    assert recorder.dropped == 0


def test_gradients_that_are_dropped_by_hand_are_gone_at_the_end():
    model, x, y = tiny()
    nn.functional.cross_entropy(model(x), y).backward()

    def drop(recorder: ExactStep) -> None:
        for parameter in model.parameters():
            parameter.grad = None

    trace, _ = recorded(drop, [model], inputs=(x, y))
    assert sorted(own(trace)) == [-128, -32, -16, -8]
    # By the end at the latest: the profiler knows blocks from an earlier run, and reports their frees in time.
    assert trace.usage_bytes[-1] == trace.start_bytes - 184


def synthetic(before: TensorRegistry, events: list[tuple[int, int, int]], after: TensorRegistry, device="cpu"):
    """(trace, recorder) of hand-made (time, address, bytes), in a step from 1 to 9."""
    raw = [torch_private.RawEvent(t, ptr, size, None, (), "", None, 1, device) for t, ptr, size in events]
    recorder = ExactStep(0, before)
    recorder._raw, recorder._start_ns, recorder._end_ns = torch_private.RawStep(raw, []), 1, 9
    trace = recorder.trace(after)
    assert trace.check() == []
    return trace, recorder


def test_a_block_whose_address_is_used_again_was_freed_right_before():
    registry = TensorRegistry(gradients={4096: Storage(64, "0")})
    trace, _ = synthetic(registry, [(4, 8192, 16), (5, 4096, 32), (6, 8192, 48)], registry)
    assert trace.delta_bytes.tolist() == [64, 16, -64, 32, -16, 48]
    assert trace.t_ns.tolist() == [1, 4, 5, 5, 6, 6]
    assert trace.name(int(trace.layer[3])) == "0"  # the class of the block determines the layer


def test_inputs_that_nobody_mentions_afterwards_are_kept():
    registry = TensorRegistry(inputs={4096: Storage(64, "")})
    assert synthetic(registry, [], TensorRegistry())[0].returns_to_start
    assert not synthetic(registry, [], TensorRegistry(inputs={8192: Storage(64, "")}))[0].returns_to_start


def test_the_memory_of_each_device_is_a_step_of_its_own():
    """Events as the profiler reports them of a GPU; no GPU is used."""
    registry = TensorRegistry(weights={4096: Storage(100, "0"), 1 << 40: Storage(64, "0")}, devices={1 << 40: "cuda:0"})
    events = [
        torch_private.RawEvent(t, ptr, size, None, (), "aten::mm", None, 1, device)
        for t, ptr, size, device in (
            (2, (1 << 40) + 512, 32, "cuda:0"),
            (3, 8192, 16, "cpu"),
            (4, (1 << 40) + 512, -32, "cuda:0"),
            (5, (1 << 40) + 1024, 8, "cuda:1"),
        )
    ]
    recorder = ExactStep(0, registry)
    recorder._raw, recorder._start_ns, recorder._end_ns = torch_private.RawStep(events, []), 1, 9
    assert recorder.devices == ("cpu", "cuda:0", "cuda:1")
    assert recorder.trace(registry).delta_bytes.tolist() == [100, 16]
    assert recorder.trace(registry, "cuda:0").delta_bytes.tolist() == [64, 32, -32]
    assert recorder.trace(registry, "cuda:1").delta_bytes.tolist() == [8]
    assert [recorder.trace(registry, device).check() for device in recorder.devices] == [[], [], []]


def test_a_stale_size_of_the_profiler_does_not_count():
    """Its table keeps blocks that were freed between two steps; a later block there may have another size."""
    trace, recorder = synthetic(
        TensorRegistry(buffers={4096: Storage(100, "0")}), [(5, 4096, -64), (6, 8192, -32)], TensorRegistry()
    )
    assert trace.delta_bytes.tolist() == [100, -100]
    assert recorder.dropped == 1


def test_data_loaded_in_the_step_are_inputs():
    model, _, y = tiny()
    kept = []

    def step(recorder: ExactStep) -> None:
        x = torch.randn(16, 8)
        kept.append(torch.randn(32, 8))
        recorder.note_inputs(TensorRegistry(inputs=build_registry([], [], [x]).inputs))
        nn.functional.cross_entropy(model(x), y).backward()

    recorder = ExactStep(0, build_registry([model], [], [y]))
    with recorder:
        step(recorder)
    trace = recorder.trace(build_registry([model], [], {"batch": [y, *kept]}))
    assert trace.check() == []
    inputs = trace.by_category()[:, CATEGORIES.index("inputs")]
    assert (inputs.max(), inputs[-1]) == (128 + 512 + 1024, 128 + 1024)


def test_a_pass_without_backward_leaves_only_temporaries():
    model, x, _ = tiny()

    def step(recorder: ExactStep) -> None:
        with torch.no_grad():
            model(x)

    trace, _ = recorded(step, [model], inputs=(x,))
    assert {CATEGORIES[n] for n in trace.category[trace.existing :]} == {"temporaries"}
    assert {PHASES[n] for n in trace.phase[trace.existing :]} == {"forward"}
    assert trace.returns_to_start


def test_memory_that_stays_and_nobody_knows_is_unknown():
    kept = []
    trace, _ = recorded(lambda recorder: kept.append(torch.empty(100)))
    assert own(trace) == [400]
    assert held(trace, -1) == {"unknown": 400}
    assert not trace.returns_to_start


def test_times_are_of_the_monotonic_clock_and_inside_the_step():
    import time

    before = time.monotonic_ns()
    marks = []

    def step(recorder: ExactStep) -> None:
        kept = [torch.empty(10)]
        time.sleep(0.05)
        marks.append(time.monotonic_ns())
        time.sleep(0.05)
        kept.append(torch.empty(20))

    trace, _ = recorded(step)
    assert before <= trace.start_ns < trace.end_ns <= time.monotonic_ns()
    made = trace.t_ns[trace.delta_bytes > 0]
    assert trace.start_ns < made[0] < marks[0] - 40_000_000 < marks[0] + 40_000_000 < made[1] <= trace.end_ns


def test_known_storages_are_found_once():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4, bias=False)
            self.second.weight = self.first.weight
            self.scale = nn.Parameter(torch.ones(3))
            self.register_buffer("mean", torch.zeros(5))

    model, other = Tied(), nn.Parameter(torch.zeros(7))
    whole = torch.zeros(12)
    optimizer = momentum([*model.parameters(), other])
    (model.first.weight.sum() + other.sum()).backward()
    optimizer.step()
    registry = build_registry([model], [optimizer], [{"x": whole[:6]}, (whole[6:], model.mean, 3, None)])
    assert sorted(registry.weights.values()) == [
        (12, "Tied", "scale"), (16, "first", "bias"), (28, "", "float32[7]"), (64, "first", "weight")
    ]  # fmt: skip
    assert sorted(registry.gradients.values()) == [(28, "", "float32[7]"), (64, "first", "weight")]
    assert sorted(registry.optimiser_state.values()) == [
        (28, "", "float32[7] momentum_buffer"), (64, "first", "weight momentum_buffer")
    ]  # fmt: skip
    assert list(registry.buffers.values()) == [(20, "Tied", "mean")]
    assert list(registry.inputs.values()) == [(48, "", "float32")]  # a part of more numbers
    assert registry.weights[model.first.weight.untyped_storage().data_ptr()] == (64, "first", "weight")
    two = build_registry([nn.Linear(1, 1), nn.Sequential(nn.Linear(1, 1)), nn.Linear(1, 1)], [])
    assert [storage.layer for storage in two.weights.values()] == [
        "Linear",
        "Linear",
        "Sequential.0",
        "Sequential.0",
        "Linear#2",
        "Linear#2",
    ]
    assert build_registry([nn.Linear(1, 1, device="meta")], []) == TensorRegistry()
    assert build_registry([], [], torch.eye(3).to_sparse()) == TensorRegistry()


def cpu_profiler(**options) -> torch.profiler.profile:
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **options)


def test_labels_go_away_even_when_a_forward_pass_fails():
    model, x, _ = tiny()
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        with layer_labels([model]):
            with pytest.raises(RuntimeError):
                model(x[:, :3])
            torch.relu(x)
            model(x)
        model(x)
    assert [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()] == hooks
    spans = torch_private.raw_step(profiler).spans
    labels = [span.path[-1] for span in spans if span.path[-1].startswith(step_recorder.LAYER_LABEL)]
    names = [label.removeprefix(step_recorder.LAYER_LABEL) for label in labels]
    assert names == ["Sequential", "0", "Sequential", "0", "1", "2"]
    assert all(span.sequence is None or span.sequence >= 0 for span in spans)
    assert next(span.path for span in spans if span.path[-1] == "aten::relu") == ("aten::relu",)


def test_a_label_left_open_by_an_interrupted_module_ends_with_the_one_around_it():
    class Interrupted(nn.Module):
        def forward(self, x):
            raise KeyboardInterrupt  # torch calls no hook after it

    class Patient(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Interrupted()

        def forward(self, x):
            with pytest.raises(KeyboardInterrupt):
                self.inner(x)
            return x

    kept = []
    model = Patient()
    trace, _ = recorded(lambda recorder: kept.extend([model(torch.empty(1)), torch.empty(1)]), [model])
    assert trace.layer.tolist() == [-1, -1]
    with cpu_profiler() as profiler, layer_labels([model]):
        model(kept[0])
        torch.relu(kept[0])
    spans = torch_private.raw_step(profiler).spans
    assert next(span.path for span in spans if span.op == "aten::relu") == ("aten::relu",)


def test_what_comes_after_the_optimiser_is_between_unless_a_layer_runs():
    model, x, y = tiny()
    optimizer = momentum(model.parameters())

    def step(recorder: ExactStep) -> None:
        optimizer.zero_grad()
        before = torch.empty(30)
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        del before
        after = torch.empty(40)
        with torch.no_grad():
            model(x[:3])
        del after

    trace, _ = recorded(step, [model], [optimizer], (x, y))
    phase = {size: PHASES[trace.phase[own(trace).index(size) + trace.existing]] for size in (120, -120, 160, 48, -160)}
    assert phase == {120: "forward", -120: "optimiser", 160: "between", 48: "forward", -160: "forward"}


def test_a_recomputation_of_activations_in_backward_keeps_its_layer():
    from torch.utils.checkpoint import checkpoint

    model, x, y = tiny()

    def step(recorder: ExactStep) -> None:
        hidden = checkpoint(model[:2], x, use_reentrant=False)
        nn.functional.cross_entropy(model[2](hidden), y).backward()

    trace, _ = recorded(step, [model], inputs=(x, y))
    again = [
        trace.name(int(trace.layer[n]))
        for n in range(trace.existing, len(trace))
        if trace.delta_bytes[n] > 0
        and PHASES[trace.phase[n]] == "backward"
        and trace.name(int(trace.op[n])) == "aten::addmm"
    ]
    assert again == ["0"]
    assert held(trace, -1)["gradients"] == 184


def test_a_label_of_the_program_around_the_step_changes_nothing():
    model, x, y = tiny()
    optimizer = momentum(model.parameters())

    def plain(recorder: ExactStep) -> None:
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del loss

    def labelled(recorder: ExactStep) -> None:
        with torch.profiler.record_function("train_step"):
            plain(recorder)

    recorded(plain, [model], [optimizer], (x, y))
    one, _ = recorded(plain, [model], [optimizer], (x, y))
    two, _ = recorded(labelled, [model], [optimizer], (x, y))
    assert own(one) == own(two)
    for column in ("category", "phase"):
        assert np.array_equal(getattr(one, column), getattr(two, column))
    assert set(two.names) - set(one.names) <= {"train_step"}


def test_a_profiler_of_the_program_is_left_alone():
    recorder = ExactStep(0, TensorRegistry())
    with cpu_profiler() as profiler, recorder:
        torch.empty(3)
    assert recorder.problem == "the profiler of torch did not start: another profiler is on"
    with pytest.raises(RuntimeError, match="another profiler is on"):
        recorder.trace(TensorRegistry())
    assert any(event.key == "aten::empty" for event in profiler.key_averages())
    assert own(recorded(lambda recorder: None)[0]) == []


def test_a_profiler_of_the_program_that_warms_up_is_left_alone():
    """Without care this is a segmentation fault of torch 2.13."""
    with cpu_profiler(schedule=torch.profiler.schedule(wait=0, warmup=1, active=1)) as profiler:
        recorder = ExactStep(0, TensorRegistry())
        with recorder:
            torch.empty(3)
        profiler.step()
        torch.empty(3)
    assert "another profiler is on" in str(recorder.problem)
    assert any(event.key == "aten::empty" for event in profiler.key_averages())


def test_a_profiler_that_the_program_starts_in_the_step_gets_its_turn():
    recorder = ExactStep(0, TensorRegistry())
    with recorder:
        torch.empty(3)
        with cpu_profiler() as profiler:
            torch.empty(3)
        recorder.note(TensorRegistry())
    assert any(event.key == "aten::empty" for event in profiler.key_averages())
    with pytest.raises(RuntimeError, match="the program started its own profiler in the step"):
        recorder.trace(TensorRegistry())
    assert own(recorded(lambda recorder: torch.empty(3))[0]) == [12, -12]


def test_an_exception_of_the_program_passes_through():
    recorder = ExactStep(0, TensorRegistry())

    def fail() -> None:
        with recorder:
            torch.empty(3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert own(recorder.trace(TensorRegistry())) == [12, -12]


def test_a_torch_without_the_event_tree_is_reported(monkeypatch):
    monkeypatch.setattr(torch_private, "_missing", lambda: "it has no experimental_event_tree")
    recorder = ExactStep(0, TensorRegistry())
    with recorder:
        torch.empty(3)
    with pytest.raises(RuntimeError, match=r"does not tell every allocation \(it has no exper"):
        recorder.trace(TensorRegistry())


QUIET = """
import torch
from memtui.recording.tracer.step_recorder import ExactStep, TensorRegistry
older = [torch.empty(1000) for _ in range(3000)]  # torch warns of every thousandth such free
recorder = ExactStep(0, TensorRegistry())
with recorder:
    older.clear()
    torch.empty(3)
assert recorder.trace(TensorRegistry()).delta_bytes.tolist() == [12, -12]
"""


def test_nothing_is_written_to_the_standard_error_stream():
    import os

    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KINETO", "TORCH"))}
    command = [sys.executable, "-c", QUIET]
    done = subprocess.run(command, env=environment | QUIET_ENVIRONMENT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_what_was_there_and_goes_is_freed_at_that_moment():
    """The profiler says nothing of it: the memory is older than itself."""
    first, second = torch.zeros(1000), torch.zeros(500)
    registry = build_registry([], [], (), [first, second])
    recorder = ExactStep(0, registry, Departures([first, second], registry.others))
    with recorder:
        tensor = torch.empty(3)
        del first
        more = torch.empty(4)
    trace = recorder.trace(TensorRegistry())
    assert not trace.check()
    assert trace.delta_bytes.tolist() == [4000, 2000, 12, -4000, 16]
    assert [CATEGORIES[kind] for kind in trace.category.tolist()] == ["unknown"] * 5
    assert (len(tensor), len(more), len(second)) == (3, 4, 500)
