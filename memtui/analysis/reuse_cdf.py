"""The cumulative distribution of reuse distances: what share of touches an LRU memory of a given size holds.

It is one minus the miss ratio (``miss_ratio.py``), drawn as the published notebooks draw it, and what is read from
it: where it bends, how far two of them lie apart, and how much memory a share of touches needs. Like every figure of
reuse it belongs to the length of the windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.miss_ratio import MissRatioCurve, ReuseCounts
from memtui.analysis.reuse_histogram import quantile

Floats = NDArray[np.float64]
QUANTILES = (0.25, 0.5, 0.75, 0.95)
POINTS = 400
LEAST_BEND = 0.3  # of 1: below that, a curve is nearer to a straight line than to a step
AGREE = 0.1  # two sizes that differ by no more are one figure


@dataclass(frozen=True, slots=True, eq=False)
class Cdf:
    """Points of the curve.

    Attributes:
        sizes_bytes: f8[n], rising from 0.
        least: f8[n], share of all touches, first ones included, that a memory of that size certainly holds (from the
            upper bounds of the distances).
        most: f8[n], that it holds at most (from the lower bounds).
        first_share: first touches among all; no memory holds them.
    """

    sizes_bytes: Floats
    least: Floats
    most: Floats
    first_share: float


def cdf(reuse: ReuseCounts, points: int = POINTS) -> Cdf | None:
    """Return the curve of reuse counts, from 0 to the largest distance; None when no page was touched twice."""
    distances, counts = reuse.entries("upper")
    if not len(counts):
        return None
    curve = MissRatioCurve.of(reuse)
    # Every step of a curve with few steps, and even places on one with many.
    sizes = np.unique(np.concatenate(([0], np.linspace(0, int(distances[-1]), points).astype(np.int64))))
    low, high = curve.miss_ratio_at(sizes)
    total = curve.returning + curve.first_touches
    return Cdf(sizes.astype(float), 1 - high, 1 - low, curve.first_touches / total)


@dataclass(frozen=True, slots=True)
class Knee:
    """Where a curve bends most.

    Attributes:
        size_bytes: there.
        share: of all touches that a memory of this size holds.
        bend: by how much the curve lies above the straight line from its begin to its end, in parts of 1.
    """

    size_bytes: float
    share: float
    bend: float

    @property
    def clear(self) -> bool:
        return self.bend >= LEAST_BEND


def knee(curve: Cdf) -> Knee:
    """Return the point that lies highest above the chord of the certain curve (Satopaa et al., *Kneedle*, 2011)."""
    across = curve.sizes_bytes / max(curve.sizes_bytes[-1], 1.0)
    up = curve.least / max(float(curve.least[-1]), 1e-12)
    above = up - across
    at = int(np.argmax(above))
    return Knee(float(curve.sizes_bytes[at]), float(curve.least[at]), float(above[at]))


def quantiles(reuse: ReuseCounts, shares: Sequence[float] = QUANTILES) -> dict[float, tuple[int, int] | None]:
    """Return (lower, upper) bytes within which a share of the returning touches came back."""
    bounds = [reuse.entries(bound) for bound in ("lower", "upper")]
    found: dict[float, tuple[int, int] | None] = {}
    for share in shares:
        low, high = (quantile(*entries, share) for entries in bounds)
        found[share] = None if low is None or high is None else (low, high)
    return found


def apart(one: ReuseCounts, other: ReuseCounts) -> float | None:
    """Return the largest vertical distance of two certain curves, 0..1 (Kolmogorov, Smirnov).

    Of returning touches. None when either has none.
    """
    left, right = one.entries("upper"), other.entries("upper")
    if not len(left[1]) or not len(right[1]):
        return None
    places = np.union1d(left[0], right[0])
    return float(np.abs(_share_below(*left, places) - _share_below(*right, places)).max())


def shift(one: ReuseCounts, other: ReuseCounts) -> float | None:
    """Return by what part of itself a quantile's upper bound of ``one`` differs in ``other``, at most of ``QUANTILES``.

    None when either has no returning touch.
    """
    before, after = quantiles(one), quantiles(other)
    found = []
    for share in QUANTILES:
        low, high = before[share], after[share]
        if low is None or high is None:
            return None
        found.append(abs(high[1] - low[1]) / low[1])
    return max(found)


@dataclass(frozen=True, slots=True)
class Advice:
    """How much memory an LRU of it needs for at most a share of misses among returning touches, by two intervals.

    Attributes:
        bytes_: (low, high): one size twice where both intervals say the same, else from the smaller to the larger.
        agree: whether they do.
        intervals_s: the two.
    """

    bytes_: tuple[int, int]
    agree: bool
    intervals_s: tuple[float, float]


def advice(by_interval: Sequence[tuple[float, ReuseCounts]], misses: float) -> Advice | None:
    """Return what two intervals say of the size that certainly misses no more.

    They agree within ``AGREE`` of the larger one.

    Args:
        by_interval: two pairs of (window length in seconds, reuse counts).
        misses: share of returning touches, 0..1.

    Returns:
        None when either says nothing.

    Raises:
        ValueError: not two pairs.
    """
    if len(by_interval) != 2:
        raise ValueError(f"advice rests on two intervals, not {len(by_interval)}")
    found: list[int] = []
    for _, reuse in by_interval:
        size = MissRatioCurve.of(reuse).size_for(misses)[1]
        if size is None:
            return None
        found.append(size)
    low, high = min(found), max(found)
    agree = high - low <= AGREE * high
    return Advice((high, high) if agree else (low, high), agree, (by_interval[0][0], by_interval[1][0]))


def _share_below(distances: NDArray[np.int64], counts: NDArray[np.int64], places: NDArray[np.int64]) -> Floats:
    below = np.concatenate(([0], np.cumsum(counts)))
    return below[np.searchsorted(distances, places, side="right")] / below[-1]
