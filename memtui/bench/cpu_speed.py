"""The speed of the CPU during a measurement, and its effect on the times.

``Yardstick`` is a small piece of work, always the same, timed before and after every block. On a shared machine a guest
on the other thread of a core takes up to half of its speed, for milliseconds or minutes, and no counter inside the
machine reports it. The same work takes longer then; so blocks between two slow readings measure the neighbour and not
the operator.

The clock of a shared CPU moves by a third within minutes, with the load of the others. The yardstick takes longer then
by the same share, and an operator by a part of that share, because memory has a clock of its own. That part is the
slope of one logarithm over the other, and with it the blocks of a row are scaled to one speed: the reference, which is
the yardstick's time when a sweep first measured it, stored for all later sweeps.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.core.errors import UserError
from memtui.core.files import write_atomically
from memtui.core.small_file import read_small_bytes

SIDE = 64  # of its matrices, which fit into the first cache: only the core itself is measured
READING_NS = 45_000  # a hundredth of a block, and as much again that is not timed
MOST_READINGS = 200_000  # readings, some quarter of an hour
BEST_PERCENT = 1.0  # of the readings are as fast as the CPU gets
FLOOR_PERCENT = 2.0  # of the readings during one load are as fast as the CPU gets under it
SLACK = 1.05  # of that floor above the best: some loads leave the CPU at a lower clock
WAITED = 0.01  # of the time since the last reading: a wait for a CPU that makes a difference
QUIET = 1.08  # times the floor; with a neighbour on the core a reading takes 1.3 to 2 times as long (measured)


class Yardstick:
    """Matrix products on as many threads as the load has.

    The kernel reports the effect of other programs of this machine: how long this thread was ready but had no CPU.
    """

    def __init__(self, torch: Any, threads: int, schedstat: str = "/proc/self/schedstat") -> None:
        self._torch = torch
        self._a, self._b = (torch.randn(threads, SIDE, SIDE) for _ in range(2))
        self._out = torch.empty(threads, SIDE, SIDE)
        self._seen: deque[int] = deque(maxlen=MOST_READINGS)
        self._load_readings: list[int] = []
        self._times = 1
        try:
            self._schedstat: int | None = os.open(schedstat, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a kernel without CONFIG_SCHED_INFO
            self._schedstat = None
        self._waited_ns, self._last_ns = self._waited(), time.monotonic_ns()
        self._read()  # libraries choose their algorithms
        self._times = max(1, READING_NS // min(self._read() for _ in range(20)))

    def start_load(self) -> None:
        """Forget the readings of the previous load."""
        self._load_readings = []

    def read(self) -> int:
        """Return the nanoseconds that the work takes now, plus the wait since the last reading if it was long."""
        took = self._read()
        self._seen.append(took)
        self._load_readings.append(took)
        now, waited = time.monotonic_ns(), self._waited()
        span, wait = now - self._last_ns, waited - self._waited_ns
        self._last_ns, self._waited_ns = now, waited
        return took + wait if wait > WAITED * span else took

    def _waited(self) -> int:
        """Return the nanoseconds for which this thread was ready to run but did not run."""
        return 0 if self._schedstat is None else int(os.pread(self._schedstat, 64, 0).split()[1])

    def _read(self) -> int:
        bmm, a, b, out = self._torch.bmm, self._a, self._b, self._out
        for _ in range(self._times):  # effects of the load on caches and clock fade
            bmm(a, b, out=out)
        start_ns = time.monotonic_ns()
        for _ in range(self._times):
            bmm(a, b, out=out)
        return time.monotonic_ns() - start_ns

    def usual_ns(self) -> float | None:
        """Return the median of the undisturbed readings during the present load; None where all were disturbed."""
        readings = np.asarray(self._load_readings)
        undisturbed = readings[readings <= self.limit_ns()]
        return float(np.median(undisturbed)) if len(undisturbed) else None

    def limit_ns(self) -> float:
        """Return the longest time of a reading at the CPU's full speed, by all readings so far."""
        if not self._load_readings:
            return 0.0
        best, floor = np.percentile(self._seen, BEST_PERCENT), np.percentile(self._load_readings, FLOOR_PERCENT)
        return QUIET * float(min(floor, SLACK * best))


def slower_readings(readings: Sequence[int]) -> tuple[int, ...]:
    """Return for each block the longer of the readings before and after it."""
    return tuple(map(max, pairwise(readings)))


SMOOTHED = 15  # blocks in a median: a reading is 45 us long, and a change of speed lasts longer
DISTURBED = 1.25  # times the fastest: no clock varies that much within a row, a neighbour on the core does that
VARIED = 0.003  # least standard deviation of the logarithm of the speed that is used
CHANCE = 1.253 / (2 * SMOOTHED) ** 0.5  # of a median, by the standard deviation of differences of neighbours
MORE = 1.5  # times the deviation by chance
FEWEST = 5  # medians for a slope

Floats = NDArray[np.float64]


def share_that_follows(block_ns: Floats, yard_ns: Floats) -> float | None:
    """Return the share of the time that follows the speed of the CPU, 0 to 1.

    Args:
        block_ns: f8[n], in the order of time.
        yard_ns: f8[n], reading of the yardstick around each block.

    Returns:
        The slope of log time over log yardstick, of medians, from 0 to 1; None where the speed varied too little.
    """
    if len(yard_ns) < SMOOTHED:
        return None
    there = yard_ns <= DISTURBED * np.percentile(yard_ns, 2)
    by_chance = CHANCE * float(np.diff(np.log(yard_ns[there])).std())
    yards, blocks = (np.log(_medians(some[there])) for some in (yard_ns, block_ns))
    if len(yards) < FEWEST or yards.std() < max(VARIED, MORE * by_chance):
        return None
    return float(np.clip(np.polyfit(yards - yards.mean(), blocks, 1)[0], 0, 1))


def scaled_to_reference(block_ns: Floats, yard_ns: Floats, reference_ns: float, share: float | None) -> Floats:
    """Return the blocks scaled to the speed at which the yardstick takes ``reference_ns``.

    The blocks stay as they are where ``share`` is None.
    """
    return block_ns if share is None else block_ns * (reference_ns / yard_ns) ** share


def _medians(values: Floats) -> Floats:
    """Return the medians of stretches that overlap by half."""
    if len(values) < SMOOTHED:
        return values[:0]
    return np.median(np.lib.stride_tricks.sliding_window_view(values, SMOOTHED)[:: SMOOTHED // 2], axis=1)


NAME = "bench-speed.json"


class References:
    """Reference times by CPU, threads and versions, in one small file; without a file, for this sweep only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._by_cpu: dict[str, float] = {}
        if path is not None:
            with suppress(OSError, UserError, ValueError, AttributeError, RecursionError):
                stored = json.loads(read_small_bytes(path))
                self._by_cpu = {str(k): float(v) for k, v in stored.items() if float(v) > 0}

    def of(self, cpu: str, now_ns: float | None) -> float | None:
        """Return the reference time of a CPU in nanoseconds; ``now_ns`` becomes it where there is none yet."""
        if cpu not in self._by_cpu and now_ns is not None:
            self._by_cpu[cpu] = now_ns
            self._keep()
        return self._by_cpu.get(cpu)

    def _keep(self) -> None:
        if self._path is None:
            return
        with suppress(OSError):  # then the reference lasts for this sweep
            self._path.parent.mkdir(0o700, parents=True, exist_ok=True)
            write_atomically(self._path, json.dumps(self._by_cpu, indent=2) + "\n", 0o600)
