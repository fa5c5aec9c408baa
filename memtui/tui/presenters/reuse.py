"""Reuse distances from the start of a session to the cursor, and the miss-ratio curve they imply."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from memtui.analysis.growing_median import GrowingMedian
from memtui.analysis.miss_ratio import MissRatioCurve
from memtui.analysis.reuse_burst import BurstReuse
from memtui.analysis.reuse_histogram import BIN_EDGES, BINS_PER_OCTAVE, ReuseHistogram
from memtui.core.fast_numpy import intervals_s
from memtui.core.fault_latency import FaultLatency
from memtui.core.units import duration_ns
from memtui.session.session import Session
from memtui.tui.presenters.all_windows import MORE, parts_until
from memtui.tui.presenters.time_budget import TimeBudget
from memtui.widgets.views.memory import ReuseView

if TYPE_CHECKING:
    from memtui.session.sample_arrays import SampleArrays

FEW_SAMPLES = 32  # up to this number adding samples is cheaper than starting at a checkpoint
BATCH_WINDOWS = 64  # windows of one process added between two checks of the time budget
BATCH_BURSTS = 64  # bursts (of a process each) added between two checks of the time budget
BACK_SAMPLES = 256  # by which the cursor can go back before all bursts are read again
# A bin ends at its edge; the first bin gets a lower edge here.
_EDGES = np.concatenate(([BIN_EDGES[0] * BIN_EDGES[0] / BIN_EDGES[1]], BIN_EDGES.astype(float)))
LATE = 1.25  # times the requested interval: beyond that the true length of windows is shown
LEVEL = 0.02  # of the whole drop of the miss ratio: less counts as level


class ReuseLog:
    """Adds up the stored distances of all windows: of the tree, or of one process (the keys of its generations)."""

    def __init__(
        self, keys: frozenset[int] | None = None, whose: str = "", fault_latency: FaultLatency | None = None
    ) -> None:
        self._keys, self._whose = keys, whose
        self._histogram, self._view, self._until = ReuseHistogram(), ReuseView(), -1
        self._intervals = Intervals()
        self._bursts = Bursts(keys)
        self._fault_latency = fault_latency

    def forget(self) -> None:
        """Add up again: there are more windows between those that were added."""
        self._histogram, self._until, self._intervals = ReuseHistogram(), -1, Intervals()
        self._bursts = Bursts(self._keys)

    def view(self, reader: Session, sample: int, budget: TimeBudget) -> tuple[ReuseView, bool]:
        """Return the distances up to a sample, and whether all of them are in it."""
        if sample < 0:
            return ReuseView(), True
        if self._until != sample:
            if self._keys is not None:
                self._add_process(reader, sample, self._keys, budget)
            elif 0 <= self._until < sample <= self._until + FEW_SAMPLES:
                if new := reader.reuse.between(self._until + 1, sample):
                    self._histogram.add(*(reuse for _, _, reuse in new))
                self._until = sample
            else:
                self._histogram, self._until = reader.reuse.until(sample), sample
            self._view = reuse_view(self._histogram, *self._intervals.until(reader, sample))
            if self._keys is None:  # a process may have lived for a part of the time only
                seconds = self._intervals.total_ns / 1e9
                self._view = replace(self._view, seconds=seconds, fault_latency=self._fault_latency)
        complete = self._until == sample
        if not complete:
            return replace(self._view, whose=f"{self._whose}, still adding up"), False
        view = replace(self._view, whose=self._whose)
        # Without their line until they are added up: the distances of all windows are there before.
        return (self._bursts.added_to(view), True) if self._bursts.read(reader, sample, budget) else (view, False)

    def _add_process(self, reader: Session, sample: int, keys: frozenset[int], budget: TimeBudget) -> None:
        """Add window after window within the budget: the checkpoints of a session hold all processes together."""
        if sample < self._until:
            self._histogram, self._until = ReuseHistogram(), -1
        while self._until < sample:
            last = min(sample, self._until + BATCH_WINDOWS)
            for _, process, reuse in reader.reuse.between(self._until + 1, last):
                if process in keys:
                    self._histogram.add(reuse)
            self._until = last
            if budget.spent:
                return


class Bursts:
    """Adds up the bursts of all windows up to one, of all processes or some. A growing session reads its new ones."""

    def __init__(self, keys: frozenset[int] | None) -> None:
        self._keys = keys
        self._reuse, self._until = BurstReuse(), -1
        self._earlier, self._earlier_until = BurstReuse(), -1  # where a step back starts
        self._line: tuple[tuple[int, int, float | None] | None, str] = None, ""
        self._line_count = 0  # of the bursts that it is of: the first ones of the session, so the count tells which

    def added_to(self, view: ReuseView) -> ReuseView:
        """Return the view with the distances of the bursts that were read."""
        half_bytes, probe = self._line
        return replace(view, burst_half_bytes=half_bytes, probe=probe)

    def read(self, reader: Session, sample: int, budget: TimeBudget) -> bool:
        """Read on to a sample within the budget; return whether all bursts up to it are added."""
        if sample == self._until:
            return True
        if sample < self._until:
            if sample < self._earlier_until:
                self._earlier, self._earlier_until = BurstReuse(), -1
            self._reuse, self._until = self._earlier.copy(), self._earlier_until
        earlier = sample - BACK_SAMPLES
        if self._until < earlier:
            if not self._add(reader, earlier, budget):
                return False
            self._earlier, self._earlier_until = self._reuse.copy(), earlier
        if not self._add(reader, sample, budget):
            return False
        if self._reuse.count != self._line_count:  # few windows have one
            probe_ns, self._line_count = self._reuse.probe_ns, self._reuse.count
            self._line = (None, "") if probe_ns is None else (self._reuse.within(0.5), duration_ns(probe_ns))
        return True

    def _add(self, reader: Session, last_sample: int, budget: TimeBudget) -> bool:
        added, previous = 0, self._until
        for sample, process, parts in reader.reuse.bursts(self._until + 1, last_sample):
            if added >= BATCH_BURSTS and sample > previous:  # all processes of the sample before are in the sum
                self._until = previous
                if budget.spent:
                    return False
                added = 0
            if self._keys is None or process in self._keys:
                self._reuse.add(sample, parts)
            added, previous = added + 1, sample
        self._until = last_sample
        return True


class Intervals:
    """Shortest and longest interval of the windows up to one. A growing session reads its new windows only."""

    def __init__(self) -> None:
        self._count, self._sample = 0, -1  # number of windows read, and the last sample of them
        self._shortest_s, self._longest_s = np.inf, 0.0
        self._lengths = GrowingMedian((), 0, 0)  # of the windows read
        self.total_ns = 0  # likewise: the time that is in windows

    def until(self, reader: Session, sample: int) -> tuple[float, float]:
        """Return shortest and longest interval in seconds; twice the median length of windows that took longer."""
        samples = reader.samples
        count = int(np.searchsorted(samples.sample, sample, side="right"))
        if count < self._count or (self._count and samples.sample[self._count - 1] != self._sample):
            self._count, self._shortest_s, self._longest_s = 0, np.inf, 0.0
            self._lengths, self.total_ns = GrowingMedian((), 0, 0), 0
        if count > self._count:
            new = samples.intervals_ns(slice(self._count, count))
            shortest, longest = intervals_s(new, reader.hello.options.interval_ns)
            self._shortest_s, self._longest_s = min(self._shortest_s, shortest), max(self._longest_s, longest)
            self._add_lengths(samples, count)
            added = slice(self._count, count)
            self.total_ns += int((samples.end_ns[added] - samples.start_ns[added]).sum())
            self._count, self._sample = count, sample
        if self._lengths.value is not None:
            true_s = self._lengths.value / 1e9
            if true_s > LATE * self._longest_s:
                return true_s, true_s
        return self._shortest_s, self._longest_s

    def _add_lengths(self, samples: SampleArrays, count: int) -> None:
        if count - self._count <= self._lengths.left:
            added = slice(self._count, count)
            self._lengths.add((samples.end_ns[added] - samples.start_ns[added]).astype(float))
        else:  # now and then all are sorted, the more of them the more seldom
            lengths_ns = ((samples.end_ns[part] - samples.start_ns[part]).astype(float) for part in parts_until(count))
            self._lengths = GrowingMedian(lengths_ns, count // MORE, count)


def reuse_view(histogram: ReuseHistogram, interval_s: float, longest_s: float | None = None) -> ReuseView:
    """Return the histogram as shares of all touches, its median bounds and the miss-ratio curve it implies.

    ``longest_s``: of intervals that changed, the shortest of which is ``interval_s``.
    """
    longest_s = interval_s if longest_s is None else longest_s
    interval = f"{interval_s:.3g} s" if longest_s == interval_s else f"{interval_s:.3g}-{longest_s:.3g} s"
    touches = histogram.touches
    returning = int(histogram.upper.sum())
    if not returning:
        share = 1.0 if touches else None
        return ReuseView(first_share=share, touches=touches, interval=interval)
    curve = MissRatioCurve.of(histogram)
    # The median of all accesses, first accesses included: a memory of that size misses half of them.
    half_low, half_high = curve.size_for(0.5, first_touches=True)
    share = 0.5 * touches / returning
    used = np.flatnonzero(histogram.upper + histogram.lower)
    # An octave of level curve on both sides of the drop. The few immediate reuses are not part of the drop: they would
    # stretch the axis down to a single page.
    low, high = curve.miss_ratio_at(BIN_EDGES)
    last = min(len(BIN_EDGES), int(used[-1]) + 2 + BINS_PER_OCTAVE)
    level = np.flatnonzero(high < 1 - LEVEL * (1 - high[-1]))
    first = min(max(0, (int(level[0]) if len(level) else int(used[0])) - BINS_PER_OCTAVE), last - 2)
    sizes, low, high = BIN_EDGES[first:last], low[first:last], high[first:last]
    estimate = curve.estimate_at(sizes)
    return ReuseView(
        edges_bytes=_EDGES,
        upper=histogram.upper / touches,
        lower=histogram.lower / touches,
        first_share=histogram.first_touches / touches,
        touches=touches,
        half_low_bytes=half_low,
        half_high_bytes=half_high,
        half_estimate_bytes=histogram.estimate(share) if share <= 1 else None,
        size_bytes=sizes.astype(float),
        miss_low=low,
        miss_high=high,
        miss_estimate=estimate,
        most_bytes=histogram.quantile(0.95),
        most_estimate_bytes=histogram.estimate(0.95),
        interval=interval,
    )
