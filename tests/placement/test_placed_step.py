"""Ops with their tensors in pools: times on a clock of the test's own, and results that no placement changes."""

from __future__ import annotations

import mmap
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memtui.placement.address_allocator import lay_out
from memtui.placement.configurations import configurations
from memtui.placement.graph import Graph
from memtui.placement.plan import Move, PlacementPlan, Span
from memtui.placement.pool_specs import parse_pool
from memtui.placement.torch.clock import Clock
from memtui.placement.worker_protocol import Agreement, CreatePools
from tests.support.placement_machine import SEED, ManualClock
from tests.support.placements import graphs

torch = pytest.importorskip("torch")
from memtui.placement.torch.capture import Captured, capture  # noqa: E402
from memtui.placement.torch.execution import Execution, agreement, execute, unplaced  # noqa: E402
from memtui.placement.torch.models import TrainingStep, build  # noqa: E402
from memtui.placement.torch.placed_step import Machine  # noqa: E402
from memtui.placement.torch.pools import Pool  # noqa: E402
from memtui.placement.torch.tensor_moves import Copy, Mover  # noqa: E402
from memtui.placement.torch.timers import LEAST, Measuring  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread_of_torch")
FAST, SLOW = "dram", "emulated:2,1"


def machine(captured: Captured, slow: str = SLOW) -> Machine:
    return Machine(captured, [Pool(parse_pool(FAST)), Pool(parse_pool(slow))], ManualClock())


def relu(elements: int) -> Captured:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(elements))

        def forward(self, x):
            return (x * self.weight).relu()

    return capture(TrainingStep(Net(), [torch.randn(elements)], lambda out: out.sum()), "relu")


def by_kind(captured: Captured, word: str):
    return next(kernel for kernel in captured.kernels if word in kernel.op.kind)


def test_four_mebibytes_written_at_a_gigabyte_a_second_take_their_time() -> None:
    captured = relu(1 << 20)
    on = machine(captured)
    kernel = by_kind(captured, "relu")
    (read,), (written,) = kernel.read_bytes, kernel.written_bytes
    for placed, ns in (
        ({}, 0),
        ({written: SLOW}, 4_194_304),
        ({read: SLOW}, 2_097_152),
        ({read: SLOW, written: SLOW}, 6_291_456),
    ):
        assert on.timed_ns(on.call(kernel, lambda s, placed=placed: placed.get(s, FAST))) == ns


def test_the_real_clock_waits_as_long() -> None:
    captured = relu(1 << 20)
    on = Machine(captured, [Pool(parse_pool(FAST)), Pool(parse_pool(SLOW))], Clock())
    kernel = by_kind(captured, "relu")
    (written,) = kernel.written_bytes
    calls = [on.call(kernel, lambda s, where=where: where if s == written else FAST) for where in (FAST, SLOW)]
    for call in calls:
        on.timed_ns(call)
    fast, slow = (min(on.timed_ns(call) for _ in range(15)) for call in calls)
    for _ in range(100):  # whatever else runs only makes a call longer
        if 3_800_000 < slow - fast < 6_000_000:
            break
        fast, slow = min(fast, on.timed_ns(calls[0])), min(slow, on.timed_ns(calls[1]))
    assert 3_800_000 < slow - fast < 6_000_000  # 4,194,304 bytes at one byte a ns


def test_a_value_that_a_stride_repeats_is_read_once() -> None:
    captured = relu(1 << 10)
    expanded = [k for k in captured.kernels if any(size == 4 for size in k.read_bytes.values())]
    assert expanded  # the gradient of the sum is one number for all elements


@pytest.mark.parametrize("mode", ["isolated", "in_graph"])
def test_waits_are_in_the_times(mode: str) -> None:
    captured = capture(build("mlp", 4, SEED), "mlp")
    on = machine(captured)
    measuring = Measuring(on, SEED, lambda: None)
    graph = captured.graph
    if mode == "isolated":
        for kernel in captured.kernels:
            choices = [*configurations(graph, kernel.op, (FAST, SLOW))]
            times = measuring.isolated(kernel.op.name, choices, 0)
            assert [len(each) for each in times] == [LEAST] * len(choices)
            for configuration, each in zip(choices, times, strict=True):
                assert each == [expected(graph, kernel, configuration.pools)] * LEAST
        return
    storage = graph.tensor["relu"].storage
    (runs,) = measuring.in_graph([{storage: SLOW}], 0)
    assert len(runs) == LEAST
    for kernel, ns in zip(captured.kernels, runs[0], strict=True):
        pools = [SLOW if graph.tensor[t].storage == storage else FAST for t in kernel.op.tensors]
        assert ns == expected(graph, kernel, pools)


