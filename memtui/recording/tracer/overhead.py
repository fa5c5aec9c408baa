"""What watching costs a training: the length of watched steps against that of others; and what that allows."""

from __future__ import annotations

from collections import deque
from statistics import median

SHARE = 0.1  # of the time may go into watching: where a step costs more, only some steps are watched
CHEAP = 0.01  # of a step: a cost below that is ignored
ALWAYS = 16  # steps that are recorded whatever they cost; further ones keep to their share
LEAST = 5  # steps of both sorts, before their difference is used
_EACH = 16  # of this many steps one is not watched, to compare the others with
_STEPS_COMPARED = 31
_PESSIMISM = 3  # an operator in a tight loop costs less than one in a step


class Expense:
    """Takes the length of every step, and decides whether the next one may be watched."""

    def __init__(self) -> None:
        self._watched: deque[int] = deque(maxlen=_STEPS_COMPARED)
        self._others: deque[int] = deque(maxlen=_STEPS_COMPARED)
        self._steps = self._elapsed_ns = 0
        self._cheap = False
        self._recorded = self._recorded_ns = 0
        self.cost_ns = 0
        """Cost of all steps that were watched so far."""

    def add_step(self, step_ns: int, watched: bool, least_ns: int) -> None:
        """Count a step that ended.

        Args:
            step_ns: how long it took.
            watched: whether it was watched.
            least_ns: what watching it took at least: operators in a tight loop, and the tracer's own work.
        """
        self._steps += 1
        self._elapsed_ns += step_ns
        (self._watched if watched else self._others).append(step_ns)
        if watched:
            self._cheap = _PESSIMISM * least_ns <= CHEAP * step_ns
            self.cost_ns += self._step_cost_ns(least_ns)

    def add_recorded_step(self, step_ns: int, more_ns: int) -> None:
        """Count a step that was recorded whole, and the work before and after it."""
        usual_ns = median(self._others) if self._others else step_ns
        self._recorded += 1
        self._elapsed_ns += step_ns + more_ns
        self._recorded_ns += max(0, round(step_ns - usual_ns)) + more_ns

    @property
    def recording_affordable(self) -> bool:
        """Whether the next step may be recorded whole."""
        return self._recorded < ALWAYS or self._recorded_ns <= SHARE * self._elapsed_ns

    def _step_cost_ns(self, least_ns: int) -> int:
        if min(len(self._watched), len(self._others)) < LEAST:
            return least_ns if self._cheap else _PESSIMISM * least_ns
        return max(least_ns, round(median(self._watched) - median(self._others)))

    @property
    def affordable(self) -> bool:
        """Whether the next step may be watched."""
        if self._cheap:
            return True
        if len(self._others) < LEAST:
            return self._steps % 2 == 0
        return self._steps % _EACH != 0 and self.cost_ns <= SHARE * self._elapsed_ns
