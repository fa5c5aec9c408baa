"""Readings and windows of loads whose truth is known."""

from __future__ import annotations

import numpy as np

from memtui.bench.configuration import make
from memtui.bench.plan import BenchPlan, BenchWindow
from memtui.bench.result import Series

S, MS = 10**9, 10**6


CONFIGURATION = make("linear", {"m": 10, "in": 100, "out": 50})


PLAN = BenchPlan(windows=3, seconds=1.0)


def windows(call_ns=(1e6, 1e6, 1e6)) -> list[BenchWindow]:
    """One after another, from second 10 on, with 0.37 s in between."""
    found, begin = [], 10 * S
    for ns in call_ns:
        end = begin + S
        calls = round(S / ns)
        found.append(BenchWindow(begin, end, calls, (ns,) * 50, None, S))
        begin = end + 370 * MS
    return found


def series(power, tick_ns=100 * MS, *, counter=True, sensor=True, **more) -> Series:
    """Readings every millisecond of a load of ``power(seconds)`` watts; the counter rises in steps."""
    t = np.arange(8 * S, 20 * S, MS)
    watts = np.array([power(x / 1e9) for x in t])
    counted = np.concatenate(([0.0], np.cumsum(watts[:-1]) * 1e-3))
    steps = (t - t[0]) // tick_ns * (tick_ns // MS)
    nothing = np.full(len(t), np.nan)
    return Series(t, counted[steps] if counter else nothing, watts if sensor else nothing, "test", "gpu_board", **more)
