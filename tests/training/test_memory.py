"""Where memory goes under each rule, to the byte, as memtui's own recorder of steps sees it."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from memtui.analysis.peak_segment import peak_of, representative_step  # noqa: E402
from memtui.core.tracer_messages import AllocationStep, TensorRanges  # noqa: E402
from memtui.recording.tracer import manual_backward, torch_private, tracer  # noqa: E402
from memtui.session.tables.allocations import trace_of  # noqa: E402
from memtui.training.network_specs import layers_of  # noqa: E402
from memtui.training.torch.iteration import Iteration  # noqa: E402
from memtui.training.torch.loss_functions import SoftmaxCrossEntropy  # noqa: E402
from memtui.training.torch.network import Network  # noqa: E402
from memtui.training.torch.optimiser import SGD  # noqa: E402
from memtui.training.torch.rules import BY_NAME as RULES  # noqa: E402

pytestmark = [
    pytest.mark.skipif(torch_private.problem() is not None, reason=str(torch_private.problem())),
    pytest.mark.usefixtures("one_thread_of_torch"),
]
MLP = (500,)


def mlp(depth: int) -> list[dict]:
    hidden = [part for _ in range(depth) for part in ({"layer": "FullyConnected", "units": 500}, {"layer": "ReLu"})]
    return [*hidden, {"layer": "FullyConnected", "units": "outputs"}]


def recorded(sequence, shape, rule: str, examples: int, iterations: int = 5):
    """The last recorded iteration, the segments of the network, and all that was told."""
    net = Network(layers_of(sequence, 10), shape, 10, RULES[rule](), 1)
    optimiser = SGD(net.parameters(), 0.01, 0.9)
    iteration = Iteration(net, RULES[rule](), SoftmaxCrossEntropy(), optimiser)
    reported: list = []
    watching = tracer.quietly(2, (net,), (optimiser,))
    assert watching is not None
    watching.also = reported.append
    x, labels = torch.randn(examples, *shape), torch.randint(0, 10, (examples,))
    try:
        for _ in range(iterations):
            iteration.run(x, labels)
    finally:
        watching.close()
    assert manual_backward.listeners == []
    steps = [one for one in reported if isinstance(one, AllocationStep)]
    assert [step.dropped for step in steps] == [0] * len(steps)
    return trace_of(steps[-1]), tuple(segment.names for segment in net.segments), reported


PINNED = pytest.mark.skipif(
    not torch.__version__.startswith("2.13"), reason="which kernels allocate what is that of torch 2.13"
)


@PINNED
@pytest.mark.parametrize(
    ("rule", "depth", "peak"),
    [
        ("BP", 20, 44_020_048),  # activations, error before and after the ReLU, last layer's gradients, the loss's
        pytest.param("BP", 40, 84_020_048, marks=pytest.mark.slow),
        ("DFA", 20, 45_042_000),  # in place of the chain: error sent, masked, gradients of one layer, network's error
        ("DFAMEM", 20, 9_042_000),  # the same, and of the activations the input and output of one layer
        pytest.param("DFAMEM", 40, 9_042_000, marks=pytest.mark.slow),
    ],
)
def test_the_peak_of_a_deep_network(rule, depth, peak):
    trace, _, _ = recorded(mlp(depth), MLP, rule, 1000)
    assert trace.step == 4
    assert trace.peak_above_start_bytes == peak
    assert trace.returns_to_start


@PINNED
@pytest.mark.parametrize(("rule", "peak"), [("BP", 20_258_048), ("DFAMEM", 2_610_000)])
def test_the_peak_of_a_network_whose_weights_are_most_of_it(rule, peak):
    """Back-propagation adds the gradients of all layers to 38 MB of weights and momentum, and MEM-DFA those of one."""
    trace, _, _ = recorded("long_fc2", (1, 8, 8), rule, 200)
    assert trace.peak_above_start_bytes == peak


@pytest.mark.slow
def test_the_peak_by_formula_on_any_torch():
    """With an eighth of the allocation as room for what other kernels take."""
    width, examples = 500 * 4, 1000
    for depth in (10, 20):
        bp = recorded(mlp(depth), MLP, "BP", examples)[0].peak_above_start_bytes
        assert bp == pytest.approx((depth + 2) * width * examples, rel=0.12)
    shallow, deep = (recorded(mlp(d), MLP, "DFAMEM", examples)[0].peak_above_start_bytes for d in (10, 20))
    assert shallow == deep == pytest.approx(4 * width * examples + 500 * width, rel=0.12)


@pytest.mark.parametrize("rule", ["BP", "FA", "DFA", "DFAMEM"])
def test_kinds_come_out_as_those_of_any_program(rule):
    """Parameters 20,060,040 bytes; 100 inputs of 500 numbers; at the peak of all rules something of each."""
    trace, segments, reported = recorded(mlp(20), MLP, rule, 100)
    parts = peak_of(trace, segments).parts
    weights = 4 * (20 * (500 * 500 + 500) + 500 * 10 + 10)
    assert parts["weights"] == parts["optimiser state"] == weights
    assert parts["inputs"] == 100 * 500 * 4
    buffers = {"BP": 0, "FA": 4 * (19 * 250_000 + 5_000), "DFA": 20 * 4 * 5_000, "DFAMEM": 20 * 4 * 5_000}[rule]
    assert parts.get("buffers", 0) == buffers
    largest = {name: int(trace.by_category()[:, n].max()) for n, name in enumerate(_CATEGORIES)}
    if rule in ("BP", "FA"):
        assert largest["gradients"] == weights  # all of them wait for the step
    else:
        assert largest["gradients"] == 4 * (250_000 + 500)  # one layer's: it is updated at once
    activations = 100 * 2000 * (20 if rule != "DFAMEM" else 2)
    assert largest["activations"] == pytest.approx(activations, rel=0.05)
    assert largest["unknown"] == 8 * 100  # the labels, which are handed to no layer
    fresh = (trace.delta_bytes > 0) & (np.arange(len(trace)) >= trace.existing)
    assert not (fresh & (trace.category == _CATEGORIES.index("unknown"))).any()
    ranges = [one for one in reported if isinstance(one, TensorRanges)][-1]
    assert {name for name in ranges.names if name} == {f"FullyConnected_{2 * n}" for n in range(21)}


def test_phases_and_layers_are_told_in_a_backward_pass_by_hand():
    trace, _, _ = recorded(mlp(2), MLP, "DFAMEM", 10)
    of_layer = {
        (_PHASES[phase], trace.name(op))
        for phase, layer, op, delta in zip(
            trace.phase.tolist(), trace.layer.tolist(), trace.op.tolist(), trace.delta_bytes.tolist(), strict=True
        )
        if trace.name(layer) == "FullyConnected_2" and delta > 0
    }
    assert ("forward", "aten::addmm") in of_layer
    assert ("backward", "aten::mm") in of_layer
    assert not any(op == "aten::mm" and phase == "forward" for phase, op in of_layer)


@PINNED
def test_no_saving_is_promised_that_is_not_there():
    """One block of convolutions decides what MEM-DFA takes: 3 % less than back-propagation, not 80."""
    shape = (3, 32, 32)
    bp, _, _ = recorded("liao_cifar", shape, "BP", 100)
    mem, segments, _ = recorded("liao_cifar", shape, "DFAMEM", 100)
    assert mem.peak_above_start_bytes == 42_602_400
    assert 0.95 < mem.peak_above_start_bytes / bp.peak_above_start_bytes < 1.0
    peak = peak_of(mem, segments)
    assert peak.segment == ("Convolutional_0", "MaxPool_1", "ReLu_2")
    assert peak.segment_bytes > 0.9 * peak.above_start_bytes


def test_a_backward_pass_that_nobody_hears_does_nothing():
    with manual_backward.Backward(object()):
        assert manual_backward.listeners == []


def test_the_telling_step_is_one_without_a_measurement():
    class Step:
        def __init__(self, peak: int, rows: int) -> None:
            self.peak_above_start_bytes, self.rows = peak, rows

    steps = [Step(1000, 90), Step(995, 40), Step(500, 5)]
    assert representative_step(steps) is steps[1]
    steps += [Step(900, 50), Step(900, 45), Step(900, 60)]
    assert representative_step(steps) is steps[4], "an epoch begins in few of them"
    assert representative_step([]) is None


from memtui.analysis.allocation_trace import CATEGORIES as _CATEGORIES  # noqa: E402
from memtui.analysis.allocation_trace import PHASES as _PHASES  # noqa: E402
