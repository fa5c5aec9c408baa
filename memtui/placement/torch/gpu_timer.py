"""Times of calls on a GPU, by its own clock. Imports torch."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

LONGEST_SLEEP_NS = 20_000_000
MARGIN = 1.5  # of the time that the host needed to queue as many calls before
FORGETS = 0.9
CYCLES_PER_NS = 2.0  # no GPU's clock is faster, so a sleep is never too short


class GpuTimer:
    """Times calls on one stream without the time that it takes to start them.

    The GPU sleeps first, while the host queues all calls with an event behind each; then the calls run without a gap.
    How long it has to sleep is known after the first time. An accident that kept the host is forgotten by and by.
    """

    def __init__(self, cuda: Any = torch.cuda, now_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        """``cuda`` and ``now_ns`` are replaced by tests."""
        self._cuda, self._now_ns = cuda, now_ns
        self._events: list[Any] = []
        self._queued_ns = 0.0  # the longest time of the host for one call

    def times_ns(self, calls: Sequence[Callable[[], object]], *, host_waits: bool = False) -> list[float]:
        """Queue all calls, wait for the last one, and return the nanoseconds of each.

        Args:
            calls: functions that queue work on the current stream.
            host_waits: whether they return later than that, as copies of pageable memory do. Such calls end the sleep,
                so their times have the time in it that it takes to start them.
        """
        events = self._events
        while len(events) <= len(calls):
            events.append(self._cuda.Event(enable_timing=True))
        self._cuda.synchronize()
        sleep_ns = min(MARGIN * self._queued_ns * len(calls), LONGEST_SLEEP_NS)
        if not host_waits and sleep_ns:
            self._cuda._sleep(int(sleep_ns * CYCLES_PER_NS))
        start_ns = self._now_ns()
        events[0].record()
        for call, event in zip(calls, events[1:], strict=False):
            call()
            event.record()
        if not host_waits:
            self._queued_ns = max(FORGETS * self._queued_ns, (self._now_ns() - start_ns) / len(calls))
        events[len(calls)].synchronize()
        used = events[: len(calls) + 1]
        return [first.elapsed_time(last) * 1e6 for first, last in itertools.pairwise(used)]  # of milliseconds
