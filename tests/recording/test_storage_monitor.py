"""The cheap monitor of tensors between recorded steps: compared with exact steps, and harmless to the program."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.core.tracer_messages import AllocationStep, TensorRanges, TrainingProgress

torch = pytest.importorskip("torch")

from memtui.recording.tracer import storage_monitor, tensor_registry, torch_private, tracer  # noqa: E402
from memtui.recording.tracer.overhead import Expense  # noqa: E402
from memtui.recording.tracer.tracer import Tracer  # noqa: E402

nn = torch.nn
pytestmark = [
    pytest.mark.skipif(torch_private.watching_problem() is not None, reason=str(torch_private.watching_problem())),
    pytest.mark.usefixtures("one_thread_of_torch"),
]
WEIGHTS, GRADIENTS, ACTIVATIONS, STATE, INPUTS, UNKNOWN = (
    CATEGORIES.index(name) for name in ("weights", "gradients", "activations", "optimiser state", "inputs", "unknown")
)


class Heard:
    """In the place of a connection."""

    lost = 0

    def __init__(self) -> None:
        self.messages: list = []

    def send(self, message) -> None:
        self.messages.append(message)

    def close(self) -> None:
        pass

    def of(self, kind: type) -> list:
        return [message for message in self.messages if isinstance(message, kind)]


@pytest.fixture
def all_steps(monkeypatch):
    """Time does not matter, and every step is reported by itself."""
    monkeypatch.setattr(Expense, "affordable", True)
    monkeypatch.setattr("memtui.recording.tracer.progress_batch.SEND_NS", 0)


@pytest.fixture
def trace():
    """Starts a tracer, which sends to what is returned; takes it back."""
    begun = []

    def start(every: int = 1000) -> Heard:
        heard = Heard()
        begun.append(Tracer(every, lambda: heard))
        heard.tracer = begun[-1]
        return heard

    yield start
    for t in begun:
        t.close()
    assert torch._C._len_torch_dispatch_stack() == 0


def perceptron():
    net = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 30), nn.ReLU(), nn.Linear(30, 10))
    return net, torch.randn(10, 784), torch.randint(0, 10, (10,))


def convolutions():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(9)
    )
    x, y = torch.randn(16, 3, 20, 20), torch.randint(0, 9, (16,))
    net(x)
    return net, x, y


def transformer():
    block = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
    net = nn.Sequential(block, nn.Flatten(), nn.Linear(32 * 12, 5))
    return net, torch.randn(8, 12, 32), torch.randint(0, 5, (8,))


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters)


def train(net, x, y, optimizer, steps: int, set_to_none: bool = True) -> list[float]:
    losses = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def fullest(message: TrainingProgress) -> np.ndarray:
    """Bytes by category at the fullest moment."""
    return message.usage[4:, int(np.argmax(message.usage[4:].sum(axis=0)))]


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("make_optimizer", [momentum, adam])
@pytest.mark.parametrize("make", [perceptron, convolutions, transformer])
def test_it_sees_what_an_exact_step_has_but_for_the_scratch_memory(make, make_optimizer, set_to_none, all_steps, trace):
    net, x, y = make()
    heard = trace(every=3)
    train(net, x, y, make_optimizer(net.parameters()), 8, set_to_none)
    exact = {message.step: message for message in heard.of(AllocationStep)}
    seen = {message.first: message for message in heard.of(TrainingProgress)}
    assert set(exact) == {2, 5}
    assert set(seen) == set(range(1, 8))
    assert seen[1].usage.shape[1] == 0  # nothing is known of the first steps
    whole, cheap = fullest(seen[5]), fullest(seen[6])
    # The fullest moment of an exact step may lie inside an operator.
    assert 0.9 * whole.sum() <= cheap.sum() <= whole.sum()
    for category in (WEIGHTS, STATE):
        assert cheap[category] == whole[category] > 0
    assert cheap[GRADIENTS] >= 0.9 * whole[GRADIENTS]


@pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="the allocations are those of torch 2.13")
def test_the_peak_of_the_perceptron_is_the_hand_checked_one(all_steps, trace):
    """As of an exact step: this net has no scratch memory at its peak. The labels, 80 bytes, are too small to count."""
    net, x, y = perceptron()
    heard = trace()
    train(net, x, y, momentum(net.parameters()), 6)
    parameters_bytes = 327_360
    kinds = fullest(heard.of(TrainingProgress)[-1])
    assert kinds[WEIGHTS] == kinds[STATE] == kinds[GRADIENTS] == parameters_bytes
    assert kinds[INPUTS] == x.nbytes == 31_360
    assert kinds.sum() == 3 * parameters_bytes + x.nbytes + 4 * 10 * 100 + 8


def test_tensors_of_no_model_and_no_optimiser_count_as_long_as_they_are_there(all_steps, trace):
    """A data set that batches are gathered from, made before anything was traced."""
    net, x, y = perceptron()
    data = {"set": torch.randn(5000, 784), "some": torch.zeros(64), "copy": torch.randn(300, 784)}
    whole, copied = data["set"].nbytes, data["copy"].nbytes
    heard, optimizer = trace(every=3), momentum(net.parameters())
    before = next(m for m in _steps(heard, net, data, y, optimizer, 8)[::-1] if m.view)
    assert fullest(before)[UNKNOWN] == whole + copied + x.nbytes
    exact = heard.of(AllocationStep)[-1]
    there = {int(d) for d, kind in zip(*exact.columns[[1, 3], : exact.existing], strict=True) if kind == UNKNOWN}
    assert {whole, copied, x.nbytes, 64 * 4} <= there
    ranges = heard.of(TensorRanges)[-1]
    assert ("float32[5000, 784]", "unknown") in {
        (part, CATEGORIES[kind]) for part, kind in zip(ranges.parts, ranges.columns[2].tolist(), strict=True)
    }
    del data["copy"]
    after = _steps(heard, net, data, y, optimizer, 2)[-1]
    assert fullest(after)[UNKNOWN] == whole + x.nbytes


def _steps(heard, net, data, y, optimizer, count: int) -> list[TrainingProgress]:
    for _ in range(count):
        rows = torch.randint(0, len(data["set"]), (10,))
        train(net, data["set"][rows], y, optimizer, 1)
    return heard.of(TrainingProgress)


def test_a_device_has_its_own_account(all_steps, trace, monkeypatch):
    """No GPU is at hand: what is in main memory says that it is elsewhere, all but whole numbers."""
    net, x, y = perceptron()
    optimizer = momentum(net.parameters())
    heard = trace(every=1000)
    train(net, x, y, optimizer, 5)
    plain = fullest(heard.of(TrainingProgress)[-1])
    heard.tracer.close()
    monkeypatch.setattr(
        tensor_registry, "device_of", lambda tensor: "cuda:0" if tensor.dtype == torch.float32 else "cpu"
    )
    heard = trace(every=1000)
    labels = torch.randint(0, 10, (10, 1000))
    train(net, x, y, optimizer, 5)
    messages = heard.of(TrainingProgress)
    last = {message.device: message for message in messages[-2:]}
    assert set(last) == {"cpu", "cuda:0"}
    assert last["cpu"].ends_ns.tolist() == last["cuda:0"].ends_ns.tolist()
    assert fullest(last["cuda:0"]).tolist() == plain.tolist()
    assert fullest(last["cpu"]).sum() == fullest(last["cpu"])[UNKNOWN] == labels.nbytes
    assert "aten::" in " ".join(last["cuda:0"].names)


def test_activations_are_what_waits_for_the_backward_pass(all_steps, trace):
    """Of twenty layers the output of each ReLU, 1000 x 100, is kept; the one of the linear layer before is not."""
    layers = [part for _ in range(20) for part in (nn.Linear(100, 100), nn.ReLU())]
    net = nn.Sequential(*layers, nn.Linear(100, 10))
    heard = trace()
    train(net, torch.randn(1000, 100), torch.randint(0, 10, (1000,)), momentum(net.parameters()), 5)
    outputs_bytes, softmax_bytes, loss_bytes = 20 * 1000 * 100 * 4, 1000 * 10 * 4, 8
    kinds = fullest(heard.of(TrainingProgress)[-1])
    assert kinds[ACTIVATIONS] - outputs_bytes in (softmax_bytes + loss_bytes, loss_bytes)


@pytest.mark.parametrize("make", [perceptron, transformer])
def test_the_training_computes_the_same(make, all_steps, trace):
    net, x, y = make()
    start = {name: value.clone() for name, value in net.state_dict().items()}
    plain = train(net, x, y, adam(net.parameters()), 6)
    net.load_state_dict(start)
    trace(every=3)
    assert train(net, x, y, adam(net.parameters()), 6) == plain


def spend(expense: Expense, steps: int, step_ns: int, more_ns: int, least_ns: int) -> list[bool]:
    """Return which of a number of steps are watched, where that makes a step longer."""
    watched = []
    for _ in range(steps):
        watched.append(expense.affordable)
        expense.add_step(step_ns + more_ns * watched[-1], watched[-1], least_ns * watched[-1])
    return watched


@pytest.mark.parametrize("more", [0.05, 0.3, 1.0, 4.0])
def test_a_share_of_the_time_is_kept(more):
    """Whatever the cost of single operators: watched steps are compared with those that are not watched."""
    expense = Expense()
    step_ns = 1_000_000
    watched = spend(expense, 20_000, step_ns, int(more * step_ns), 20_000)
    late = watched[10_000:]
    share = more * sum(late) / (len(late) + more * sum(late))
    assert share <= 0.11
    assert share >= 0.09 or sum(late) >= 0.9 * len(late)


def test_where_it_costs_next_to_nothing_every_step_is_watched():
    watched = spend(Expense(), 200, 1_000_000_000, 100_000, 100_000)
    assert all(watched[1:])


def test_recorded_steps_keep_to_their_share_too():
    expense = Expense()
    recorded = 0
    for step in range(20_000):
        if step % 20 == 0 and expense.recording_affordable:
            recorded += 1
            expense.add_recorded_step(3_000_000, 3_000_000)
        else:
            expense.add_step(400_000, False, 0)
    spent_ns = recorded * (6_000_000 - 400_000)
    assert 16 < recorded < 1000
    assert spent_ns <= 0.11 * (20_000 * 400_000 + spent_ns)
    slow = Expense()
    for _ in range(100):
        assert slow.recording_affordable
        slow.add_recorded_step(330_000_000, 28_000_000)
        for _ in range(19):
            slow.add_step(300_000_000, False, 0)


def test_what_it_is_said_to_cost_is_what_it_costs():
    expense = Expense()
    watched = spend(expense, 2000, 1_000_000, 500_000, 10_000)
    assert expense.cost_ns == pytest.approx(500_000 * sum(watched), rel=0.05)


def test_some_steps_of_a_fast_training_are_seen_and_the_log_says_how_many(trace, monkeypatch):
    monkeypatch.setattr("memtui.recording.tracer.tracer.TensorWatch.end", slow_end(storage_monitor.TensorWatch.end))
    net, x, y = perceptron()
    heard = trace(every=100_000)
    train(net, x, y, momentum(net.parameters()), 150)
    heard.tracer.close()
    messages = heard.of(TrainingProgress)
    assert sum(message.ends_ns.size for message in messages) == 149
    assert messages[-1].view.startswith("1 step in ")
    assert messages[-1].cost_ns > 0


def slow_end(end):
    """Watching a step takes 20 ms longer than it does."""

    def slowly(*arguments):
        time.sleep(0.02)
        return end(*arguments)

    return slowly


class Counting(torch_private.OperatorMode):
    """A mode of the program's own."""

    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls += 1
        return func(*args, **(kwargs or {}))


