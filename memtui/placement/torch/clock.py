"""The clock that ops are timed with, and the waits of emulated memory; a test has one of its own."""

from __future__ import annotations

import itertools
import time
from statistics import median

_LOOKS = 2001


class Clock:
    """The real one."""

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    def wait(self, ns: float) -> None:
        """Be busy for so long: to sleep is too coarse, and lets the processor slow down."""
        end = time.perf_counter_ns() + ns
        while time.perf_counter_ns() < end:
            pass

    def rest(self, ns: float) -> None:
        """Wait beside an op that runs, without taking its time."""
        time.sleep(ns / 1e9)


def resolution_ns(clock: Clock) -> float:
    """Return the least time that two looks at a clock are apart, what a look costs included; the median of many."""
    looks = [clock.now_ns() for _ in range(_LOOKS)]
    apart = [b - a for a, b in itertools.pairwise(looks) if b > a]
    return float(median(apart)) if apart else 0.0
