"""Steps in the memory of a GPU, from the history of its allocator; against a stand-in, because no GPU is needed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.allocation_trace import CATEGORIES, PHASES
from tests.support.cuda_allocator import FIRST, CudaAllocator
from tests.support.recordings import HISTORIES, recording

torch = pytest.importorskip("torch")

from memtui.recording.tracer import torch_private  # noqa: E402
from memtui.recording.tracer.cuda_history import MOST_ENTRIES, histories  # noqa: E402
from memtui.recording.tracer.layer_labels import layer_labels  # noqa: E402
from memtui.recording.tracer.step_recorder import ExactStep  # noqa: E402
from memtui.recording.tracer.tensor_registry import Storage, TensorRegistry  # noqa: E402

pytestmark = pytest.mark.skipif(torch_private.problem() is not None, reason=str(torch_private.problem()))
GPU = "cuda:0"


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(torch_private, "cuda_history", torch_private.CudaHistory())
    monkeypatch.setattr("memtui.recording.tracer.step_recorder.cuda_history", torch_private.cuda_history)
    return CudaAllocator().install(monkeypatch, torch)


class OnGpu(torch.nn.Module):
    """A layer whose forward pass allocates there."""

    def __init__(self, gpu: CudaAllocator) -> None:
        super().__init__()
        self.gpu = gpu
        self.made: list[int] = []

    def forward(self, x):
        self.made.append(self.gpu.allocate(3000))
        return x + 1


def test_every_block_is_reported_with_its_layer(gpu):
    weights, other = gpu.allocate(1000), gpu.allocate(700)
    net = torch.nn.Sequential(OnGpu(gpu))
    registry = TensorRegistry(weights={weights: Storage(1000, "0", "weight")}, devices={weights: GPU})
    recorder = ExactStep(4, registry)
    with layer_labels([net]), recorder:
        net(torch.zeros(3))
        gpu.free(other)
        gpu.free(net[0].made[0])
    assert gpu.enabled is None, "it is switched off again"
    assert gpu.calls[0] == ("all", None, MOST_ENTRIES, True)
    assert recorder.devices == ("cpu", GPU)
    trace = recorder.trace(registry, GPU)
    assert not trace.check()
    assert trace.delta_bytes.tolist() == [1000, 700, 3000, -700, -3000]
    assert trace.existing == 2
    assert [CATEGORIES[kind] for kind in trace.category[:2].tolist()] == ["weights", "unknown"]
    assert trace.name(int(trace.layer[2])) == "0"
    assert PHASES[int(trace.phase[2])] == "forward"
    assert trace.start_ns <= trace.t_ns.min() <= trace.t_ns.max() <= trace.end_ns
    assert trace.peak_bytes == 4700
    assert recorder.trace(registry).delta_bytes.sum() >= 0, "main memory has an account of its own"


def test_blocks_of_the_allocator_are_those_it_gave(gpu):
    gpu.allocate(700)
    gpu.reset_peaks()
    with ExactStep(0, TensorRegistry()) as recorder:
        gpu.free(gpu.allocate(3000, stream=1))
        gpu.allocate(5 << 20)
    peak = recorder.allocator_peaks[GPU]
    assert (peak.allocated_bytes, peak.reserved_bytes) == (gpu.most_allocated, gpu.most_reserved)
    assert peak.requested_bytes == recorder.trace(TensorRegistry(), GPU).peak_bytes
    assert peak.reason == ""


def test_a_block_that_a_second_stream_uses_is_held_until_that_is_done(gpu):
    recorder = ExactStep(0, TensorRegistry())
    with recorder:
        first = gpu.allocate(5000, stream=1)
        gpu.free(first, waits=True)
        gpu.allocate(2000)
        gpu.complete(first)
    trace = recorder.trace(TensorRegistry(), GPU)
    assert trace.delta_bytes.tolist() == [5000, 2000, -5000]


def test_a_block_that_awaits_its_end_is_there(gpu):
    waiting = gpu.allocate(100)
    gpu.free(waiting, waits=True)
    recorder = ExactStep(0, TensorRegistry())
    with recorder:
        gpu.allocate(50)
    assert recorder.trace(TensorRegistry(), GPU).delta_bytes.tolist() == [100, 50]


def test_the_programs_own_history_comes_first(gpu):
    torch.cuda.memory._record_memory_history("all")
    calls = len(gpu.calls)
    with ExactStep(0, TensorRegistry()) as recorder:
        gpu.allocate(50)
    assert len(gpu.calls) == calls, "it is not touched"
    assert gpu.enabled == "all"
    assert GPU not in recorder.devices


@pytest.mark.parametrize("what", ["all", None])
def test_a_history_that_the_program_switches_in_the_step_is_the_programs(gpu, what):
    with ExactStep(0, TensorRegistry()) as recorder:
        gpu.allocate(50)
        torch.cuda.memory._record_memory_history(what)
        gpu.allocate(60)
    assert gpu.enabled == what
    assert GPU not in recorder.devices
    assert recorder.history_problem == ""
    recorder.trace(TensorRegistry())


def test_a_history_of_another_form_leaves_what_the_profiler_reported(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"traces": []})
    with ExactStep(0, TensorRegistry()) as recorder:
        tensor = torch.zeros(1000)
    assert "another form: KeyError" in recorder.history_problem
    assert gpu.enabled is None
    assert tensor.nbytes in recorder.trace(TensorRegistry()).delta_bytes.tolist()


def test_a_history_that_lost_its_begin_is_none(gpu, monkeypatch):
    monkeypatch.setattr("memtui.recording.tracer.step_recorder.MOST_ENTRIES", 4)
    monkeypatch.setattr("memtui.recording.tracer.cuda_history.MOST_ENTRIES", 4)
    with ExactStep(0, TensorRegistry()) as recorder:
        for _ in range(9):
            gpu.allocate(8)
    assert "more than 4 entries" in recorder.history_problem


def test_a_program_without_cuda_has_none():
    assert torch.cuda.is_initialized() or not torch_private.CudaHistory().start(10)


@given(
    st.lists(st.tuples(st.booleans(), st.integers(1, 5000), st.integers(0, 40)), min_size=1, max_size=60),
    st.integers(0, 60),
)
def test_what_is_held_is_what_the_allocator_holds(moves, begin):
    """At the start, after every change, and at the end; whatever was allocated before the history began."""
    gpu = CudaAllocator()
    alive: list[int] = []
    allocated = [0]
    sizes: dict[int, int] = {}
    for number, (frees, size_bytes, which) in enumerate(moves):
        if number == begin:
            gpu.record("all", None, "all", MOST_ENTRIES, None, True)
            allocated = [sum(sizes[address] for address in alive)]
        if frees and alive:
            gpu.free(alive.pop(which % len(alive)))
        else:
            alive.append(gpu.allocate(size_bytes))
            sizes[alive[-1]] = size_bytes
        allocated.append(sum(sizes[address] for address in alive))
    if gpu.enabled is None:
        gpu.record("all", None, "all", MOST_ENTRIES, None, True)
        allocated = allocated[-1:]
    history = histories(gpu.snapshot(), 0)[GPU]
    deltas = [sum(history.before.values()), *(size for _, _, size in history.changes)]
    assert np.cumsum(deltas).tolist() == allocated
    assert all(address >= FIRST for _, address, _ in history.changes)


@pytest.mark.parametrize("kind", HISTORIES)
def test_the_history_of_a_real_gpu_gives_the_allocators_own_figures(kind):
    said = recording(f"history-{kind}")
    (history,) = histories({"device_traces": said["device_traces"], "segments": said["after"]}, 0).values()
    live = dict(history.before)
    peak = sum(live.values())
    for _, address, size_bytes in history.changes:
        if size_bytes > 0:
            live[address] = size_bytes
        else:
            assert live.pop(address) == -size_bytes
        peak = max(peak, sum(live.values()))
    assert peak == said["peak_requested_bytes"]
    assert live == {
        block["address"]: block["requested_size"]
        for segment in said["after"]
        for block in segment["blocks"]
        if block["state"].startswith("active")
    }
