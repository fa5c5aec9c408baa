"""How fast each pool is: read, written, and copied from and to the fast pool. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import torch

from memtui.placement.pools import Pool
from memtui.placement.timing import Clock

SIZE = 64 << 20  # several times what a last-level cache holds in most machines
REPEATS = 7


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Of one pool, each in bytes a second; medians.

    Attributes:
        read: adding up what is there, on the device that it is on.
        written: filling it.
        copied_from: copied from it into the fast pool.
        copied_to: copied from the fast pool into it.
    """

    read: float
    written: float
    copied_from: float
    copied_to: float

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
    return [Bandwidth(*(size * 1e9 / max(median(each), 1.0) for each in found)) for found in times]


def _timed_ns(work: Callable[[], object], wait_ns: float, clock: Clock) -> float:
    begin = clock.now_ns()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    if wait_ns:
        clock.wait(wait_ns)
    return clock.now_ns() - begin