def expected(graph: Graph, kernel, pools) -> int:
    where = dict(zip((graph.tensor[t].storage for t in kernel.op.tensors), pools, strict=True))
    reads = sum(size / 2 for s, size in kernel.read_bytes.items() if where[s] == SLOW)
    return round(reads + sum(size for s, size in kernel.written_bytes.items() if where[s] == SLOW))


def test_an_op_in_place_finds_the_same_numbers_every_time() -> None:
    class Net(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x).mul_(2)

    captured = capture(TrainingStep(Net(4, 4), [torch.ones(4, 4)], lambda out: out.sum()), "in place")
    on = machine(captured)
    kernel = by_kind(captured, "mul_")
    (storage,) = kernel.written_bytes
    op = kernel.op
    measuring = Measuring(on, SEED, lambda: None)
    measuring.isolated(op.name, [*configurations(captured.graph, op, (FAST, SLOW))], 0)
    measuring.isolated(op.name, [*configurations(captured.graph, op, (FAST, SLOW))], 0)
    values = on.buffer(storage, FAST).view(torch.float32)
    assert float(values.abs().max()) < 100  # and not 2 ** 14 times what it was


def plan_of(graph: Graph, draw: st.DrawFn) -> PlacementPlan:
    """Any plan: each storage in one pool, or moved once, before an op or while one runs."""
    spans: list[Span] = []
    moves: list[Move] = []
    for storage in graph.storages.values():
        if not storage.counted:
            continue
        first, last = storage.first, storage.last
        pools = draw(st.sampled_from([(FAST,), (SLOW,), (FAST, SLOW), (SLOW, FAST)]))
        if len(pools) == 1 or first == last:
            spans.append(Span(storage.name, pools[0], first, last))
            continue
        op = draw(st.integers(first + 1, last))
        spans += [Span(storage.name, pools[0], first, op - 1), Span(storage.name, pools[1], op, last)]
        meanwhile = op - 1 > first and op - 1 not in storage.accesses and draw(st.booleans())
        moves.append(Move(storage.name, *pools, op - 1 if meanwhile else op, storage.size_bytes, 1.0, meanwhile))
    moves.sort(key=lambda move: (move.op, move.overlapped))
    return PlacementPlan(
        "async", FAST, SLOW, True, "isolated", 1 << 40, tuple(spans), tuple(moves), 1.0, 0, 0, "feasible"
    )


@st.composite
def planned(draw: st.DrawFn) -> tuple[Graph, PlacementPlan]:
    graph = draw(graphs())
    return graph, plan_of(graph, draw)


@given(planned())
def test_what_is_alive_at_once_never_shares_bytes(both: tuple[Graph, PlacementPlan]) -> None:
    graph, plan = both
    arenas = lay_out(graph, plan)
    for piece in arenas.pieces:
        assert piece.start % 4096 == 0
        assert piece.start + piece.size_bytes <= arenas.size_bytes[piece.pool]
        for other in arenas.pieces:
            if piece is other or piece.pool != other.pool or piece.first > other.last or other.first > piece.last:
                continue
            assert piece.start + piece.size_bytes <= other.start or other.start + other.size_bytes <= piece.start
    for span in plan.spans:
        for op in range(span.first, span.last + 1):
            assert arenas.piece(span.storage, span.pool, op) is not None


@cache
def step(name: str) -> Captured:
    return capture(build(name, 2, SEED), name)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.sampled_from(["mlp", "conv", "transformer"]))
def test_no_plan_changes_a_bit_of_the_results(data: st.DataObject, name: str) -> None:
    captured = step(name)
    on = machine(captured)
    expected_results = unplaced(on, SEED)
    plan = plan_of(captured.graph, data.draw)
    execution = Execution(on, plan)
    with torch.no_grad():
        for _ in range(2):  # the second run finds what the first one left
            on.reset(SEED)
            execution.run()
            assert agreement(on.results(), expected_results) == Agreement(equal=True, close=True, worst=0.0)
    execution.close()
    assert all(arena.data_ptr() % mmap.PAGESIZE == 0 for arena in execution.memory.values())


