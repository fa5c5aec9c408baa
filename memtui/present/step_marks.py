"""Ticks for all training steps in sight, where there are so few that they can be told apart."""

from __future__ import annotations

from typing import Any

from memtui.present.kept import Kept
from memtui.views import Mark, TimeAxis

KIND = "each step"
MOST = 48  # in sight: more would be a hatching
_KEPT = 256  # messages


class StepMarks:
    """Ends of steps, decoded once."""

    def __init__(self) -> None:
        self._ends: Kept[int, list[int]] = Kept(_KEPT)  # by row

    def between(self, reader: Any, axis: TimeAxis) -> tuple[Mark, ...]:
        """Those on an axis; none where they are too many."""
        rows = reader.training(axis.start_ns, axis.end_ns)
        if sum(row.steps for row in rows) > MOST + 2 * max((row.steps for row in rows), default=0):
            return ()
        ends = [end_ns for row in rows for end_ns in self._of(reader, row) if axis.start_ns <= end_ns <= axis.end_ns]
        return tuple(Mark(end_ns, KIND) for end_ns in ends) if len(ends) <= MOST else ()

    def _of(self, reader: Any, row: Any) -> list[int]:
        if row.id not in self._ends:
            self._ends.put(row.id, reader.training_progress(row).ends_ns.tolist())
        return self._ends[row.id]