def test_a_mode_of_the_program_has_the_right_of_way(all_steps, trace):
    net, x, y = perceptron()
    optimizer = momentum(net.parameters())
    heard = trace()
    with Counting() as own:
        train(net, x, y, optimizer, 5)
        assert torch._C._get_dispatch_stack_at(torch._C._len_torch_dispatch_stack() - 1) is own
    assert own.calls > 100
    assert [message.first for message in heard.of(TrainingProgress) if message.usage.size] == [2]  # recorded whole
    train(net, x, y, optimizer, 3)
    assert heard.of(TrainingProgress)[-1].usage.shape[1] == 1


def test_a_mode_that_begins_and_ends_inside_of_ours_is_no_trouble(all_steps, trace):
    net, x, y = perceptron()
    optimizer = momentum(net.parameters())
    heard = trace()
    train(net, x, y, optimizer, 4)
    own = Counting()
    own.__enter__()  # in the middle of one step
    train(net, x, y, optimizer, 1)
    assert torch._C._get_dispatch_stack_at(torch._C._len_torch_dispatch_stack() - 1) is own
    own.__exit__(None, None, None)  # in the middle of another
    train(net, x, y, optimizer, 3)
    assert own.calls > 20
    assert heard.of(TrainingProgress)[-1].usage.shape[1] == 1


