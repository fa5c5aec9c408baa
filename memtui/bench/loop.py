"""The load, and the times of its calls: warm-up until the load has settled, then windows without a gap between them."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

from memtui.bench.configuration import Configuration
from memtui.bench.cpu_speed import Yardstick, slower_readings
from memtui.bench.data import Data
from memtui.bench.messages import Phase
from memtui.bench.plan import (
    BLOCK_NS,
    CALIBRATION_NS,
    CPU_BLOCK_NS,
    FIRST_CALLS,
    FIRST_NS,
    SETTLED,
    SPAN_PARTS,
    BenchPlan,
    BenchWindow,
)
from memtui.bench.undisturbed_blocks import counted, enough, quiet_blocks

MEDIAN_ERROR = 0.93  # standard error of a median by the interquartile range and 1 / sqrt(n): sqrt(pi / 2) / 1.349
Send = Callable[[Phase], None]


class Interrupted(Exception):
    """The sweep is gone, or has cancelled the measurement."""


class Load:
    """Calls of one configuration, one after another, for as long as wanted."""

    def __init__(self, torch: Any, device: str, configuration: Configuration, data: Data) -> None:
        self._torch = torch
        self._inputs, self._weights = data.walk()
        self._gpu = device.startswith("cuda")
        operator, parameters = configuration.operator, configuration.parameters
        fp8 = configuration.dtype == "fp8"
        call = operator.bind_fp8(torch, parameters, device) if fp8 else operator.bind(torch, parameters)
        self._call = self._both_ways(call, data) if configuration.both_ways else call
        self._mode = torch.enable_grad if configuration.both_ways else torch.inference_mode

    def _both_ways(self, call: Any, data: Data) -> Any:
        torch = self._torch
        gradient = torch.autograd.grad
        first = call(data.inputs[0], data.weights[0])
        towards = torch.randn_like(first)

        def there_and_back(x: tuple[Any, ...], w: tuple[Any, ...]) -> Any:
            variables = [t for t in (*x, *w) if t.requires_grad]
            return gradient(call(x, w), variables, towards, allow_unused=True)

        return there_and_back

    def block(self, calls: int) -> tuple[int, float | None]:
        """Make ``calls`` calls and wait for the device; return (nanoseconds by the clock, busy time of the device)."""
        # As fast as a loop over the same input and weights would be.
        each = map(self._call, islice(self._inputs, calls), self._weights)
        if not self._gpu:
            start = time.monotonic_ns()
            deque(each, 0)
            return time.monotonic_ns() - start, None
        cuda = self._torch.cuda
        first, last = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start = time.monotonic_ns()
        first.record()
        deque(each, 0)
        last.record()
        last.synchronize()
        return time.monotonic_ns() - start, first.elapsed_time(last) * 1e6

    def recording(self) -> Any:
        """Return the context in which calls are made: with or without autograd."""
        return self._mode()


def measure(
    load: Load, plan: BenchPlan, send: Send, settled: Callable[[], bool], yardstick: Yardstick | None = None
) -> tuple[list[BenchWindow], bool]:
    """Warm up, then measure.

    Args:
        load: the calls.
        plan: length and number of windows.
        send: receives the phases, including every window.
        settled: whether the sweep reports that the power has settled. Called between blocks; raises Interrupted.
        yardstick: of the measured CPU.

    Returns:
        The windows, and whether the load had settled before them.
    """
    if yardstick:
        yardstick.start_load()
    with load.recording():
        _first_calls(load)
        call_ns = _calibrate(load)
        block_calls = max(1, round((CPU_BLOCK_NS if yardstick else BLOCK_NS) / call_ns))
        alike, call_ns = _warm_up(load, plan, block_calls, send, settled, yardstick)
        chance = random.Random(plan.seed)
        windows: list[BenchWindow] = []
        while len(windows) < plan.windows or (len(windows) < plan.most_windows and _lacks(windows, plan, yardstick)):
            number = len(windows) + 1
            send(Phase("window", number, max(number, plan.windows)))
            windows.append(_window(load, math.ceil(plan.seconds * 1e9 / call_ns), block_calls, settled, yardstick))
            # The sensor makes its next step under the same load, and the next window begins anywhere between two.
            _run_on(load, plan.tail_ns + int(chance.random() * plan.phase_ns), block_calls, settled)
        return windows, alike or _were_alike(windows, yardstick)


def _were_alike(windows: list[BenchWindow], yardstick: Yardstick | None) -> bool:
    """Whether the thirds of the quiet blocks are alike: then only a neighbour made the warm-up look unsettled."""
    if yardstick is None:
        return False
    blocks = counted(windows, 3, yardstick.limit_ns())
    return not blocks.disturbed and _alike([_median(part.tolist()) for part in blocks.parts])


def _lacks(windows: list[BenchWindow], plan: BenchPlan, yardstick: Yardstick | None) -> bool:
    """Whether more windows could make the time more precise."""
    if yardstick is None:
        return False
    blocks = counted(windows, plan.parts, yardstick.limit_ns())
    return blocks.disturbed or blocks.wide or not blocks.sheltered


def _first_calls(load: Load) -> None:
    """Make some calls, but not for long where a call takes seconds."""
    start = time.monotonic_ns()
    for _ in range(FIRST_CALLS):
        load.block(1)
        if time.monotonic_ns() - start > FIRST_NS:
            return


def _calibrate(load: Load) -> float:
    """Return the nanoseconds that a call takes, from a block that is long enough."""
    calls = 1
    while True:
        took, _ = load.block(calls)
        if took >= CALIBRATION_NS:
            return took / calls
        calls *= 2 if took * 4 > CALIBRATION_NS else 4


def _warm_up(
    load: Load, plan: BenchPlan, block_calls: int, send: Send, settled: Callable[[], bool], yardstick: Yardstick | None
) -> tuple[bool, float]:
    """Run until three spans in a row are alike; False when some were not, and the time of a call in the last span.

    A span lasts until it has enough quiet blocks.
    """
    start = time.monotonic_ns()
    spans: list[tuple[float, float]] = []
    blocks: list[float] = []
    quiet: list[float] = []
    send(Phase("warm-up"))
    while True:
        # The median of its blocks: occasional time of other guests of the machine is not a warm-up.
        took, first = 0, len(blocks)
        yards = [yardstick.read()] if yardstick else []
        power_settled = False
        while took < plan.settling_ns:
            power_settled = settled() or power_settled
            block_ns, _ = load.block(block_calls)
            took += block_ns
            blocks.append(block_ns / block_calls)
            if yardstick:
                yards.append(yardstick.read())
        if yardstick:
            quiet += quiet_blocks(blocks[first:], slower_readings(yards), yardstick.limit_ns()).tolist()
        if not yardstick or enough(len(blocks), len(quiet), SPAN_PARTS):
            spans.append(_median(quiet if yardstick else blocks))
            blocks, quiet = [], []
        last = spans[-3:]
        if (power_settled or not plan.power) and _alike(last):
            return True, spans[-1][0]
        if time.monotonic_ns() - start > plan.warm_up_s * 1e9:
            unknown = yardstick is not None and len(last) < 3 and (power_settled or not plan.power)
            return unknown, spans[-1][0] if spans else statistics.median(blocks)


def _median(blocks: list[float]) -> tuple[float, float]:
    """Return the median and its deviation by chance: two standard errors, by the interquartile range."""
    low, median, high = np.percentile(blocks, (25, 50, 75)).tolist()
    return median, 2 * MEDIAN_ERROR * (high - low) / math.sqrt(len(blocks))


def _alike(spans: list[tuple[float, float]]) -> bool:
    """Whether three spans have the same median, within some percent or the deviation by chance."""
    if len(spans) < 3:
        return False
    lowest, highest = min(spans), max(spans)
    middle = sorted(spans)[1][0]
    return highest[0] - lowest[0] <= max(SETTLED * middle, math.hypot(lowest[1], highest[1]))


def _window(
    load: Load, calls: int, block_calls: int, settled: Callable[[], bool], yardstick: Yardstick | None
) -> BenchWindow:
    blocks: list[float] = []
    busy: float | None = 0.0
    load_ns = 0
    yards = [yardstick.read()] if yardstick else []
    cpu = time.process_time_ns()
    start = time.monotonic_ns()
    for first in range(0, calls, block_calls):
        settled()
        count = min(block_calls, calls - first)
        took, worked = load.block(count)
        load_ns += took
        blocks.append(took / count)
        busy = None if busy is None or worked is None else busy + worked
        if yardstick:
            yards.append(yardstick.read())
    end, cpu_ns = time.monotonic_ns(), time.process_time_ns() - cpu
    return BenchWindow(
        start, end, calls, tuple(blocks), busy, cpu_ns, slower_readings(yards), load_ns=load_ns if yardstick else None
    )


def _run_on(load: Load, ns: int, block_calls: int, settled: Callable[[], bool]) -> None:
    end = time.monotonic_ns() + ns
    while time.monotonic_ns() < end:
        settled()
        load.block(block_calls)
