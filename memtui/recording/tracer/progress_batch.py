"""Ends of training steps and the tensor memory in them, batched to a few messages a second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.tensor_usage import joined
from memtui.core.tracer_messages import MAIN_MEMORY, TrainingProgress

SEND_NS = 500_000_000
Seen = tuple[NDArray[np.int64], tuple[str, ...]]  # stretches of a step, and the names of their operators


@dataclass(slots=True)
class _Usage:
    """Tensor memory on one device."""

    columns: list[NDArray[np.int64]] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)

    def add(self, seen: Seen) -> None:
        columns, names = seen
        columns[3] = [self.names.setdefault(names[op], len(self.names)) if op >= 0 else -1 for op in columns[3]]
        self.columns.append(columns)

    def joined(self) -> NDArray[np.int64]:
        return joined(np.concatenate([np.empty((4 + len(CATEGORIES), 0), np.int64), *self.columns], axis=1))


class ProgressLog:
    """Takes one step after another, the first of which began at ``start_ns``; ``send`` takes the messages."""

    def __init__(self, pid: int, first: int, start_ns: int, send: Callable[[TrainingProgress], None]) -> None:
        self._pid, self._send = pid, send
        self._first, self._start_ns = first, start_ns
        self._ends_ns: list[int] = []
        self._usage = {MAIN_MEMORY: _Usage()}
        self._steps = self._seen = 0  # of all
        self._reason, self._cost_ns = "", 0

    def add_step(self, end_ns: int, seen: Mapping[str, Seen] | None, reason: str, cost_ns: int) -> None:
        """Add a step that ended.

        Args:
            end_ns: when it ended.
            seen: what was seen of it, by device; None: nothing.
            reason: why nothing was seen.
            cost_ns: of all that was seen so far.
        """
        self._ends_ns.append(end_ns)
        self._steps += 1
        self._reason, self._cost_ns = reason, cost_ns
        if seen is not None:
            self._seen += 1
            for device, device_seen in seen.items():
                self._usage.setdefault(device, _Usage()).add(device_seen)
        if end_ns - self._start_ns >= SEND_NS:
            self.flush()

    def flush(self) -> None:
        """Send the steps that were added since the last message."""
        if not self._ends_ns:
            return
        main = self._usage[MAIN_MEMORY]
        message = TrainingProgress(
            self._pid,
            self._first,
            self._start_ns,
            np.array([self._ends_ns], np.int64),
            main.joined(),
            tuple(main.names),
            self._view,
            self._reason,
            self._cost_ns,
        )
        self._send(message)
        for device, usage in self._usage.items():
            if device != MAIN_MEMORY:
                self._send(replace(message, usage=usage.joined(), names=tuple(usage.names), device=device))
        self._first, self._start_ns = self._first + len(self._ends_ns), self._ends_ns[-1]
        self._ends_ns, self._usage = [], {MAIN_MEMORY: _Usage()}

    @property
    def _view(self) -> str:
        if not self._seen or self._reason:
            return ""
        if self._seen == self._steps:
            return "all steps"
        share = self._seen / self._steps
        return f"{share:.0%} of the steps".replace("%", " %") if share > 0.5 else f"1 step in {round(1 / share)}"
