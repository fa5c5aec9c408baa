"""What one picture may take."""

from __future__ import annotations

import time

WAIT = 5  # times as long by the clock: a picture that waits for a disk, or for its turn, is shown in parts in the end


class TimeBudget:
    """CPU time of the calling thread, so that a busy machine does not cut a picture into many, each of them drawn.

    With the training on every CPU, a budget by the clock tripled what the screen took.
    """

    def __init__(self, seconds: float) -> None:
        self._cpu = time.thread_time() + seconds
        self._clock = time.perf_counter() + WAIT * seconds

    @property
    def spent(self) -> bool:
        """Return whether what is not done yet is left to the next picture."""
        return time.thread_time() > self._cpu or time.perf_counter() > self._clock