def test_a_fault_of_ours_is_not_the_programs(all_steps, trace, monkeypatch):
    def fail(*_):
        raise RuntimeError("ours")

    net, x, y = perceptron()
    heard = trace()
    optimizer = momentum(net.parameters())
    train(net, x, y, optimizer, 4)
    monkeypatch.setattr(storage_monitor._Operators, "_see", fail)
    assert len(train(net, x, y, optimizer, 3)) == 3
    assert heard.of(TrainingProgress)[-1].reason == "it failed: RuntimeError: ours"


def test_a_validation_between_two_steps_is_no_burden(all_steps, trace, monkeypatch, capsys):
    """Neither the cheap view nor the profiler of a recorded step keeps what thousands of passes allocate."""
    monkeypatch.setattr(storage_monitor, "MOST_EVENTS", 500)
    monkeypatch.setattr(tracer, "MOST_PASSES", 20)
    net, x, y = perceptron()
    heard = trace(every=4)
    optimizer = momentum(net.parameters())
    for _ in range(9):
        train(net, x, y, optimizer, 1)
        for _ in range(60):
            net(x)
        assert len(heard.tracer._watch._mode.events) <= 500
    assert heard.of(AllocationStep) == []
    assert all(message.usage.size == 0 for message in heard.of(TrainingProgress))
    assert "step 2 is not recorded: more than 20 passes of the model" in capsys.readouterr().err
    train(net, x, y, optimizer, 4)
    assert [message.step for message in heard.of(AllocationStep)] == [10]
    assert heard.of(TrainingProgress)[-1].usage.size


