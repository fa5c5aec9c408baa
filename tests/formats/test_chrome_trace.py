"""What the Chrome trace of PyTorch's profiler says, and what it costs to read spans however they lie."""

from __future__ import annotations

import json
import sys
import tracemalloc
from contextlib import closing

import pytest

from memtui.analysis.allocation_trace import CATEGORIES, PHASES
from memtui.core.call_stacks import Frame
from memtui.formats.call_paths import MOST_PATH
from memtui.formats.catalogue import import_bytes
from memtui.formats.imported import Imported, NotImportable
from memtui.formats.session_writer import write
from memtui.session.session import Session
from tests.support.chrome_traces import chrome, memory, span


def only(imported: Imported):
    (part,) = imported.parts
    return part.trace


def test_a_memory_event_belongs_to_what_runs_around_it():
    imported = import_bytes(
        chrome(
            span("nn.Module: Net_0", 0, 50, "python_function"),
            span("aten::linear", 1, 20),
            span("aten::addmm", 2, 5),
            memory(3.5, 64, 7, 64),
            memory(10, 32, 8, 96),
            span("autograd::engine::evaluate_function: AddmmBackward0", 60, 10),
            memory(61, -64, 7, 32),
            memory(62, 8, 11, 40),
            span("Optimizer.step#SGD.step", 80, 10, "user_annotation"),
            memory(82, 16, 9, 48),
        )
    )
    trace = only(imported)
    assert [trace.name(op) for op in trace.op.tolist()] == [
        "aten::linear/aten::addmm",
        "aten::linear",
        "autograd::engine::evaluate_function: AddmmBackward0",
        "autograd::engine::evaluate_function: AddmmBackward0",
        "Optimizer.step#SGD.step",
    ]
    assert [PHASES[p] for p in trace.phase.tolist()] == ["forward", "forward", "backward", "backward", "optimiser"]
    assert trace.name(int(trace.layer[0])) == "Net_0"
    assert [CATEGORIES[c] for c in trace.category.tolist()] == ["activations"] * 3 + ["gradients", "unknown"]
    assert int(trace.t_ns[0]) == 10**18 + 3500


def test_calls_in_python_are_the_call_stack_and_neither_operator_nor_layer():
    imported = import_bytes(
        chrome(
            span("train.py(9): main", 1, 90, "python_function"),
            span("<built-in method linear of type object at 0x7f01>", 5, 40, "python_function"),
            span("nn.Module: Linear_0", 2, 50, "python_function"),
            span("/me/model.py(42): forward", 3, 48, "python_function"),
            span("ProfilerStep#0", 0, 99, "user_annotation"),
            span("aten::addmm", 6, 10),
            memory(8, 512, 7, 512),
            memory(60, -512, 7, 0),
            memory(95, 64, 9, 64),
        )
    )
    trace, stacks = only(imported), imported.stacks
    assert [(trace.name(int(trace.op[row])), trace.name(int(trace.layer[row]))) for row in range(len(trace))] == [
        ("aten::addmm", "Linear_0"),
        ("", "Linear_0"),  # the layer of the block
        ("", ""),
    ]
    main = Frame("main", "train.py", 9)
    calls = (
        Frame("aten::addmm", "", 0),
        Frame("<built-in method linear of type object>", "", 0),
        Frame("forward", "/me/model.py", 42),
    )
    expected = [(*calls, Frame("nn.Module: Linear_0", "", 0), main), (main,), ()]
    assert [stacks.stack(number) for number in trace.stack.tolist()] == expected


def test_a_trace_of_an_older_pytorch_has_times_since_1970_and_no_base():
    """As in the traces of PyTorch 1.13 that the tests of Holistic Trace Analysis have."""
    args = {"Ev Idx": 4, "Device Type": 1, "Device Id": 1, "Addr": 7, "Bytes": 512, "Total Allocated": 1024}
    event = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 3, "tid": 4}
    event |= {"ts": 1669783687464300, "args": {**args, "Total Reserved": 4096}}
    imported = import_bytes(json.dumps({"schemaVersion": 1, "profile_memory": 1, "traceEvents": [event]}).encode())
    assert (imported.about.clock, imported.parts[0].device) == ("wall", "cuda:1")
    assert (only(imported).start_bytes, only(imported).peak_bytes) == (512, 1024)
    assert only(imported).t_ns.tolist() == [1669783687464300000] * 2


