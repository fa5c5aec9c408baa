"""Loss and accuracy of a training, averaged to some points a second for the recorder; and the minimum accuracy.

The module does not use torch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from memtui.core.tracer_messages import LearningProgress

POINT_NS = 50_000_000  # losses of this duration are averaged to one point
SEND_NS = 500_000_000
_POINTS = 4096
_MOST = 1024  # points that wait to be sent


Point = tuple[int, int, int, float, float, float]
"""Time (CLOCK_MONOTONIC, ns), iteration, epoch, mean loss since the point before, accuracy, its minimum; nan: none."""


class Curve:
    """The learning curve of one training.

    Args:
        pid: the process.
        about: what it trains, see ``LearningProgress``.
        send: sends a message and returns whether it was accepted.
        on_point: receives each point, once.
    """

    def __init__(
        self,
        pid: int,
        about: str,
        send: Callable[[LearningProgress], bool],
        on_point: Callable[[Point], object] | None = None,
    ) -> None:
        self._pid, self._about, self._send, self._on_point = pid, about, send, on_point
        self._points: list[Point] = []
        self._losses: list[float] = []
        self._point_ns = self._sent_ns = 0
        self._start_ns = time.monotonic_ns()

    def add(self, iteration: int, epoch: int, loss: float) -> None:
        """Add the loss of an iteration; call it after every one."""
        self._losses.append(loss)
        now_ns = time.monotonic_ns()
        # A long training gets fewer points a second: a few thousand points show all that a screen can.
        if now_ns - self._point_ns >= max(POINT_NS, (now_ns - self._start_ns) // _POINTS):
            self._point(now_ns, iteration, epoch, math.nan, math.nan)
            if now_ns - self._sent_ns >= SEND_NS:
                self.flush()

    def add_accuracy(self, iteration: int, epoch: int, accuracy: float, minimum: float | None) -> None:
        """Add a measured accuracy, in percent; ``minimum``: the accuracy required from here on."""
        self._point(time.monotonic_ns(), iteration, epoch, accuracy, math.nan if minimum is None else minimum)
        self.flush()

    def _point(self, t_ns: int, iteration: int, epoch: int, accuracy: float, minimum: float) -> None:
        loss = sum(self._losses) / len(self._losses) if self._losses else math.nan
        point = t_ns, iteration, epoch, loss, accuracy, minimum
        self._points.append(point)
        self._losses, self._point_ns = [], t_ns
        if self._on_point is not None:
            self._on_point(point)

    def flush(self) -> None:
        """Send the waiting points."""
        if not self._points:
            return
        columns = list(zip(*self._points, strict=True))
        positions, values = np.array(columns[:3], np.int64), np.array(columns[3:], np.float64)
        if self._send(LearningProgress(self._pid, self._about, positions, values)):
            self._points = []
        self._points = self._points[-_MOST:]
        self._sent_ns = time.monotonic_ns()

    def end(self, iteration: int, epoch: int) -> None:
        """Send the waiting losses as a last point."""
        if self._losses:
            self._point(time.monotonic_ns(), iteration, epoch, math.nan, math.nan)
        self.flush()


Minimum = Sequence[tuple[int, float]]  # (epoch, percent): from the end of that epoch on


def minimum_at(minimum: Minimum, epoch: int) -> float | None:
    """Return the accuracy required at the end of an epoch, in percent; None: no accuracy is required."""
    return max((percent for since, percent in minimum if since <= epoch), default=None)


def shortfall(minimum: Minimum, epoch: int, accuracy: float) -> str | None:
    """Return why training stops after an epoch; None where training goes on."""
    for since, percent in minimum:
        if since <= epoch and accuracy < percent:
            count = f"{since} epoch{'s' * (since != 1)}"
            return f"expected {percent:g} after {count}, got {accuracy:.4g}"
    return None
