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
    BURST_NS,
    BURSTS,
    CALIBRATION_NS,
    CPU_BLOCK_NS,
    FEW_IN_BURST,
    FIRST_CALLS,
    FIRST_NS,
    LONG_BURST_NS,
    MOST_IN_BURST,
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
        self.on_gpu = device.startswith("cuda")
        self._ended: Any = None  # event: the end of the block before the one that runs
        self._running: Any = None  # event: the end of the block that runs
        self.ended_ns = 0  # when the end of a GPU's last block was seen
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

    def block(self, calls: int) -> int:
        """Make ``calls`` calls and wait for the device; return the nanoseconds that it took."""
        start = time.monotonic_ns()
        self._queue(calls)
        if self.on_gpu:
            self._torch.cuda.synchronize()
        return time.monotonic_ns() - start

    def next_block(self, calls: int) -> int:
        """Make ``calls`` calls; return the nanoseconds of a block, on a GPU by its own clock.

        A GPU gets its next block before the last one has ended, so that it never waits for this process: the time is of
        the block before the one that is queued. A wait after every block of 20 ms cost an H200 one percent.
        """
        if not self.on_gpu:
            return self.block(calls)
        if self._running is None:
            self._ended = self._event()
            self._queue(calls)
            self._running = self._event()
        self._queue(calls)
        queued = self._event()
        self._running.synchronize()
        self.ended_ns = time.monotonic_ns()
        block_ns = round(self._ended.elapsed_time(self._running) * 1e6)
        self._ended, self._running = self._running, queued
        return block_ns

    def launch_share(self, calls: int) -> float:
        """Return the part of the time of ``calls`` calls on a GPU in which they were queued.

        The GPU is idle before. It has ended soon after the last call was queued where it is faster than this process.
        """
        start = time.monotonic_ns()
        self._queue(calls)
        queued = time.monotonic_ns()
        self._torch.cuda.synchronize()
        return (queued - start) / (time.monotonic_ns() - start)

    def drain(self) -> None:
        """Wait for the blocks that are queued."""
        if self._running is not None:
            self._running.synchronize()
            self._ended = self._running = None

    def _queue(self, calls: int) -> None:
        # As fast as a loop over the same input and weights would be.
        deque(map(self._call, islice(self._inputs, calls), self._weights), 0)

    def _event(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def recording(self) -> Any:
        """Return the context in which calls are made: with or without autograd."""
        return self._mode()


def measure(
    load: Load, plan: BenchPlan, send: Send, settled: Callable[[], bool], yardstick: Yardstick | None = None
) -> tuple[list[BenchWindow], bool, float | None]:
    """Warm up, then measure.

    Args:
        load: the calls.
        plan: length and number of windows.
        send: receives the phases, including every window.
        settled: whether the sweep reports that the power has settled. Called between blocks; raises Interrupted.
        yardstick: of the measured CPU.

    Returns:
        The windows, whether the load had settled before them, and the ``launch_share`` of a GPU.
    """
    if yardstick:
        yardstick.start_load()
    with load.recording():
        _first_calls(load)
        call_ns = _calibrate(load)
        launch_share = _launch_share(load, call_ns) if load.on_gpu else None
        block_calls = max(1, round((CPU_BLOCK_NS if yardstick else BLOCK_NS) / call_ns))
        alike, call_ns = _warm_up(load, plan, block_calls, send, settled, yardstick)
        chance = random.Random(plan.seed)
        windows: list[BenchWindow] = []
        while len(windows) < plan.windows or (len(windows) < plan.most_windows and _lacks(windows, plan, yardstick)):
            number = len(windows) + 1
            send(Phase("window", number, plan.windows))
            calls = math.ceil(plan.seconds * 1e9 / call_ns)
            windows.append(
                _gpu_window(load, calls, block_calls, settled)
                if load.on_gpu
                else _window(load, calls, block_calls, settled, yardstick)
            )
            # The sensor makes its next step under the same load, and the next window begins anywhere between two.
            _run_on(load, plan.tail_ns + int(chance.random() * plan.phase_ns), block_calls, settled)
        load.drain()
        return windows, alike or _were_alike(windows, yardstick), launch_share


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
        took = load.block(calls)
        if took >= CALIBRATION_NS:
            return took / calls
        calls *= 2 if took * 4 > CALIBRATION_NS else 4


def _launch_share(load: Load, call_ns: float) -> float:
    """Return the median of some bursts, each too short to fill the GPU's queue of some thousand launches."""
    burst_ns = min(max(BURST_NS, FEW_IN_BURST * call_ns), LONG_BURST_NS)
    calls = min(max(1, round(burst_ns / call_ns)), MOST_IN_BURST)
    return statistics.median(load.launch_share(calls) for _ in range(BURSTS))


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
            block_ns = load.next_block(block_calls)
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
    load_ns = 0
    yards = [yardstick.read()] if yardstick else []
    cpu = time.process_time_ns()
    start = time.monotonic_ns()
    for first in range(0, calls, block_calls):
        settled()
        count = min(block_calls, calls - first)
        took = load.block(count)
        load_ns += took
        blocks.append(took / count)
        if yardstick:
            yards.append(yardstick.read())
    end, cpu_ns = time.monotonic_ns(), time.process_time_ns() - cpu
    return BenchWindow(
        start, end, calls, tuple(blocks), None, cpu_ns, slower_readings(yards), load_ns=load_ns if yardstick else None
    )


def _gpu_window(load: Load, calls: int, block_calls: int, settled: Callable[[], bool]) -> BenchWindow:
    """Measure whole blocks: from the end of the block before the first to the end of the last one."""
    blocks: list[int] = []
    cpu = time.process_time_ns()
    start = load.ended_ns
    for _ in range(math.ceil(calls / block_calls)):
        settled()
        blocks.append(load.next_block(block_calls))
    cpu_ns = time.process_time_ns() - cpu
    each = tuple(block / block_calls for block in blocks)
    return BenchWindow(start, load.ended_ns, len(blocks) * block_calls, each, sum(blocks), cpu_ns)


def _run_on(load: Load, ns: int, block_calls: int, settled: Callable[[], bool]) -> None:
    end = time.monotonic_ns() + ns
    while time.monotonic_ns() < end:
        settled()
        load.next_block(block_calls)
