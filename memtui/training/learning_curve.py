"""Loss and accuracy of a training: gathered to some points a second for the recorder, and the accuracy to stop at.

It knows no torch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from memtui.core.samples import LearningProgress

POINT_NS = 50_000_000  # losses of so long are one point
SEND_NS = 500_000_000
_POINTS = 4096
_MOST = 1024  # points that wait for somebody to take them


class Curve:
    """``tell`` takes a message and says whether it did."""

    def __init__(self, pid: int, about: str, tell: Callable[[LearningProgress], bool]) -> None:
        self._pid, self._about, self._tell = pid, about, tell
        self._points: list[tuple[int, int, int, float, float, float]] = []
        self._losses: list[float] = []
        self._point_ns = self._sent_ns = 0
        self._begin_ns = time.monotonic_ns()

    def take(self, iteration: int, epoch: int, loss: float) -> None:
        """Take the loss after every iteration."""
        self._losses.append(loss)
        now_ns = time.monotonic_ns()
        # Of a long training fewer: a few thousand points show all that a screen can.
        if now_ns - self._point_ns >= max(POINT_NS, (now_ns - self._begin_ns) // _POINTS):
            self._point(now_ns, iteration, epoch, math.nan, math.nan)
            if now_ns - self._sent_ns >= SEND_NS:
                self.flush()

    def measured(self, iteration: int, epoch: int, accuracy: float, minimum: float | None) -> None:
        """Take the accuracy as it was, in percent; ``minimum`` is what is wanted from here on."""
        self._point(time.monotonic_ns(), iteration, epoch, accuracy, math.nan if minimum is None else minimum)
        self.flush()

    def _point(self, t_ns: int, iteration: int, epoch: int, accuracy: float, minimum: float) -> None:
        loss = sum(self._losses) / len(self._losses) if self._losses else math.nan
        self._points.append((t_ns, iteration, epoch, loss, accuracy, minimum))
        self._losses, self._point_ns = [], t_ns

    def flush(self) -> None:
        """Send what there is."""
        if not self._points:
            return
        columns = list(zip(*self._points, strict=True))
        places, values = np.array(columns[:3], np.int64), np.array(columns[3:], np.float64)
        if self._tell(LearningProgress(self._pid, self._about, places, values)):
            self._points = []
        self._points = self._points[-_MOST:]
        self._sent_ns = time.monotonic_ns()

    def end(self, iteration: int, epoch: int) -> None:
        """Send the losses that wait, and the end."""
        if self._losses:
            self._point(time.monotonic_ns(), iteration, epoch, math.nan, math.nan)
        self.flush()


Minimum = Sequence[tuple[int, float]]  # (epoch, percent): from the end of that epoch on


def minimum_at(minimum: Minimum, epoch: int) -> float | None:
    """Return the most that is asked for at the end of an epoch, in percent; None: nothing."""
    return max((percent for since, percent in minimum if since <= epoch), default=None)


def shortfall(minimum: Minimum, epoch: int, accuracy: float) -> str | None:
    """Return why training stops after an epoch; None where it goes on."""
    for since, percent in minimum:
        if since <= epoch and accuracy < percent:
            many = f"{since} epoch{'s' * (since != 1)}"
            return f"expected {percent:g} after {many}, got {accuracy:.4g}"
    return None