def test_a_trace_without_calls_in_python_has_no_call_stacks():
    imported = import_bytes(chrome(span("aten::addmm", 6, 10), memory(8, 512, 7, 512)))
    assert (imported.stacks, only(imported).stack) == (None, None)


def test_memory_from_before_the_trace_is_there_when_it_is_freed():
    trace = only(import_bytes(chrome(memory(1, 10, 1, 110), memory(2, -30, 99, 80), memory(3, -10, 1, 70))))
    assert trace.start_bytes == 100
    assert trace.usage_bytes.tolist()[trace.existing :] == [110, 80, 70]


def test_each_device_is_a_part():
    imported = import_bytes(chrome(memory(1, 10, 1), memory(2, 20, 1, device=(1, 3))))
    assert [(part.device, int(part.trace.peak_bytes)) for part in imported.parts] == [("cpu", 10), ("cuda:3", 20)]


def test_profiler_steps_cut_the_trace():
    steps = [span(f"ProfilerStep#{n}", n * 10, 9, "user_annotation") for n in (4, 5)]
    (part,) = import_bytes(chrome(*steps, memory(41, 1, 1), memory(51, 1, 2))).parts
    assert [number for _, number in part.begins] == [4, 5]


@pytest.mark.parametrize("key", ["ts", "dur"])
@pytest.mark.parametrize("value", ["1" * 50_000, [1] * 50_000, True])
def test_a_time_that_is_no_number_is_not_repeated(key, value):
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2, key: value}
    data = chrome(memory(1, 10, 1, 110), event)
    tracemalloc.start()
    with pytest.raises(NotImportable, match="a time is not a number"):
        import_bytes(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20, peak


def test_a_trace_without_memory_says_how_to_get_it():
    with pytest.raises(NotImportable, match="profile_memory=True"):
        import_bytes(chrome(span("aten::mm", 1, 2)))


# Spans, however they lie


def touching(count):
    """One ends where the next begins, as in most real traces."""
    return [event for n in range(count) for event in (span(name(n), 10 * n, 10), memory(10 * n + 5, 64, n + 1))]


def overlapping(count):
    """One ends 1 ns after the next begins."""
    return [event for n in range(count) for event in (span(name(n), 10 * n, 10.001), memory(10 * n + 5, 64, n + 1))]


def nested(count):
    """Each is inside of all before it."""
    return [event for n in range(count) for event in (span(name(n), n, 2 * (count - n)), memory(n + 0.5, 64, n + 1))]


def staircase(count):
    """All have a moment in common, and none is inside of another."""
    return [event for n in range(count) for event in (span(name(n), n, count), memory(n + 0.5, 64, n + 1))]


def name(number: int) -> str:
    return f"aten::op{number}_" + "x" * 200


SHAPES = (touching, overlapping, nested, staircase)


@pytest.mark.parametrize("category", ["cpu_op", "python_function"])
@pytest.mark.parametrize("shape", SHAPES)
def test_four_times_the_spans_cost_four_times_the_memory_and_the_work(shape, category):
    costs = [cost(chrome(*({**event, "cat": category} for event in shape(count)))) for count in (100, 400)]
    for few, many in zip(*costs, strict=True):
        assert many < 5 * few, costs


def cost(data: bytes) -> tuple[int, int]:
    """Return the most bytes that an import has allocated, and how many lines of memtui it has executed."""
    import_bytes(data)  # what a first import alone loads and compiles is not a cost of the data
    tracemalloc.start()
    import_bytes(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    lines, before = 0, sys.gettrace()

    def count(frame, event, _):
        nonlocal lines
        if "/memtui/" not in frame.f_code.co_filename:
            return None
        lines += event == "line"
        return count

    sys.settrace(count)
    try:
        import_bytes(data)
    finally:
        sys.settrace(before)
    return peak, lines


@pytest.mark.parametrize("shape", [touching, overlapping])
def test_of_spans_one_after_another_one_ends_where_the_next_begins(shape):
    """A stack that kept the first ones grew with the trace."""
    imported = only(import_bytes(chrome(span("ProfilerStep#0", 0, 3001, "user_annotation"), *shape(300))))
    assert [imported.name(op) for op in imported.op.tolist()] == [name(n) for n in range(300)]


@pytest.mark.parametrize(
    ("inner", "paths"),
    [
        ((2, 9), ["aten::a/aten::b", ""]),  # from 2 to 11, by rounding
        ((6, 9), ["aten::b", "aten::b"]),  # more of it is after the other one than in it
    ],
)
def test_a_span_that_ends_after_the_one_it_begins_in_is_inside_or_comes_next(inner, paths):
    spans = span("aten::a", 0, 10), span("aten::b", *inner)
    trace = only(import_bytes(chrome(*spans, memory(7, 64, 1), memory(10.5, 64, 2))))
    assert [trace.name(op) for op in trace.op.tolist()] == paths


def test_of_many_spans_around_an_allocation_the_inner_ones_are_its_path():
    trace = only(import_bytes(chrome(*nested(100))))
    outer, inner = name(98), name(99)
    path = trace.name(int(trace.op[99]))
    assert path.endswith(f"{outer}/{inner}")
    assert 3500 < len(path) <= MOST_PATH


def test_so_many_paths_that_a_session_has_no_room_for_them_are_their_innermost_names(monkeypatch):
    monkeypatch.setattr("memtui.formats.call_paths.MOST_PATHS", 40)
    modules = [span(f"nn.Module: L{n}", n, 20 - 2 * n, "python_function") for n in range(8)]
    ops = [span(f"x/op{n}", 8 + n / 10, 2 - n / 5) for n in range(8)]
    memories = [memory(n + 0.5, 64, n) for n in range(8)] + [memory(8.01 + n / 10, 64, 9 + n) for n in range(8)]
    trace = only(import_bytes(chrome(*modules, *ops, *memories)))
    layers, paths = ([trace.name(n) for n in column.tolist()] for column in (trace.layer, trace.op))
    assert layers[:4] == ["L0", "L0.L1", "L0.L1.L2", "L0.L1.L2.L3"]
    assert layers[5:8] == ["L5", "L6", "L7"]
    assert paths[8:11] == ["x/op0", "x/op0/x/op1", "x/op0/x/op1/x/op2"]
    assert paths[12:] == ["x/op4", "x/op5", "x/op6", "x/op7"]


def test_calls_that_are_too_deep_for_a_session_have_no_stack(monkeypatch):
    monkeypatch.setattr("memtui.core.call_stacks.MOST_CALLS", 3)
    calls = [span(f"a.py({n}): f", n, 20 - 2 * n, "python_function") for n in range(5)]
    imported = import_bytes(chrome(*calls, *(memory(n + 0.5, 64, n) for n in range(5))))
    assert [len(imported.stacks.stack(number)) for number in only(imported).stack.tolist()] == [1, 2, 3, 0, 0]
    assert imported.about.warnings == ("it has more or deeper call stacks than fit into a session; left out: 2",)


def test_paths_that_were_forgotten_are_found_again(monkeypatch):
    expected = only(import_bytes(chrome(*nested(50))))
    monkeypatch.setattr("memtui.formats.chrome_trace._MOST_PATHS", 3)
    trace = only(import_bytes(chrome(*nested(50))))
    assert [trace.name(op) for op in trace.op.tolist()] == [expected.name(op) for op in expected.op.tolist()]


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_imported_can_be_opened(shape, tmp_path):
    path = tmp_path / "s.memtui"
    imported = import_bytes(chrome(*shape(2000)))
    assert write(imported, path) == ()
    with closing(Session(path)) as session:
        (step,) = session.allocations.steps()
        assert session.allocations.trace(step).names == only(imported).names