def test_gradients_in_one_storage_count_once(all_steps, trace):
    """As with DistributedDataParallel and gradient_as_bucket_view."""
    net, x, y = perceptron()
    parameters = list(net.parameters())
    flat = torch.zeros(sum(p.numel() for p in parameters))
    offset = 0
    for p in parameters:
        p.grad = flat[offset : offset + p.numel()].view_as(p)
        offset += p.numel()
    heard = trace()
    train(net, x, y, momentum(parameters), 5, set_to_none=False)
    assert fullest(heard.of(TrainingProgress)[-1])[GRADIENTS] == flat.numel() * 4


def test_odd_results_of_operators_are_passed_on(all_steps, trace):
    net, x, y = perceptron()
    heard = trace()
    optimizer = momentum(net.parameters())
    train(net, x, y, optimizer, 3)
    sparse = torch.eye(3).to_sparse() * 2
    assert sparse.sum() == 6
    assert torch.empty(0).numel() == 0
    assert len(torch.ones(6).split(2)) == 3
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert nested.numel() == 5
    train(net, x, y, optimizer, 2)
    assert heard.of(TrainingProgress)[-1].reason == ""


def test_a_thread_and_a_fork_of_the_program_run_as_without(all_steps, trace):
    net, x, y = perceptron()
    heard = trace()
    optimizer = momentum(net.parameters())
    train(net, x, y, optimizer, 4)
    results = []
    thread = threading.Thread(target=lambda: results.append(torch.ones(3).sum().item()))
    thread.start()
    thread.join()
    assert results == [3.0]
    child = os.fork()
    if not child:
        os._exit(0 if torch.ones(4).sum().item() == 4 and not heard.tracer._watch._mode.noting else 1)
    assert os.waitpid(child, 0)[1] == 0
    train(net, x, y, optimizer, 2)
    assert heard.of(TrainingProgress)[-1].usage.shape[1] == 1


def test_an_old_torch_and_a_compiled_program_are_not_watched(monkeypatch):
    monkeypatch.setattr(torch_private, "compiled_frames", lambda: 3)
    assert storage_monitor.TensorWatch().problem() == "torch.compile has compiled parts of it"
    monkeypatch.setattr(torch_private, "TorchDispatchMode", object)
    assert "without disturbing torch.compile" in storage_monitor.TensorWatch().problem()


def test_what_a_torch_without_event_trees_tells_all_the_same(all_steps, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(torch_private, "_missing", lambda: "it has no experimental_event_tree")
    heard = Heard()
    monkeypatch.setattr(tracer, "Sender", lambda path: heard)
    started = tracer.start(tmp_path, 5)
    net, x, y = perceptron()
    train(net, x, y, momentum(net.parameters()), 9)
    started.close()
    assert heard.of(AllocationStep) == []
    assert sum(message.ends_ns.size for message in heard.of(TrainingProgress)) == 8
    assert fullest(heard.of(TrainingProgress)[-1])[WEIGHTS] == 327_360
    assert heard.of(TensorRanges)[-1].columns[1].sum() >= 3 * 327_360
    output = capsys.readouterr().err
    assert output.endswith("(it has no experimental_event_tree); steps are timed and tensors seen all the same\n")
    assert output.count("\n") == 1


def test_what_compiles_while_it_is_watched_is_compiled_as_ever(all_steps, trace):
    """The compiler gives up where it meets a mode, unless the mode says that it does not matter."""
    net, x, y = perceptron()
    heard = trace()
    optimizer = momentum(net.parameters())
    train(net, x, y, optimizer, 4)
    doubled = torch.compile(lambda t: t.sin() * 2, backend="eager")
    assert torch.allclose(doubled(x), x.sin() * 2)
    from torch._dynamo.utils import counters

    assert counters["stats"]["unique_graphs"] >= 1
    train(net, x, y, optimizer, 3)
    assert heard.of(TrainingProgress)[-1].reason == "torch.compile has compiled parts of it"
    assert tracer.torch_private.compiled_frames()
    counters.clear()  # or no test of this process would be watched any more
    torch._dynamo.reset()
    assert not tracer.torch_private.compiled_frames()
