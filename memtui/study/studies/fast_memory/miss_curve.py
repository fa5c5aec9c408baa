"""Misses by size of memory, a step, from a recording: of the pages that a limit on memory can send to swap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from memtui.analysis.reuse_distance import ReuseTracker
from memtui.analysis.reuse_histogram import ExactReuse
from memtui.analysis.window_merging import union
from memtui.core.page_set import PageSet
from memtui.session.vma_row import VmaRow
from memtui.study.recorded_run import Trace

SHARED_MEMORY = ("/dev/zero", "/memfd:", "/dev/shm/", "/SYSV")
_KERNELS = ("[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]")


@dataclass(frozen=True, slots=True, eq=False)
class MissCurve:
    """Reuse in training, and how many steps that was; ``steps`` is 0 where it is not known."""

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
        for begin in range(first % count, len(windows) - count + 1, count):
            known = [pages for pages in windows[begin : begin + count] if pages is not None]
            if len(known) < count:
                continue
            sample = tracker.touch(union(known))
            if trace.training[begin : begin + count].all():
                exact.add(sample)
                # From the end of the window before: what was done between two windows is seen in the second one.
                since = trace.samples.end_ns[begin - 1] if begin else trace.samples.start_ns[begin]
                covered_ns += int(trace.samples.end_ns[begin + count - 1] - since)
        rate = trace.result.steps_per_s if trace.by_steps else None
        return cls(exact, (rate or 0.0) * covered_ns / 1e9, exact.touches)

    def misses(self, room_bytes: Any) -> tuple[Any, Any]:
        """Return (at least, at most) a step in LRU memories of these sizes; nan where nothing is known."""
        rooms = np.asarray(room_bytes, float)
        found = []
        for bound in ("lower", "upper"):
            distances, counts = self.reuse.entries(bound)
            above = np.concatenate((np.cumsum(counts[::-1])[::-1], [0]))
            missed = above[np.searchsorted(distances, rooms, side="right")]
            found.append(missed / self.steps if self.steps else np.full(rooms.shape, np.nan))
        return found[0], found[1]

    @property
    def largest_bytes(self) -> float:
        distances, _ = self.reuse.entries("upper")
        return float(distances[-1]) if len(distances) else 0.0


def swappable(row: VmaRow) -> bool:
    """Return whether pages of a range can go to swap: anonymous memory, written private data, shared memory."""
    if not row.name.startswith("/"):
        return row.name not in _KERNELS
    return row.name.startswith(SHARED_MEMORY) or (row.perms[1:2] == "w" and row.perms[3:4] == "p")


def working_set(trace: Trace) -> PageSet:
    """All such pages that were touched in training."""
    windows = trace.chosen(swappable, np.flatnonzero(trace.training).tolist())
    return union(pages for pages in windows if pages is not None)
