"""The clock that ops are timed with, and the waits of emulated memory; tests replace it."""

from __future__ import annotations

import itertools
import time
from statistics import median

_READINGS = 2001


class Clock:
    """The real clock."""

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    def wait(self, ns: float) -> None:
        """Wait busily: sleeping is too coarse, and lets the processor slow down."""
        end = time.perf_counter_ns() + ns
        while time.perf_counter_ns() < end:
            pass

    def rest(self, ns: float) -> None:
        """Sleep while an op runs in another thread, without taking its CPU time."""
        time.sleep(ns / 1e9)


def resolution_ns(clock: Clock) -> float:
    """Return the resolution of a clock, the cost of reading it included: the median distance of two readings."""
    readings = [clock.now_ns() for _ in range(_READINGS)]
    apart = [b - a for a, b in itertools.pairwise(readings) if b > a]
    return float(median(apart)) if apart else 0.0
