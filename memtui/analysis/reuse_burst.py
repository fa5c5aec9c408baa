"""Reuse distances of short windows, whose bounds are close: those at the end of a burst.

A burst cuts one window into parts, each a third of what is left of it, down to one of about 10 ms, the *probe*. A page
that is touched in the probe was touched last in one of the parts before it, so the time since then is known within a
factor of about one and a half, whether that is 20 ms or the whole window; and so is the distance wherever a program
touches memory evenly. A touch is one page in one probe here: a hot page that counts once in a long window counts in
each of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from statistics import median

from memtui.analysis.reuse_distance import ReuseSample, ReuseTracker
from memtui.analysis.reuse_histogram import ExactReuse
from memtui.core.page_set import PageSet


def probe_distances(before: PageSet | None, parts: Sequence[PageSet]) -> ReuseSample:
    """Return the distances of the touches of a probe.

    Args:
        before: the pages of the window before; None: not known.
        parts: of the window that was cut, in order of time. The last one is the probe.

    Returns:
        Its first touches are those of pages that were touched in none of these windows.
    """
    tracker = ReuseTracker()
    for pages in (*(() if before is None else (before,)), *parts[:-1]):
        tracker.touch(pages)
    return tracker.touch(parts[-1])


class BurstReuse:
    """Adds up the probes of a session. ``count``: the number of bursts, each of which has a probe of every process."""

    def __init__(self) -> None:
        self.count = 0
        self._sample = -1  # of the last one
        self._lengths_ns: list[int] = []
        self._exact = ExactReuse()

    def copy(self) -> BurstReuse:
        """Return a sum that goes on from here without changing this one."""
        other = copy(self)
        other._lengths_ns, other._exact = self._lengths_ns.copy(), self._exact.copy()
        return other

    @property
    def probe_ns(self) -> float | None:
        """The median length of a probe; None without one."""
        return median(self._lengths_ns) if self._lengths_ns else None

    @property
    def touches(self) -> int:
        """All touches of the probes."""
        return self._exact.touches

    def add(self, sample: int, probe_ns: int, distances: ReuseSample) -> None:
        """Add a probe. ``sample``: of its window; none before that of the last probe."""
        self.count += sample != self._sample
        self._sample = sample
        self._lengths_ns.append(probe_ns)
        self._exact.add(distances)

    def within(self, share: float) -> tuple[int, int, float | None] | None:
        """Return the distance that a share of all touches does not exceed: lower bound, upper bound, estimate.

        None where fewer of them came back.
        """
        returning = self._exact.touches - self._exact.first_touches
        if not returning or share * self._exact.touches > returning:
            return None
        of_returning = share * self._exact.touches / returning
        bounds = self._exact.quantile(of_returning)
        return None if bounds is None else (*bounds, self._exact.estimate(of_returning))