def test_random_numbers_and_running_means_are_those_of_the_unplaced_step() -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU(inplace=True), torch.nn.Dropout(0.5)
    )
    captured = capture(TrainingStep(model, [torch.randn(2, 1, 8, 8)], lambda out: out.square().sum()), "norm")
    given_before = {name: memory.clone() for name, memory in captured.given.items()}
    on = machine(captured)
    spans = tuple(Span(s.name, SLOW, s.first, s.last) for s in captured.graph.storages.values() if s.counted)
    plan = PlacementPlan("static", FAST, SLOW, True, "isolated", 0, spans, (), 1.0, 0, 0, "feasible")
    executed = execute(on, [plan], 3, SEED, lambda: None)[0]
    assert executed.agreement.equal
    assert executed.fast_bytes == 0
    assert len(executed.times_ns) == 3
    assert all(torch.equal(captured.given[name], memory) for name, memory in given_before.items())


@pytest.mark.slow
def test_an_lstm_is_timed_and_has_the_results_of_the_unplaced_step() -> None:
    """Its steps write in place, and are joined by copies to their places."""

    class Last(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(6, 5, batch_first=True)

        def forward(self, x):
            return self.lstm(x)[0][:, -1]

    captured = capture(TrainingStep(Last(), [torch.randn(3, 6, 6)], lambda out: out.square().sum()), "lstm")
    assert sum(kernel.op.kind == "aten.copy_.default" for kernel in captured.kernels) >= 6
    on = machine(captured)
    measuring = Measuring(on, SEED, lambda: None)
    for kernel in captured.kernels:
        choices = [*configurations(captured.graph, kernel.op, (FAST, SLOW))]
        assert all(len(times) == LEAST for times in measuring.isolated(kernel.op.name, choices, 0))
    spans = tuple(Span(s.name, SLOW, s.first, s.last) for s in captured.graph.storages.values() if s.counted)
    plan = PlacementPlan("static", FAST, SLOW, True, "isolated", 0, spans, (), 1.0, 0, 0, "feasible")
    assert execute(on, [plan], 1, SEED, lambda: None)[0].agreement.equal


def test_a_move_that_fails_fails_its_op() -> None:
    mover = Mover(ManualClock(), lambda: None)
    right = Copy(torch.zeros(4), torch.ones(4), 5.0)
    assert mover.now([right]) == 5
    assert mover.during([right, right], lambda: None)[0] == 10
    with pytest.raises(RuntimeError):
        mover.during([Copy(torch.zeros(4), torch.ones(3))], lambda: None)
    with pytest.raises(ZeroDivisionError):
        mover.during([right], lambda: 1 / 0)
    assert not mover.moving or mover.during([right], lambda: None)  # nothing of the last one is left over
    mover.close()
    assert float(right.target.sum()) == 4


def test_wrong_results_differ_from_rounding() -> None:
    tensor = torch.tensor([1.0, 2.0, -4.0])
    assert agreement([tensor], [tensor]).equal
    near = agreement([tensor + 1e-5], [tensor])
    assert (near.equal, near.close) == (False, True)
    assert not agreement([tensor + 1], [tensor]).close
    assert agreement([tensor * float("nan")], [tensor]) == Agreement(equal=False, close=False, worst=None)


def test_ops_on_another_device_get_copies_which_take_their_time() -> None:
    """As on a GPU whose tensors lie in main memory; here one of two pools claims another device."""

    class Elsewhere(Pool):
        def __init__(self) -> None:
            super().__init__(parse_pool("dram"))
            self.name, self.device = "elsewhere", torch.device("meta")

    captured = step("mlp")
    on = Machine(captured, [Pool(parse_pool(FAST)), Elsewhere()], ManualClock())
    expected_results = unplaced(on, SEED)
    graph = captured.graph
    placed = {s.name: "elsewhere" for s in graph.storages.values() if s.counted}
    program = on.program(placed)
    on.reset(SEED)
    for storage in placed:
        on.buffer(storage, FAST).fill_(255)
    with torch.no_grad():
        for call, kernel in zip(program, captured.kernels, strict=True):
            assert len(call.before) == len([s for s in kernel.read_bytes if s in placed])
            assert len(call.after) == len([s for s in kernel.written_bytes if s in placed])
            on.timed_ns(call)
            for storage in placed:  # nothing may rest upon what was staged before
                on.buffer(storage, FAST).fill_(255)
    assert agreement(on.results(), expected_results).equal


def test_more_memory_than_there_is_is_refused_before_anything_is_taken(monkeypatch) -> None:
    from types import SimpleNamespace

    from memtui.placement.memory import NoMemory
    from memtui.placement.torch import worker

    server = object.__new__(worker.Worker)
    server._captured = step("mlp")
    monkeypatch.setattr(worker.psutil, "virtual_memory", lambda: SimpleNamespace(available=1 << 20))
    with pytest.raises(NoMemory, match=r"every tensor in every pool takes .* MiB, and 1\.00 MiB of memory are free"):
        server._create_pools(CreatePools((FAST, SLOW)))
