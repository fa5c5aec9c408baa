"""The time budget of one picture."""

from __future__ import annotations

import time

WAIT = 5  # times as long by the clock: a picture that waits for a disk, or for a CPU, is shown in parts in the end


class TimeBudget:
    """CPU time of the calling thread, so that a busy machine does not split a picture into many.

    With the training on every CPU, a budget by the clock tripled the CPU time of the screen.
    """

    def __init__(self, seconds: float) -> None:
        self._cpu = time.thread_time() + seconds
        self._clock = time.perf_counter() + WAIT * seconds

    @property
    def spent(self) -> bool:
        """Return whether the budget is used up: the rest of the work is left to the next picture."""
        return time.thread_time() > self._cpu or time.perf_counter() > self._clock
