"""When training steps ended and what tensors held in them, gathered to some messages a second."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.step_trace import CATEGORIES
from memtui.analysis.tensor_usage import joined
from memtui.samples import TrainingProgress

SEND_NS = 500_000_000
Seen = tuple[NDArray[np.int64], tuple[str, ...]]  # stretches of a step, and the names of their operators


class ProgressLog:
    """Takes one step after another, the first of which began at ``start_ns``; ``send`` takes the messages."""

    def __init__(self, pid: int, first: int, start_ns: int, send: Callable[[TrainingProgress], None]) -> None:
        self._pid, self._send = pid, send
        self._first, self._start_ns = first, start_ns
        self._ends_ns: list[int] = []
        self._usage: list[NDArray[np.int64]] = []
        self._names: dict[str, int] = {}
        self._steps = self._seen = 0  # of all
        self._reason, self._cost_ns = "", 0

    def take(self, end_ns: int, seen: Seen | None, reason: str, cost_ns: int) -> None:
        """A step that ended: what was seen of it, or why nothing was; ``cost_ns``: of all that was seen so far."""
        self._ends_ns.append(end_ns)
        self._steps += 1
        self._reason, self._cost_ns = reason, cost_ns
        if seen is not None:
            self._seen += 1
            columns, names = seen
            columns[3] = [self._names.setdefault(names[op], len(self._names)) if op >= 0 else -1 for op in columns[3]]
            self._usage.append(columns)
        if end_ns - self._start_ns >= SEND_NS:
            self.flush()

    def flush(self) -> None:
        """Send what there is."""
        if not self._ends_ns:
            return
        usage = [np.empty((4 + len(CATEGORIES), 0), np.int64), *self._usage]
        self._send(
            TrainingProgress(
                self._pid,
                self._first,
                self._start_ns,
                np.array([self._ends_ns], np.int64),
                joined(np.concatenate(usage, axis=1)),
                tuple(self._names),
                self._view,
                self._reason,
                self._cost_ns,
            )
        )
        self._first, self._start_ns = self._first + len(self._ends_ns), self._ends_ns[-1]
        self._ends_ns, self._usage, self._names = [], [], {}

    @property
    def _view(self) -> str:
        if not self._seen or self._reason:
            return ""
        if self._seen == self._steps:
            return "all steps"
        share = self._seen / self._steps
        return f"{share:.0%} of the steps".replace("%", " %") if share > 0.5 else f"1 step in {round(1 / share)}"
