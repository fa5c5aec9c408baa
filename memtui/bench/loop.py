"""The load, and the time that its calls take: warm-up until it has settled, then windows without a gap between them."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

from memtui.bench.configuration import Configuration
from memtui.bench.data import Data
from memtui.bench.plan import BLOCK_NS, CALIBRATION_NS, FIRST_CALLS, FIRST_NS, SETTLED, SETTLING_NS, Plan, Window

Tell = Callable[[dict[str, Any]], None]


class Interrupted(Exception):
    """Whoever asked is gone, or wants no more."""


class Load:
    """Calls of one configuration, one after another, for as long as wanted."""

    def __init__(self, torch: Any, device: str, configuration: Configuration, data: Data) -> None:
        self._torch, self._walk = torch, data.walk()
        self._gpu = device.startswith("cuda")
        call = configuration.operator.bind(torch, configuration.parameters)
        self._call = self._both_ways(call, data) if configuration.both_ways else call
        self._mode = torch.enable_grad if configuration.both_ways else torch.inference_mode

    def _both_ways(self, call: Any, data: Data) -> Any:
        torch = self._torch
        gradient = torch.autograd.grad
        first = call(data.inputs[0], data.weights[0])
        towards = torch.randn_like(first)

        def there_and_back(x: tuple[Any, ...], w: tuple[Any, ...]) -> Any:
            asked = [t for t in (*x, *w) if t.requires_grad]
            return gradient(call(x, w), asked, towards, allow_unused=True)

        return there_and_back

    def block(self, calls: int) -> tuple[int, float | None]:
        """Call so often, and wait until the device is done: (nanoseconds by the clock, those the device worked)."""
        call = self._call
        if not self._gpu:
            begin = time.monotonic_ns()
            for x, w in islice(self._walk, calls):
                call(x, w)
            return time.monotonic_ns() - begin, None
        cuda = self._torch.cuda
        first, last = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        begin = time.monotonic_ns()
        first.record()
        for x, w in islice(self._walk, calls):
            call(x, w)
        last.record()
        last.synchronize()
        return time.monotonic_ns() - begin, first.elapsed_time(last) * 1e6

    def recording(self) -> Any:
        """The context in which calls are made: with or without what a backward pass needs."""
        return self._mode()


def measure(load: Load, plan: Plan, tell: Tell, settled: Callable[[], bool]) -> tuple[list[Window], bool]:
    """Warm up, then measure.

    Args:
        load: the calls.
        plan: how long and how often.
        tell: is told of phases and of every window.
        settled: whether the one who asked sees that the power has settled. Asked between blocks; raises Interrupted.

    Returns:
        The windows, and whether the load had settled before them.
    """
    with load.recording():
        _first_calls(load)
        call_ns = _calibrate(load)
        at_once = max(1, round(BLOCK_NS / call_ns))
        quiet, call_ns = _warm_up(load, plan, at_once, tell, settled)
        chance = random.Random(plan.seed)
        windows = []
        for number in range(plan.windows):
            tell({"at": "window", "number": number, "of": plan.windows, "seconds": plan.seconds})
            windows.append(_window(load, math.ceil(plan.seconds * 1e9 / call_ns), at_once, settled))
            # The sensor makes its next step under the same load, and the next window begins anywhere between two.
            _run_on(load, plan.tail_ns + int(chance.random() * plan.phase_ns), at_once, settled)
        return windows, quiet


def _first_calls(load: Load) -> None:
    """Some calls, but not for long where one takes seconds."""
    begin = time.monotonic_ns()
    for _ in range(FIRST_CALLS):
        load.block(1)
        if time.monotonic_ns() - begin > FIRST_NS:
            return


def _calibrate(load: Load) -> float:
    """Nanoseconds a call takes, from a block that is long enough."""
    calls = 1
    while True:
        took, _ = load.block(calls)
        if took >= CALIBRATION_NS:
            return took / calls
        calls *= 2 if took * 4 > CALIBRATION_NS else 4


def _warm_up(load: Load, plan: Plan, at_once: int, tell: Tell, settled: Callable[[], bool]) -> tuple[bool, float]:
    """Run until three spans in a row are alike; whether they were, and the time of a call in the last one."""
    begin = time.monotonic_ns()
    spans: list[float] = []
    tell({"at": "warm-up", "seconds": plan.warm_up_s})
    while True:
        # The median of its blocks: what other guests of the machine take now and then is no warm-up.
        took, blocks = 0, []
        told = False
        while took < SETTLING_NS:
            told = settled() or told
            block_ns, _ = load.block(at_once)
            took += block_ns
            blocks.append(block_ns / at_once)
        spans.append(statistics.median(blocks))
        last = spans[-3:]
        alike = len(last) == 3 and max(last) - min(last) <= SETTLED * statistics.median(last)
        if (told or not plan.power) and alike:
            return True, spans[-1]
        if time.monotonic_ns() - begin > plan.warm_up_s * 1e9:
            return False, spans[-1]


def _window(load: Load, calls: int, at_once: int, settled: Callable[[], bool]) -> Window:
    blocks: list[float] = []
    busy: float | None = 0.0
    cpu = time.process_time_ns()
    begin = time.monotonic_ns()
    for first in range(0, calls, at_once):
        settled()
        count = min(at_once, calls - first)
        took, worked = load.block(count)
        blocks.append(took / count)
        busy = None if busy is None or worked is None else busy + worked
    return Window(begin, time.monotonic_ns(), calls, tuple(blocks), busy, time.process_time_ns() - cpu)


def _run_on(load: Load, ns: int, at_once: int, settled: Callable[[], bool]) -> None:
    end = time.monotonic_ns() + ns
    while time.monotonic_ns() < end:
        settled()
        load.block(at_once)
