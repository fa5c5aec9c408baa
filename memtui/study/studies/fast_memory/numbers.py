"""The numbers of ``fast-memory``, as in its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memtui.analysis.statistics import MedianInterval

Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True)
class LimitPoint:
    """Predicted and counted misses at one limit; medians over the runs, None where they are unknown.

    Attributes:
        share: the limit as a share of the working set; 0: no limit.
        runs: number of runs with enough steps under the limit.
        limit_bytes: the limit on memory.
        room_bytes: part of the limit for anonymous and shared pages.
        steps: number of counted steps, in all runs.
        major_faults: major faults a step, by the counter of the cgroup.
        swapped_in: pages a step that came from swap.
        process_major_faults: major faults a step, by the counter of the process.
        minor_faults: all other page faults a step.
        step_s: duration of a step.
        predicted: (low, high) misses a step, by the curve.
        predicted_merged: the same by the curve of merged windows.
        faults_factor: major faults over the nearer bound; 1 between the bounds.
        pages_factor: pages from swap over the nearer bound.
        exact_lru: misses a step of an exact LRU memory, where the order of accesses is known.
        exact_factor: misses of the exact LRU memory over the nearer bound.
    """

    share: float
    runs: int
    limit_bytes: float | None
    room_bytes: float | None
    steps: float
    major_faults: MedianInterval | None
    swapped_in: MedianInterval | None
    process_major_faults: MedianInterval | None
    minor_faults: MedianInterval | None
    step_s: MedianInterval | None
    predicted: Bounds | None = None
    predicted_merged: Bounds | None = None
    faults_factor: MedianInterval | None = None
    pages_factor: MedianInterval | None = None
    exact_lru: MedianInterval | None = None
    exact_factor: MedianInterval | None = None

    @property
    def counted(self) -> Bounds | None:
        """(low, high) misses a step that were counted: from major faults to pages from swap."""
        if self.major_faults is None:
            return None
        faults = self.major_faults.median
        return faults, faults if self.swapped_in is None else max(self.swapped_in.median, faults)


@dataclass(frozen=True, slots=True)
class ProgramNumbers:
    """The numbers of one program.

    Attributes:
        working_set_bytes: working set of pages that can be swapped out.
        steps_per_window: steps a window in the recording.
        touches_per_step: accesses a step in the recording.
        known_order: whether the order of its accesses is known.
        points: points without a limit, then from the highest limit to the lowest.
    """

    working_set_bytes: int
    steps_per_window: float | None
    touches_per_step: float | None
    known_order: bool
    points: Sequence[LimitPoint]


@dataclass(frozen=True, slots=True)
class FastMemoryNumbers:
    """The numbers of the study.

    Attributes:
        interval_s: length of a window of the recordings.
        merged_interval_s: length of a merged window.
        programs: numbers of the programs, by name.
        cgroup_version: versions of the memory cgroups.
        swap: descriptions of the swap.
        page_cluster: swap readahead: 2 to this power pages at once; None where it is unknown.
    """

    interval_s: float
    merged_interval_s: float
    programs: Mapping[str, ProgramNumbers]
    cgroup_version: Sequence[int] = ()
    swap: Sequence[str] = ()
    page_cluster: int | None = None
