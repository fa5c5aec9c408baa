"""Bandwidths of each pool: read, written, copied from and to the fast pool; and the fixed time of a move.

Imports torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from statistics import median

import torch

from memtui.placement.torch.clock import Clock
from memtui.placement.torch.pools import Pool
from memtui.placement.torch.tensor_moves import Copy, Mover
from memtui.placement.worker_protocol import Bandwidth

SIZE = 64 << 20  # several times the last-level cache of most machines
CACHES = 8  # times the cache of a GPU, at least
FREE_SHARE = 4  # of the free memory of a GPU, one part in so many at most
IN_A_ROW = 10  # repeats on a GPU between two events: the start of the first one then hardly counts
REPEATS = 7
PAGE = 4096  # the smallest move
PAGE_REPEATS = 101  # copies of a page are short, so single outliers do not change the median
_SIDE = 256  # side of the matrices that are multiplied during a copy
_SHORT_SIDES = (96, 128, 192, 256, 384, 512)  # the same during a copy of a page
_HIDES = 1.5  # work during a copy of a page takes this times as long: it hides the copy, but not its cost


def measure(pools: Sequence[Pool], clock: Clock, size: int = SIZE, repeats: int = REPEATS) -> list[Bandwidth]:
    """Measure each pool, in turns; the first is the fast pool, which is copied to itself.

    On a GPU ``size`` is the least size; it is several times the GPU's cache. Raises NoMemory.
    """
    on_gpu = pools[0].device.type == "cuda"
    size = _size_on_gpu(pools, size) if on_gpu else size
    fast = pools[0].take(size)
    memories = [pool.take(size) for pool in pools]
    times = (_times_on_gpu if on_gpu else _times)(pools, memories, fast, clock, repeats)
    alone = [Bandwidth(*(_rate(size, each) for each in of_pool)) for of_pool in times]
    free = not on_gpu and torch.get_num_threads() < len(os.sched_getaffinity(0))
    with _moving(clock) as mover:
        if free:
            rates = [_meanwhile(mover, *_both(p, m, fast), repeats) for p, m in zip(pools, memories, strict=True)]
            alone = [
                replace(bandwidth, copied_from_meanwhile=out, copied_to_meanwhile=into)
                for bandwidth, (out, into) in zip(alone, rates, strict=True)
            ]
        return [
            _with_fixed(mover, clock, bandwidth, *_both(pool, memory[:PAGE], fast[:PAGE]), free=free)
            for bandwidth, pool, memory in zip(alone, pools, memories, strict=True)
        ]


def _times(
    pools: Sequence[Pool], memories: Sequence[torch.Tensor], fast: torch.Tensor, clock: Clock, repeats: int
) -> list[list[list[float]]]:
    """Return for each pool the times of reading and writing it, and of copies out of it and into it (ns)."""
    size = len(fast)
    times: list[list[list[float]]] = [[[] for _ in range(4)] for _ in pools]
    for turn in range(repeats + 1):
        for pool, memory, of_pool in zip(pools, memories, times, strict=True):
            numbers = memory.view(torch.int64)
            reads, writes = pool.read_wait_ns(size), pool.write_wait_ns(size)
            took = (
                _timed_ns(numbers.sum, reads, clock),
                _timed_ns(partial(memory.fill_, 1), writes, clock),
                _timed_ns(partial(fast.copy_, memory), reads, clock),
                _timed_ns(partial(memory.copy_, fast), writes, clock),
            )
            if turn:  # the first turn warms up
                for each, ns in zip(of_pool, took, strict=True):
                    each.append(ns)
    return times


def _times_on_gpu(
    pools: Sequence[Pool], memories: Sequence[torch.Tensor], fast: torch.Tensor, _clock: Clock, repeats: int
) -> list[list[list[float]]]:
    """Return the same where ops run on a GPU, by its own clock: the start of an op is in no time.

    Ops reach memory of the host through copies only, so these are what reading and writing it takes.
    """
    times: list[list[list[float]]] = [[[] for _ in range(4)] for _ in pools]
    for turn in range(repeats + 1):
        for pool, memory, of_pool in zip(pools, memories, times, strict=True):
            copies = (
                partial(fast.copy_, memory, non_blocking=True),
                partial(memory.copy_, fast, non_blocking=True),
            )
            if pool.device == pools[0].device:
                numbers = memory.view(torch.int64)
                took = [_event_ns(work, IN_A_ROW) for work in (numbers.sum, partial(memory.fill_, 1), *copies)]
            else:
                took = [_event_ns(copy, 1) for copy in copies] * 2
            if turn:  # the first turn warms up
                for each, ns in zip(of_pool, took, strict=True):
                    each.append(ns)
    return times


def _event_ns(work: Callable[[], object], count: int) -> float:
    """Return the mean time of work on the GPU between two events."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e6 / count  # of milliseconds


