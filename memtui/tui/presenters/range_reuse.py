"""Reuse distances of the accesses in one range, from the stored page sets: a session stores them by process only."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from memtui.analysis.reuse_distance import ReuseTracker
from memtui.analysis.reuse_histogram import ReuseHistogram
from memtui.core.units import clock
from memtui.session.session import Session
from memtui.session.vma_row import VmaRow
from memtui.tui.presenters.range_names import short_label
from memtui.tui.presenters.reuse import Intervals, reuse_view
from memtui.tui.presenters.time_budget import TimeBudget
from memtui.widgets.views.memory import ReuseView

LAST_SAMPLES = 1024  # read before the cursor: a decoded page set costs a millisecond or more
KEEP_SAMPLES = 4096  # by which the cursor can go back without reading again


class RangeReuse:
    """Adds up window after window, within the time budget of a picture.

    All pages of the process count for a distance, as in the stored distances; only accesses of the range are counted.
    Where the session is longer than the windows that are read, the view names their start: the distances are then
    those of a session that starts at that moment.
    """

    def __init__(self) -> None:
        self._key = -1
        self._intervals = Intervals()
        self._read_from = self._oldest = 0  # the sum can be taken back to the oldest
        self._restart(0)

    def _restart(self, sample: int) -> None:
        self._first = self._next = sample
        self._tracker = ReuseTracker()
        self._sum = ReuseHistogram()  # from the first sample to the one before the next
        self._windows: deque[tuple[int, ReuseHistogram]] = deque(maxlen=KEEP_SAMPLES)

    def forget(self) -> None:
        """Add up again: there are more windows between those that were added."""
        self._key = -1

    def view(
        self, reader: Session, row: VmaRow, sample: int, budget: TimeBudget, name: str = ""
    ) -> tuple[ReuseView, bool]:
        """Return the distances of a range (a ``VmaRow``) of some name up to a sample, and whether they are complete."""
        wanted = max(row.first_sample, sample - LAST_SAMPLES + 1)
        too_few = wanted < self._read_from and sample < self._read_from + LAST_SAMPLES // 2
        if row.id != self._key or too_few or sample < self._oldest or sample >= self._next + LAST_SAMPLES:
            self._restart(wanted)
            self._key, self._read_from, self._oldest = row.id, wanted, wanted
        while self._next <= sample and not budget.spent:
            self._add(reader, row)
        complete = self._next > sample
        histogram = self._until(sample)
        whose = f"of {name or short_label(row)}"
        if self._first > row.first_sample:
            whose += f" since {clock(_seconds(reader, self._first))}"
        if not complete:
            whose += ", still adding up"
        view = reuse_view(histogram, *self._intervals.until(reader, sample))
        if complete and sample < self._first:
            view = ReuseView(note="no distances of one range: page sets up to here were downsampled")
        return replace(view, whose=whose), complete

    def _add(self, reader: Session, row: VmaRow) -> None:
        sample = self._next
        self._next += 1
        pages = reader.pages.page_set(sample, row.process)
        if pages is None:
            if _was_downsampled(reader, row, sample):
                self._restart(sample + 1)  # distances across a hole would be too short
            return
        if not row.first_sample <= sample or not (row.open or sample <= row.last_sample):
            self._tracker.touch(pages)
            return
        distances = self._tracker.touch(pages, (row.start, row.end))
        if distances.touches:
            window = ReuseHistogram()
            window.add(distances)
            self._sum += window
            if len(self._windows) == KEEP_SAMPLES:
                self._oldest = self._windows[0][0]
            self._windows.append((sample, window))

    def _until(self, sample: int) -> ReuseHistogram:
        """Return the sum of the windows up to a sample."""
        later = ReuseHistogram()
        for number, window in reversed(self._windows):
            if number <= sample:
                break
            later += window
        return self._sum - later


def _was_downsampled(reader: Session, row: VmaRow, sample: int) -> bool:
    """Return whether a missing page set was removed by downsampling: its distances are stored."""
    return reader.downsampled_to_bytes is not None and any(
        process == row.process for _, process, _ in reader.reuse.between(sample, sample)
    )


def _seconds(reader: Session, sample: int) -> float:
    """Return the start of a window in seconds from the start of the session."""
    samples = reader.samples
    index = min(int(samples.sample.searchsorted(sample)), len(samples.sample) - 1)
    return float(samples.start_ns[index] - samples.start_ns[0]) / 1e9
