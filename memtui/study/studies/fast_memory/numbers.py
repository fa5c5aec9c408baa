"""What ``fast-memory`` measures, as its JSON has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from memtui.analysis.statistics import MedianInterval

Bounds = tuple[float, float]


@dataclass(frozen=True, slots=True)
class LimitPoint:
    """Predicted and counted at one limit; medians over the runs, None where it is not known.

    Attributes:
        share: of the working set that the limit leaves; 0: no limit.
        runs: that have enough steps under the limit.
        limit_bytes: of memory.
        room_bytes: what the limit leaves for anonymous and shared pages.
        steps: that are counted, in all runs.
        major_faults: a step, as the following ones: as the cgroup counts them.
        swapped_in: pages that came from swap.
        process_major_faults: as the process counts them.
        minor_faults: all other page faults.
        step_s: how long a step took.
        predicted: (low, high) misses a step, by the curve.
        predicted_merged: the same by the curve of merged windows.
        faults_factor: major faults by the nearer bound; 1 between the bounds.
        pages_factor: the same of pages from swap.
        exact_lru: misses a step of an exact LRU memory, where the order of accesses is known.
        exact_factor: the same of these.
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
    """What was measured of one program.

    Attributes:
        working_set_bytes: of pages that can go to swap.
        steps_per_window: in the recording.
        touches_per_step: likewise.
        known_order: whether the order of its accesses is known.
        points: without a limit, then from the highest limit to the lowest.
    """

    working_set_bytes: int
    steps_per_window: float | None
    touches_per_step: float | None
    known_order: bool
    points: Sequence[LimitPoint]


@dataclass(frozen=True, slots=True)
class FastMemoryNumbers:
    """What the study measured.

    Attributes:
        interval_s: length of a window of the recordings.
        merged_interval_s: of merged windows.
        programs: by name.
        cgroup_version: versions of the memory cgroups.
        swap: what the swap was.
        page_cluster: readahead: 2 to this power pages at once; None where it is not known.
    """

    interval_s: float
    merged_interval_s: float
    programs: Mapping[str, ProgramNumbers]
    cgroup_version: Sequence[int] = ()
    swap: Sequence[str] = ()
    page_cluster: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
