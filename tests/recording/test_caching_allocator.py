"""Blocks of CUDA's caching allocator from its history, against a stand-in that keeps them itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.recording.tracer.caching_allocator import allocator_blocks, allocator_peaks, peak_as_seen
from tests.support.cuda_allocator import MIB, NO_LIMIT, CudaAllocator
from tests.support.recordings import HISTORIES, recording

GPU = "cuda:0"
SIZES = st.one_of(st.integers(1, 5000), st.integers(1, 3 * MIB), st.integers(MIB, 30 * MIB))
MOVES = st.lists(
    st.tuples(st.sampled_from("aaaaffwce"), SIZES, st.integers(0, 30), st.sampled_from((0, 7))), max_size=60
)


def played(gpu: CudaAllocator, moves, alive: list[int], waiting: list[int]) -> list[int]:
    """Play moves; return the sum of what was requested and is not free yet, after each."""
    sums = []
    for what, size_bytes, which, stream in moves:
        if what == "a":
            alive.append(gpu.allocate(size_bytes, stream))
        elif what in "fw" and alive:
            address = alive.pop(which % len(alive))
            gpu.free(address, waits=what == "w")
            waiting += [address] if what == "w" else []
        elif what == "c" and waiting:
            gpu.complete(waiting.pop(which % len(waiting)))
        elif what == "e":
            gpu.empty_cache()
        sums.append(sum(block.requested for segment in gpu.segments for block in segment.blocks))
    return sums


@given(
    MOVES,
    MOVES,
    st.booleans(),
    st.sampled_from((NO_LIMIT, 20 * MIB)),
    st.sampled_from((0, 4, 8)),
)
def test_blocks_are_those_of_the_allocator(before, after, expandable, most_split, divisions):
    gpu = CudaAllocator(expandable=expandable, most_split=most_split, divisions=divisions)
    alive: list[int] = []
    waiting: list[int] = []
    requested = played(gpu, before, alive, waiting)[-1:]
    gpu.record("all", None, "all", 1 << 18, None, True)
    first = gpu.snapshot()
    gpu.reset_peaks()
    requested += played(gpu, after, alive, waiting)
    last = gpu.snapshot()
    if not last["segments"] and not last["device_traces"][0]:
        return
    blocks = allocator_blocks(first, last)[GPU]
    assert blocks.peak.reason == ""
    assert blocks.peak.requested_bytes == max(requested, default=0)
    assert blocks.peak.allocated_bytes == gpu.most_allocated
    assert blocks.peak.reserved_bytes == gpu.most_reserved
    assert blocks.given == tuple(gpu.given[len(gpu.given) - len(blocks.given) :])
    assert len(blocks.given) == sum(entry["action"] == "alloc" for entry in last["device_traces"][0])


def recorded(gpu: CudaAllocator) -> dict:
    gpu.record("all", None, "all", 1 << 18, None, True)
    return gpu.snapshot()


def test_a_block_that_is_not_worth_splitting_is_given_whole():
    gpu = CudaAllocator()
    gpu.free(gpu.allocate(12 * MIB))
    first = recorded(gpu)
    gpu.allocate(11 * MIB + 100)
    peak = allocator_peaks(first, gpu.snapshot())[GPU]
    assert (peak.requested_bytes, peak.allocated_bytes, peak.reserved_bytes) == (11 * MIB + 100, 12 * MIB, 12 * MIB)


def test_a_block_counts_until_it_is_freed_and_is_requested_until_it_can_be_used_again():
    gpu = CudaAllocator()
    first = recorded(gpu)
    address = gpu.allocate(1000)
    gpu.free(address, waits=True)
    gpu.allocate(1000)
    peak = allocator_peaks(first, gpu.snapshot())[GPU]
    assert (peak.requested_bytes, peak.allocated_bytes) == (2000, 1024)


def test_a_history_that_was_on_before_counts_from_the_first_snapshot():
    gpu = CudaAllocator()
    gpu.record("all", None, "all", 1 << 18, None, True)
    gpu.free(gpu.allocate(5 * MIB))
    first = gpu.snapshot()
    gpu.allocate(512)
    assert allocator_peaks(first, gpu.snapshot())[GPU].allocated_bytes == 512


@pytest.mark.parametrize("action", ["alloc", "free_requested", "segment_alloc"])
def test_blocks_that_cannot_be_derived_are_not_known_with_a_reason(action):
    gpu = CudaAllocator()
    first = recorded(gpu)
    gpu.free(gpu.allocate(1000))
    gpu.allocate(3 * MIB)
    last = gpu.snapshot()
    trace = last["device_traces"][0]
    trace.remove(next(entry for entry in trace if entry["action"] == action))
    peak = allocator_peaks(first, last)[GPU]
    assert (peak.allocated_bytes, peak.reserved_bytes) == (None, None)
    assert "expected" in peak.reason
    assert "\n" not in peak.reason


def test_blocks_that_differ_at_the_end_are_not_known():
    gpu = CudaAllocator()
    first = recorded(gpu)
    address = gpu.allocate(3 * MIB)
    last = gpu.snapshot()
    last["segments"][0]["blocks"][0]["size"] += 512
    peak = allocator_peaks(first, last)[GPU]
    assert peak.requested_bytes == 3 * MIB
    assert peak.reason == (
        f"1 blocks at the end are not those expected: {3 * MIB + 512} bytes at {address:#x} for {3 * MIB}"
    )


def test_blocks_that_the_profiler_saw_otherwise_are_not_known():
    gpu = CudaAllocator()
    first = recorded(gpu)
    gpu.allocate(1000)
    address = gpu.allocate(3000)
    blocks = allocator_blocks(first, gpu.snapshot())[GPU]
    assert peak_as_seen(blocks, []) == blocks.peak, "other threads are not profiled"
    assert peak_as_seen(blocks, [(address, 3072)]) == blocks.peak
    for seen in ([(address, 3584)], [(address, 3072)] * 2):
        peak = peak_as_seen(blocks, seen)
        assert (peak.requested_bytes, peak.allocated_bytes, peak.reserved_bytes) == (4000, None, None)
        assert f"1 blocks that are not those expected: {seen[0][1]} bytes at {address:#x}" in peak.reason


def test_snapshots_of_another_form_are_refused():
    with pytest.raises(ValueError, match="another form: KeyError"):
        allocator_peaks({"segments": []}, {"traces": []})


@pytest.mark.parametrize("kind", HISTORIES)
def test_the_history_of_a_real_gpu_has_the_allocators_own_peaks(kind):
    said = recording(f"history-{kind}")
    before = {"segments": said["before"], "device_traces": [[]]}
    peak = allocator_peaks(before, {"segments": said["after"], "device_traces": said["device_traces"]})[GPU]
    assert peak.reason == ""
    assert peak.allocated_bytes == said["peak_allocated_bytes"], "torch.cuda.max_memory_allocated"
    assert peak.requested_bytes == said["peak_requested_bytes"]