def _size_on_gpu(pools: Sequence[Pool], least: int) -> int:
    """Return a size that the GPU's cache holds a small part of, as far as there is room: whole pages."""
    cache = int(torch.cuda.get_device_properties(pools[0].device).L2_cache_size)
    room = torch.cuda.mem_get_info()[0] // FREE_SHARE
    return max(PAGE, min(max(least, CACHES * cache), room) // PAGE * PAGE)


@contextmanager
def _moving(clock: Clock) -> Iterator[Mover]:
    mover = Mover(clock, _wait_for_device)
    try:
        yield mover
    finally:
        mover.close()


def _both(pool: Pool, memory: torch.Tensor, fast: torch.Tensor) -> tuple[Copy, Copy]:
    """Return a copy out of a pool into the fast one, and one back."""
    size = len(memory)
    return Copy(fast, memory, pool.read_wait_ns(size)), Copy(memory, fast, pool.write_wait_ns(size))


def _rate(size: int, times: Sequence[float]) -> float:
    return size * 1e9 / max(median(times), 1.0)


def _meanwhile(mover: Mover, out: Copy, into: Copy, repeats: int) -> tuple[float, float]:
    """Return bytes a second of copies out of a pool and back, while this thread multiplies matrices."""
    multiply = _multiplying(_SIDE)

    def until_moved() -> None:
        while mover.moving:
            multiply()

    times = [[mover.during([copy], until_moved)[1] for _ in range(repeats)] for copy in (out, into)]
    return _rate(len(out.source), times[0]), _rate(len(into.source), times[1])


def _with_fixed(mover: Mover, clock: Clock, bandwidth: Bandwidth, out: Copy, into: Copy, *, free: bool) -> Bandwidth:
    """Return the bandwidths with the fixed times of moves, measured with other work between moves, as in plans.

    Args:
        mover: executes the moves, as it does for plans.
        clock: clock of the mover.
        bandwidth: bandwidths without fixed times.
        out: copy of a page from the pool into the fast one.
        into: copy of a page into the pool.
        free: whether a CPU is free for moves while ops run.
    """
    small = _multiplying(_SHORT_SIDES[0])  # leaves the page in the caches, as an op leaves a tensor that it wrote
    hiding = _hiding(mover, clock, (out, into)) if free else small
    immediate: list[list[float]] = [[], []]
    meanwhile: list[list[float]] = [[], []]
    longer: list[float] = []
    # Two loops: the thread of a finished move still needs the interpreter for a moment.
    for turn in range(PAGE_REPEATS + 1):
        for way, copy in enumerate((out, into)):
            small()
            took_ns = mover.now([copy])
            if turn:  # the first turn warms up
                immediate[way].append(took_ns)
    for turn in range((PAGE_REPEATS + 1) * free):
        for way, copy in enumerate((out, into)):
            both_ns, moved_ns = mover.during([copy], hiding)
            small()
            alone_ns = _timed_ns(hiding, 0, clock)
            if turn:
                meanwhile[way].append(moved_ns)
                longer.append(both_ns - alone_ns)

    def fixed(times: Sequence[float], rate: float | None) -> float | None:
        return max(0.0, median(times) - PAGE * 1e9 / rate) if times and rate else None

    return replace(
        bandwidth,
        copied_from_fixed_ns=fixed(immediate[0], bandwidth.copied_from),
        copied_to_fixed_ns=fixed(immediate[1], bandwidth.copied_to),
        copied_from_meanwhile_fixed_ns=fixed(meanwhile[0], bandwidth.copied_from_meanwhile),
        copied_to_meanwhile_fixed_ns=fixed(meanwhile[1], bandwidth.copied_to_meanwhile),
        meanwhile_start_ns=max(0.0, median(longer)) if longer else None,
    )


def _hiding(mover: Mover, clock: Clock, copies: Sequence[Copy]) -> Callable[[], object]:
    """Return work that takes longer than moving a page at the same time."""
    for side in _SHORT_SIDES:
        multiply = _multiplying(side)
        moved_ns = median(mover.during([copy], multiply)[1] for copy in copies for _ in range(REPEATS))
        if median(_timed_ns(multiply, 0, clock) for _ in range(REPEATS)) >= _HIDES * moved_ns:
            break
    return multiply


def _multiplying(side: int) -> Callable[[], object]:
    a = torch.ones(side, side)
    return partial(torch.mm, a, a, out=torch.empty_like(a))


def _wait_for_device() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _timed_ns(work: Callable[[], object], wait_ns: float, clock: Clock) -> float:
    start_ns = clock.now_ns()
    work()
    _wait_for_device()
    if wait_ns:
        clock.wait(wait_ns)
    return clock.now_ns() - start_ns
