"""What one window costs a program, from the steps that it makes before, during and after it.

Blocks with and without memtui are as unlike as the machine is from minute to minute. A window is compared with what
comes directly before and after it, and there are many windows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO

import numpy as np
from numpy.typing import NDArray

MARGIN_S = 0.15  # before the end of a window: no step that began there reaches into it


@dataclass(slots=True)
class Steps:
    """When a program said that it made a step (``time.monotonic``)."""

    times_s: list[float] = field(default_factory=list)

    @property
    def timeline_s(self) -> NDArray[np.float64]:
        """All steps that were made until now."""
        return np.array(self.times_s)


@contextmanager
def listening(output: IO[bytes]) -> Iterator[Steps]:
    """Note when each line comes. The output has to end before the context does."""
    steps = Steps()

    def listen() -> None:
        for _ in output:
            steps.times_s.append(time.monotonic())

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield steps
    finally:
        thread.join(5)


def costs_s(steps_s: NDArray[np.float64], ends_s: NDArray[np.float64], after_s: float, beside_s: float) -> list[float]:
    """Return how much time the steps around the end of each window took beyond what they would have taken.

    Args:
        steps_s: f8[n], when each step was made.
        ends_s: when windows ended: a program is held there, and touches cleared pages afterwards.
        after_s: for how long after that it may be slower.
        beside_s: how much of what comes before and after that says how fast it is. Both count alike: a drift cancels.

    Windows whose surroundings reach into another one, or out of the steps, are left out.
    """
    made = np.arange(len(steps_s), dtype=np.float64)
    found = []
    for place, end_s in enumerate(ends_s):
        begin_s, until_s = end_s - MARGIN_S, end_s + after_s
        first_s, last_s = begin_s - beside_s, until_s + beside_s
        before_s = ends_s[place - 1] + after_s if place else steps_s[0]
        next_s = ends_s[place + 1] - MARGIN_S if place + 1 < len(ends_s) else steps_s[-1]
        if first_s < max(before_s, steps_s[0]) or last_s > min(next_s, steps_s[-1]):
            continue
        at = np.interp([first_s, begin_s, until_s, last_s], steps_s, made)
        a_second = (at[1] - at[0] + at[3] - at[2]) / (2 * beside_s)
        if a_second > 0:
            found.append(float(until_s - begin_s - (at[2] - at[1]) / a_second))
    return found
