"""Whether the CPU ran at its full speed: a small piece of work, always the same, timed before and after every block.

On a shared machine a guest on the other thread of a core takes up to half of its speed, for milliseconds or minutes,
and no counter inside the machine says so. The same work takes longer then; so blocks between two slow readings tell of
the neighbour and not of the operator.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

SIDE = 64  # of its matrices, which fit into the first cache: nothing but the core itself is asked
READING_NS = 45_000  # a hundredth of a block, and as much again that is not timed
KEPT = 200_000  # readings, some quarter of an hour
BEST_PERCENT = 1.0  # of the readings are as fast as the CPU gets
FLOOR_PERCENT = 2.0  # of those beside one load are as fast as it gets there
SLACK = 1.05  # of that floor above the best: some loads leave the CPU at a lower clock
WAITED = 0.01  # of the time since the last reading: a wait for a CPU that makes a difference
QUIET = 1.08  # times the floor; with a neighbour on the core a reading takes 1.3 to 2 times as long (measured)


class Yardstick:
    """Matrix products on as many threads as the load has.

    Of the other programs of this machine it hears from the kernel: how long this thread was ready and waited for a CPU.
    """

    def __init__(self, torch: Any, threads: int, schedstat: str = "/proc/self/schedstat") -> None:
        self._torch = torch
        self._a, self._b = (torch.randn(threads, SIDE, SIDE) for _ in range(2))
        self._out = torch.empty(threads, SIDE, SIDE)
        self._seen: deque[int] = deque(maxlen=KEPT)
        self._beside: list[int] = []
        self._times = 1
        try:
            self._schedstat: int | None = os.open(schedstat, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a kernel without CONFIG_SCHED_INFO
            self._schedstat = None
        self._waited_ns, self._last_ns = self._waited(), time.monotonic_ns()
        self._read()  # libraries choose their ways
        self._times = max(1, READING_NS // min(self._read() for _ in range(20)))

    def begin(self) -> None:
        """Another load comes."""
        self._beside = []

    def read(self) -> int:
        """Nanoseconds that the work takes now; if much of the time since the last reading was waiting, that on top."""
        took = self._read()
        self._seen.append(took)
        self._beside.append(took)
        now, waited = time.monotonic_ns(), self._waited()
        span, wait = now - self._last_ns, waited - self._waited_ns
        self._last_ns, self._waited_ns = now, waited
        return took + wait if wait > WAITED * span else took

    def _waited(self) -> int:
        """Nanoseconds for which this thread was ready to run, and did not."""
        return 0 if self._schedstat is None else int(os.pread(self._schedstat, 64, 0).split()[1])

    def _read(self) -> int:
        bmm, a, b, out = self._torch.bmm, self._a, self._b, self._out
        for _ in range(self._times):  # what the load left, in the caches and of the clock, fades
            bmm(a, b, out=out)
        begin = time.monotonic_ns()
        for _ in range(self._times):
            bmm(a, b, out=out)
        return time.monotonic_ns() - begin

    def usual_ns(self) -> float:
        """Median of the readings beside the present load, as far as nothing disturbed them."""
        beside = np.asarray(self._beside)
        return float(np.median(beside[beside <= self.limit_ns()]))

    def limit_ns(self) -> float:
        """What a reading takes at most while the CPU runs at its full speed, by all that was seen so far."""
        if not self._beside:
            return 0.0
        best, floor = np.percentile(self._seen, BEST_PERCENT), np.percentile(self._beside, FLOOR_PERCENT)
        return QUIET * float(min(floor, SLACK * best))


def beside(readings: Sequence[int]) -> tuple[int, ...]:
    """For each block the longer one of the readings before and after it."""
    return tuple(map(max, pairwise(readings)))
