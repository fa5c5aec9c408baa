"""The speed of the CPU while something is measured, and what it does to the times.

``Yardstick`` is a small piece of work, always the same, timed before and after every block. On a shared machine a guest
on the other thread of a core takes up to half of its speed, for milliseconds or minutes, and no counter inside the
machine says so. The same work takes longer then; so blocks between two slow readings tell of the neighbour and not of
the operator.

The clock of a CPU that others use, too, moves by a third within minutes, with what they do. The yardstick takes longer
then by the same share, and an operator by a part of that, for memory has a clock of its own. That part is the slope of
one logarithm over the other, and with it the blocks of a row are brought to one speed: the reference, which is what the
yardstick took when a sweep first measured it, and is kept for all later ones.
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
from memtui.core.files import replace_whole
from memtui.core.small_file import read_small_bytes

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
        """Forget the readings of the load before: another one comes."""
        self._beside = []

    def read(self) -> int:
        """Return the nanoseconds that the work takes now; with the wait since the last reading if that was much."""
        took = self._read()
        self._seen.append(took)
        self._beside.append(took)
        now, waited = time.monotonic_ns(), self._waited()
        span, wait = now - self._last_ns, waited - self._waited_ns
        self._last_ns, self._waited_ns = now, waited
        return took + wait if wait > WAITED * span else took

    def _waited(self) -> int:
        """Return the nanoseconds for which this thread was ready to run, and did not."""
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
        """Return the median of the readings beside the present load, as far as nothing disturbed them."""
        beside = np.asarray(self._beside)
        return float(np.median(beside[beside <= self.limit_ns()]))

    def limit_ns(self) -> float:
        """Return what a reading takes at most while the CPU runs at its full speed, by all that was seen so far."""
        if not self._beside:
            return 0.0
        best, floor = np.percentile(self._seen, BEST_PERCENT), np.percentile(self._beside, FLOOR_PERCENT)
        return QUIET * float(min(floor, SLACK * best))


def beside(readings: Sequence[int]) -> tuple[int, ...]:
    """Return for each block the longer one of the readings before and after it."""
    return tuple(map(max, pairwise(readings)))


SMOOTHED = 15  # blocks, of which the median is taken: a reading is 45 us long, and a change of speed lasts longer
DISTURBED = 1.25  # times the fastest: no clock does that within a row, a neighbour on the core does
VARIED = 0.003  # standard deviation of the logarithm of the speed; less tells nothing
CHANCE = 1.253 / (2 * SMOOTHED) ** 0.5  # of a median, by the standard deviation of differences of neighbours
MORE = 1.5  # times what chance does
FEWEST = 5  # medians make a slope

Floats = NDArray[np.float64]


def share_that_follows(block_ns: Floats, yard_ns: Floats) -> float | None:
    """Return how much of the time follows the speed of the CPU: 0 none of it, 1 all.

    Args:
        block_ns: f8[n], in the order of time.
        yard_ns: f8[n], of the yardstick beside each.

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


def at_reference(block_ns: Floats, yard_ns: Floats, reference_ns: float, share: float | None) -> Floats:
    """Return the blocks as they would be where the yardstick takes ``reference_ns``.

    They stay as they are where nothing is known.
    """
    return block_ns if share is None else block_ns * (reference_ns / yard_ns) ** share


def _medians(values: Floats) -> Floats:
    """Return those of stretches that overlap by half."""
    if len(values) < SMOOTHED:
        return values[:0]
    return np.median(np.lib.stride_tricks.sliding_window_view(values, SMOOTHED)[:: SMOOTHED // 2], axis=1)


NAME = "bench-speed.json"


class References:
    """By name of the CPU, and by what else changes the yardstick. In one small file; without one, for this sweep."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, float] = {}
        if path is not None:
            with suppress(OSError, UserError, ValueError, AttributeError, RecursionError):
                stored = json.loads(read_small_bytes(path))
                self._known = {str(k): float(v) for k, v in stored.items() if float(v) > 0}

    def of(self, cpu: str, now_ns: float) -> float:
        """Return the nanoseconds; those of now where there are none yet."""
        if cpu not in self._known:
            self._known[cpu] = now_ns
            self._keep()
        return self._known[cpu]

    def _keep(self) -> None:
        if self._path is None:
            return
        with suppress(OSError):  # then it is the reference of this sweep
            self._path.parent.mkdir(0o700, parents=True, exist_ok=True)
            replace_whole(self._path, json.dumps(self._known, indent=2) + "\n", 0o600)
