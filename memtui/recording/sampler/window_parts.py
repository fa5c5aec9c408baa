"""The parts of a window that is cut (``burst_schedule.py``), and the window that they make together.

The pages of a window are those of any of its parts, so a cut leaves no trace in a sample but for its cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from memtui.analysis.window_merging import union
from memtui.core.page_set import PageSet
from memtui.core.samples import Status
from memtui.probes.pages.shared_frames import Numbers, TouchedFrames
from memtui.probes.pages.tracker import PageWindow
from memtui.probes.window_reader import Outcome, Reading
from memtui.recording.sampler.burst_schedule import PROBE_NS

PROBE_LENGTHS_NS = PROBE_NS // 2, 3 * PROBE_NS  # of a last part that is a probe


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a window of one process."""

    reading: Reading
    frames: TouchedFrames | None


class Whole(NamedTuple):
    """A window with its parts.

    Attributes:
        outcome: of the window as a whole.
        accessed: the pages of each part, in order of time; empty where it was not cut.
        lengths_ns: of all parts but the first; empty where they are not those of a burst.
    """

    outcome: Outcome
    accessed: tuple[PageSet, ...] = ()
    lengths_ns: tuple[int, ...] = ()


class WindowParts:
    """The parts so far of the windows in progress, by process."""

    def __init__(self) -> None:
        self._parts: dict[int, list[Part]] = {}
        self._lost: dict[int, list[int]] = {}  # pauses in vain, in ns, of processes that a cut missed

    def add(self, pid: int, outcome: Outcome) -> None:
        """Add a part; call it before the next round of the reader."""
        if isinstance(outcome, Reading):
            frames = outcome.window.frames() if outcome.window.frames is not None else None
            self._parts.setdefault(pid, []).append(Part(outcome, frames))
        else:  # its accessed bits stand as they were: the next part has all of this one
            self._lost.setdefault(pid, []).append(outcome.paused_ns)

    def forget_others(self, pids: Sequence[int]) -> None:
        """Release the parts of processes that ended."""
        self._parts = {pid: parts for pid, parts in self._parts.items() if pid in pids}
        self._lost = {pid: lost for pid, lost in self._lost.items() if pid in pids}

    def complete(self, pid: int, outcome: Outcome) -> Whole:
        """Return the whole window whose last part is ``outcome``. Where that was lost, the parts wait for the next."""
        if not isinstance(outcome, Reading) or not (pid in self._parts or pid in self._lost):
            return Whole(outcome)
        cut, lost = self._parts.pop(pid, []), self._lost.pop(pid, [])
        pauses_ns = [*(part.reading.paused_ns for part in cut), *lost, outcome.paused_ns]
        outcome = replace(outcome, paused_ns=sum(pauses_ns), longest_pause_ns=max(pauses_ns))
        parts = [part for part in cut if part.reading.window.generation == outcome.window.generation]
        if not parts:
            return Whole(outcome)
        readings = [*(part.reading for part in parts), outcome]
        accessed = tuple(r.window.pages for r in readings if r.window.pages is not None)
        exact = all(r.window.status == Status.OK and not r.running for r in readings)
        lengths_ns = tuple(part.end_ns - before.resumed_ns for before, part in pairwise(readings))
        shortest_ns, longest_ns = PROBE_LENGTHS_NS
        is_probe = shortest_ns <= lengths_ns[-1] <= longest_ns
        is_burst = exact and not lost and len(accessed) == len(readings) > 2 and is_probe
        return Whole(_joined(parts, outcome), accessed, lengths_ns if is_burst else ())


def _joined(parts: Sequence[Part], last: Reading) -> Reading:
    """Return the reading of the whole window. ``last`` has its pauses already."""
    readings = [*(part.reading for part in parts), last]
    windows = [reading.window for reading in readings]
    worst = next((w for w in reversed(windows) if w.status != Status.OK), last.window)
    complete = all(window.pages is not None for window in windows)
    window = replace(
        last.window,
        pages=union(w.pages for w in windows if w.pages is not None) if complete else None,
        walk_ns=_sum([w.walk_ns for w in windows]),
        rearm_ns=_sum([w.rearm_ns for w in windows]),
        clear_gap_ns=_sum([r.window.clear_gap_ns for r in readings if r.running]),
        unknown_bytes=windows[0].unknown_bytes,  # what is not known of a later part is in one before it
        status=worst.status,
        reason=worst.reason,
        frames=_joined_frames(parts, last.window),
    )
    running = next((part.reading.running for part in parts if part.reading.running), last.running)
    return replace(last, window=window, running=running)


def _joined_frames(parts: Sequence[Part], last: PageWindow) -> Callable[[], TouchedFrames] | None:
    frames, last_frames = [part.frames for part in parts], last.frames
    earlier = [touched for touched in frames if touched is not None]
    if last_frames is None or len(earlier) < len(frames):
        return None

    def joined() -> TouchedFrames:
        every = [*earlier, last_frames()]
        pages = _newest([(t.pages, t.frames) for t in every])
        return TouchedFrames(*pages, *_newest([(t.huge, t.huge_frames) for t in every]))

    return joined


def _newest(pairs: Sequence[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    """Return each page once, with the frame that was behind it last."""
    pages = np.concatenate([pages for pages, _ in reversed(pairs)])
    frames = np.concatenate([frames for _, frames in reversed(pairs)])
    numbers, first = np.unique(pages, return_index=True)
    return numbers, frames[first]


def _sum(values: Sequence[int | None]) -> int | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if len(numbers) == len(values) else None
