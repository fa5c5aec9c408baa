"""Several threads for what the kernel does in a pause: its work is by address, and the target's own CPUs stand idle."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

MOST_HANDS = 4  # from there on, threads that clear pages would wait for one another's locks

Result = TypeVar("Result")


class Hands:
    """As many threads as this process has CPUs, four at most. They start when they are needed first."""

    def __init__(self, count: int | None = None) -> None:
        """``count``: how many, instead of as many as there are CPUs."""
        self.count = count or min(MOST_HANDS, len(os.sched_getaffinity(0)))
        self._pool = ThreadPoolExecutor(max(self.count - 1, 1), "memtui-hand")  # the caller is one, too

    def together(self, calls: Sequence[Callable[[], Result]]) -> list[Result]:
        """The results of all calls, of which this thread does the first.

        Raises what one of them raises, but not before all have ended.
        """
        if len(calls) < 2:
            return [call() for call in calls]
        others = [self._pool.submit(call) for call in calls[1:]]
        try:
            first = calls[0]()
        finally:
            wait(others)
        return [first, *(other.result() for other in others)]

    def close(self) -> None:
        self._pool.shutdown()
