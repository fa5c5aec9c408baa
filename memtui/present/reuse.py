"""Reuse distances from the start of a session to the cursor, and the miss-ratio curve they imply."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from memtui.analysis.lean import intervals_s
from memtui.analysis.miss_ratio import MissRatioCurve
from memtui.analysis.reuse_histogram import BIN_EDGES, BINS_PER_OCTAVE, ReuseHistogram
from memtui.present.allowance import Allowance
from memtui.views import ReuseView

FEW_SAMPLES = 32  # as few as are cheaper to add than to begin at a checkpoint
AT_ONCE = 64  # windows of one process added between two looks at the clock
LEVEL = 0.02  # of the whole drop of the miss ratio: what is less counts as none


class ReuseLog:
    """Adds up what was stored of every window: of the tree, or of one process (the keys of its generations)."""

    def __init__(self, keys: frozenset[int] | None = None, whose: str = "") -> None:
        self._keys, self._whose = keys, whose
        self._histogram, self._view, self._until = ReuseHistogram(), ReuseView(), -1

    def view(self, reader: Any, sample: int, allowance: Allowance) -> tuple[ReuseView, bool]:
        """The distances up to a sample, and whether all of them are in it."""
        if sample < 0:
            return ReuseView(), True
        if self._until != sample:
            if self._keys is not None:
                self._add_process(reader, sample, self._keys, allowance)
            elif 0 <= self._until < sample <= self._until + FEW_SAMPLES:
                for _, _, reuse in reader.reuse_between(self._until + 1, sample):
                    self._histogram.add(reuse)
                self._until = sample
            else:
                self._histogram, self._until = reader.reuse_until(sample), sample
            lengths = reader.samples.interval_ns[: int(np.searchsorted(reader.samples.sample, sample, side="right"))]
            self._view = reuse_view(self._histogram, *intervals_s(lengths, reader.hello.options.interval_ns))
        whole = self._until == sample
        return replace(self._view, whose=self._whose if whole else f"{self._whose}, still adding up"), whole

    def _add_process(self, reader: Any, sample: int, keys: frozenset[int], allowance: Allowance) -> None:
        """Window after window within the budget: the checkpoints of a session hold all processes together."""
        if sample < self._until:
            self._histogram, self._until = ReuseHistogram(), -1
        while self._until < sample:
            last = min(sample, self._until + AT_ONCE)
            for _, process, reuse in reader.reuse_between(self._until + 1, last):
                if process in keys:
                    self._histogram.add(reuse)
            self._until = last
            if allowance.spent:
                return


def reuse_view(histogram: ReuseHistogram, interval_s: float, longest_s: float | None = None) -> ReuseView:
    """The histogram as shares of all touches, its median bounds and the miss-ratio curve it implies.

    ``longest_s``: of intervals that changed, the shortest of which is ``interval_s``.
    """
    longest_s = interval_s if longest_s is None else longest_s
    interval = f"{interval_s:.3g} s" if longest_s == interval_s else f"{interval_s:.3g}-{longest_s:.3g} s"
    touches = histogram.touches
    returning = int(histogram.upper.sum())
    if not returning:
        share = 1.0 if touches else None
        return ReuseView(first_share=share, touches=touches, interval=interval)
    # The median of all touches, those that never came back included.
    rank = 0.5 * touches / returning
    half = histogram.quantile(rank) if rank <= 1 else None
    used = np.flatnonzero(histogram.upper + histogram.lower)
    # An octave of level ground on both sides of the drop. The few touches that come back at once are no drop: they
    # would stretch the axis down to a single page.
    low, high = MissRatioCurve.of(histogram).miss_ratio_at(BIN_EDGES)
    last = min(len(BIN_EDGES), int(used[-1]) + 2 + BINS_PER_OCTAVE)
    level = np.flatnonzero(high < 1 - LEVEL * (1 - high[-1]))
    first = min(max(0, (int(level[0]) if len(level) else int(used[0])) - BINS_PER_OCTAVE), last - 2)
    sizes, low, high = BIN_EDGES[first:last], low[first:last], high[first:last]
    return ReuseView(
        # A bin reaches up to its edge; the first one has no lower edge of its own.
        edges_bytes=np.concatenate(([BIN_EDGES[0] * BIN_EDGES[0] / BIN_EDGES[1]], BIN_EDGES.astype(float))),
        upper=histogram.upper / touches,
        lower=histogram.lower / touches,
        first_share=histogram.first_touches / touches,
        touches=touches,
        half_low_bytes=half[0] if half else None,
        half_high_bytes=half[1] if half else None,
        size_bytes=sizes.astype(float),
        miss_low=low,
        miss_high=high,
        interval=interval,
    )
