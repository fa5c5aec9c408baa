"""The cumulative distribution of reuse distances: what share of touches an LRU memory of a given size holds.

The curve is one minus the miss ratio (``miss_ratio.py``), drawn as the published notebooks draw it. Read from the curve
are where it bends, how far two curves lie apart, and how much memory a share of touches needs. Like every figure of
reuse the curve belongs to the length of the windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.miss_ratio import MissRatioCurve, ReuseCounts
from memtui.analysis.reuse_histogram import quantile
from memtui.core.fast_numpy import union1d

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
        most: f8[n], share that the memory holds at most (from the lower bounds).
        first_share: first touches among all touches; no memory holds them.
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
    sizes = union1d([0], np.linspace(0, int(distances[-1]), points).astype(np.int64))
    low, high = curve.miss_ratio_at(sizes)
    total = curve.returning + curve.first_touches
    return Cdf(sizes.astype(float), 1 - high, 1 - low, curve.first_touches / total)


@dataclass(frozen=True, slots=True)
class Knee:
    """The point where a curve bends most.

    Attributes:
        size_bytes: size at the bend.
        share: share of all touches that a memory of this size holds.
        bend: height of the curve above the straight line from its start to its end, in parts of 1.
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
    index = int(np.argmax(above))
    return Knee(float(curve.sizes_bytes[index]), float(curve.least[index]), float(above[index]))


def quantiles(reuse: ReuseCounts, shares: Sequence[float] = QUANTILES) -> dict[float, tuple[int, int] | None]:
    """Return (lower, upper) bytes within which a share of the returning touches came back."""
    bounds = [reuse.entries(bound) for bound in ("lower", "upper")]
    result: dict[float, tuple[int, int] | None] = {}
    for share in shares:
        low, high = (quantile(*entries, share) for entries in bounds)
        result[share] = None if low is None or high is None else (low, high)
    return result


def apart(first: ReuseCounts, second: ReuseCounts) -> float | None:
    """Return the largest vertical distance of two certain curves, 0..1 (Kolmogorov, Smirnov).

    The curves are those of returning touches. None when either has no returning touch.
    """
    left, right = first.entries("upper"), second.entries("upper")
    if not len(left[1]) or not len(right[1]):
        return None
    distances = union1d(left[0], right[0])
    return float(np.abs(_share_below(*left, distances) - _share_below(*right, distances)).max())


def shift(first: ReuseCounts, second: ReuseCounts) -> float | None:
    """Return the largest relative change of a quantile's upper bound from ``first`` to ``second``, over ``QUANTILES``.

    None when either has no returning touch.
    """
    before, after = quantiles(first), quantiles(second)
    changes = []
    for share in QUANTILES:
        low, high = before[share], after[share]
        if low is None or high is None:
            return None
        changes.append(abs(high[1] - low[1]) / low[1])
    return max(changes)


@dataclass(frozen=True, slots=True)
class Advice:
    """The size of an LRU memory for at most a share of misses among returning touches, by two intervals.

    Attributes:
        bytes_: (low, high): one size twice where both intervals agree, else the smaller and the larger size.
        agree: whether both intervals agree.
        intervals_s: the two intervals.
    """

    bytes_: tuple[int, int]
    agree: bool
    intervals_s: tuple[float, float]


def advice(by_interval: Sequence[tuple[float, ReuseCounts]], misses: float) -> Advice | None:
    """Return the size that certainly misses no more than ``misses``, by two intervals.

    The intervals agree when their sizes differ by no more than ``AGREE`` of the larger size.

    Args:
        by_interval: two pairs of (window length in seconds, reuse counts).
        misses: share of returning touches, 0..1.

    Returns:
        None when either interval gives no size.

    Raises:
        ValueError: not two pairs.
    """
    if len(by_interval) != 2:
        raise ValueError(f"advice rests on two intervals, not {len(by_interval)}")
    sizes: list[int] = []
    for _, reuse in by_interval:
        size = MissRatioCurve.of(reuse).size_for(misses)[1]
        if size is None:
            return None
        sizes.append(size)
    low, high = min(sizes), max(sizes)
    agree = high - low <= AGREE * high
    return Advice((high, high) if agree else (low, high), agree, (by_interval[0][0], by_interval[1][0]))


def _share_below(distances: NDArray[np.int64], counts: NDArray[np.int64], edges: NDArray[np.int64]) -> Floats:
    below = np.concatenate(([0], np.cumsum(counts)))
    return below[np.searchsorted(distances, edges, side="right")] / below[-1]
