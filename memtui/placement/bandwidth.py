"""How fast each pool is: read, written, and copied from and to the fast pool. Imports torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import torch

from memtui.placement.pools import Pool
from memtui.placement.timing import Clock

SIZE = 64 << 20  # several times what a last-level cache holds in most machines
REPEATS = 7
_SIDE = 256  # of the matrices that are multiplied while something is copied


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Of one pool, each in bytes a second; medians.

    Attributes:
        read: adding up what is there, on the device that it is on.
        written: filling it.
        copied_from: copied from it into the fast pool.
        copied_to: copied from the fast pool into it.
        copied_from_meanwhile: as ``copied_from``, by another thread while ops run; None: there is no CPU left for it.
        copied_to_meanwhile: as ``copied_to``, the same way.
    """

    read: float
    written: float
    copied_from: float
    copied_to: float
    copied_from_meanwhile: float | None = None
    copied_to_meanwhile: float | None = None

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)


def measure(pools: Sequence[Pool], clock: Clock, size: int = SIZE, repeats: int = REPEATS) -> list[Bandwidth]:
    """Of each pool; the first one is the fast one, whose copies are to itself. Pools are measured in turns.

    Raises NoMemory.
    """
    fast = pools[0].take(size)
    times: list[list[list[float]]] = [[[] for _ in range(4)] for _ in pools]
    memories = [pool.take(size) for pool in pools]
    for turn in range(repeats + 1):
        for pool, memory, found in zip(pools, memories, times, strict=True):
            numbers = memory.view(torch.int64)
            reads, writes = pool.read_wait_ns(size), pool.write_wait_ns(size)
            took = (
                _timed_ns(numbers.sum, reads, clock),
                _timed_ns(partial(memory.fill_, 1), writes, clock),
                _timed_ns(partial(fast.copy_, memory), reads, clock),
                _timed_ns(partial(memory.copy_, fast), writes, clock),
            )
            if turn:  # the first one warms up
                for each, ns in zip(found, took, strict=True):
                    each.append(ns)
    alone = [Bandwidth(*(size * 1e9 / max(median(each), 1.0) for each in found)) for found in times]
    if pools[0].device.type != "cpu" or torch.get_num_threads() >= len(os.sched_getaffinity(0)):
        return alone
    rates = [_meanwhile(pool, memory, fast, clock, repeats) for pool, memory in zip(pools, memories, strict=True)]
    return [
        replace(one, copied_from_meanwhile=out, copied_to_meanwhile=into)
        for one, (out, into) in zip(alone, rates, strict=True)
    ]


def _meanwhile(pool: Pool, memory: torch.Tensor, fast: torch.Tensor, clock: Clock, repeats: int) -> tuple[float, float]:
    """Bytes a second of copies from a pool into the fast one, and back, while this thread multiplies matrices."""
    size = len(memory)
    a = torch.ones(_SIDE, _SIDE)
    b = torch.empty_like(a)
    with ThreadPoolExecutor(1, "mover") as mover:

        def timed_ns(to: torch.Tensor, of: torch.Tensor, wait_ns: float) -> float:
            begin = clock.now_ns()
            moving = mover.submit(_move, to, of, wait_ns, clock)
            while not moving.done():
                torch.mm(a, a, out=b)
            return moving.result() - begin

        out = [timed_ns(fast, memory, pool.read_wait_ns(size)) for _ in range(repeats)]
        into = [timed_ns(memory, fast, pool.write_wait_ns(size)) for _ in range(repeats)]
    return size * 1e9 / max(median(out), 1.0), size * 1e9 / max(median(into), 1.0)


def _move(to: torch.Tensor, of: torch.Tensor, wait_ns: float, clock: Clock) -> int:
    to.copy_(of)
    if wait_ns:
        clock.rest(wait_ns)
    return clock.now_ns()


def _timed_ns(work: Callable[[], object], wait_ns: float, clock: Clock) -> float:
    begin = clock.now_ns()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    if wait_ns:
        clock.wait(wait_ns)
    return clock.now_ns() - begin
