"""How often a controller has a new value, from the moments at which another one was read."""

from __future__ import annotations

from collections import deque
from statistics import median

LEAST, MOST = 4, 32  # times between changes that are needed, and that are kept


class Cadence:
    """Takes readings, and estimates the seconds between new values.

    A machine at a steady power keeps a value for longer than its controller does, so the estimate is an upper one.
    """

    def __init__(self) -> None:
        self._value: float | None = None
        self._changed_s: float | None = None
        self._gaps: deque[float] = deque(maxlen=MOST)

    def add(self, t_s: float, value: float | None) -> None:
        """Take a reading; None: there was none, and what changed meanwhile is not known."""
        if value is None:
            self._value = self._changed_s = None
            return
        if self._value is not None and value != self._value:
            if self._changed_s is not None:
                self._gaps.append(t_s - self._changed_s)
            self._changed_s = t_s
        self._value = value

    @property
    def seconds(self) -> float | None:
        """The median time between changes; None: not enough of them yet."""
        return median(self._gaps) if len(self._gaps) >= LEAST else None
