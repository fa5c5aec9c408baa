"""Misses a step by size of memory, from a recording: of the pages that a limit on memory can swap out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from memtui.analysis.reuse_distance import ReuseTracker
from memtui.analysis.reuse_histogram import ExactReuse
from memtui.analysis.vma_filter import SHARED_MEMORY
from memtui.analysis.window_merging import union
from memtui.core.page_set import PageSet
from memtui.session.vma_row import VmaRow
from memtui.study.recorded_run import Trace

_KERNELS = ("[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]")


@dataclass(frozen=True, slots=True, eq=False)
class MissCurve:
    """Reuse distances of training, and its number of steps; ``steps`` is 0 where it is unknown."""

    reuse: ExactReuse
    steps: float
    touches: int

    @classmethod
    def of(cls, trace: Trace, count: int = 1) -> MissCurve:
        """Return the curve in windows of ``count`` times the length; accesses before training are its past."""
        tracker, exact = ReuseTracker(), ExactReuse()
        windows = trace.chosen(swappable, range(len(trace.samples)))
        inside = np.flatnonzero(trace.training)
        covered_ns = 0
        first = int(inside[0]) if len(inside) else 0
        for start in range(first % count, len(windows) - count + 1, count):
            page_sets = [pages for pages in windows[start : start + count] if pages is not None]
            if len(page_sets) < count:
                continue
            sample = tracker.touch(union(page_sets))
            if trace.training[start : start + count].all():
                exact.add(sample)
                # From the end of the window before: accesses between two windows are seen in the second one.
                since = trace.samples.end_ns[start - 1] if start else trace.samples.start_ns[start]
                covered_ns += int(trace.samples.end_ns[start + count - 1] - since)
        rate = trace.result.steps_per_s if trace.by_steps else None
        return cls(exact, (rate or 0.0) * covered_ns / 1e9, exact.touches)

    def misses(self, room_bytes: Any) -> tuple[Any, Any]:
        """Return (least, most) misses a step in LRU memories of these sizes; nan where they are unknown."""
        rooms = np.asarray(room_bytes, float)
        rates = []
        for bound in ("lower", "upper"):
            distances, counts = self.reuse.entries(bound)
            above = np.concatenate((np.cumsum(counts[::-1])[::-1], [0]))
            missed = above[np.searchsorted(distances, rooms, side="right")]
            rates.append(missed / self.steps if self.steps else np.full(rooms.shape, np.nan))
        return rates[0], rates[1]

    @property
    def largest_bytes(self) -> float:
        distances, _ = self.reuse.entries("upper")
        return float(distances[-1]) if len(distances) else 0.0


def swappable(row: VmaRow) -> bool:
    """Return whether pages of a range can be swapped out: anonymous memory, written private data, shared memory."""
    if not row.name.startswith("/"):
        return row.name not in _KERNELS
    return row.name.startswith(SHARED_MEMORY) or (row.perms[1:2] == "w" and row.perms[3:4] == "p")


def working_set(trace: Trace) -> PageSet:
    """Return all such pages that were accessed in training."""
    windows = trace.chosen(swappable, np.flatnonzero(trace.training).tolist())
    return union(pages for pages in windows if pages is not None)
