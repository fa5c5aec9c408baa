"""Summaries of series with holes, and intervals for benchmarks.

A value that could not be measured (None or nan) is left out and counted, never taken as 0.

Weights. A working-set size belongs to its window: windows are the population, and a size does not spread over time
(twice the window is not twice the size). Its mean and quantiles are therefore *not* weighted by window length. Values
that hold at every moment (RSS, power) are averaged over time, with window lengths as weights, when windows differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Series = Iterable[float | int | None]


@dataclass(frozen=True, slots=True)
class Summary:
    """A series in five numbers, in its own unit; all None when nothing was measured.

    Attributes:
        count: values that were measured.
        missing: values that were not measured.
    """

    count: int
    missing: int
    mean: float | None = None
    median: float | None = None
    p95: float | None = None
    min: float | None = None
    max: float | None = None


def measured(values: Series, weights: Series | None = None) -> tuple[Floats, Floats | None]:
    """Return the values that are neither None nor nan, f8[n], with their weights.

    Raises:
        ValueError: as many weights as values are needed; they must be finite and not below 0.
    """
    numbers = _floats(values)
    here = ~np.isnan(numbers)
    if weights is None:
        return numbers[here], None
    share = _floats(weights)
    if share.shape != numbers.shape:
        raise ValueError(f"{len(numbers)} values have {len(share)} weights")
    if not (np.isfinite(share[here]).all() and (share[here] >= 0).all()):
        raise ValueError("weights must be finite and not below 0")
    return numbers[here], share[here]


def mean(values: Series, weights: Series | None = None) -> float | None:
    """Return the mean, weighted if weights are given; None when nothing was measured or all weights are 0.

    Raises:
        ValueError: as ``measured``.
    """
    numbers, share = measured(values, weights)
    if not len(numbers) or (share is not None and not share.sum()):
        return None
    return float(np.average(numbers, weights=share))


def quantile(values: Series, q: float, weights: Series | None = None) -> float | None:
    """Return the quantile of the measured values; None when nothing was measured.

    Without weights: linear between order statistics (numpy's default, type 7 of Hyndman and Fan). With weights: the
    smallest value that at least the share q of all weight does not exceed (type 1), since a moment has one value.

    Raises:
        ValueError: q outside 0..1, or as ``measured``.
    """
    if not 0 <= q <= 1:
        raise ValueError(f"quantile {q} is not within 0 and 1")
    numbers, share = measured(values, weights)
    if share is not None:
        numbers, share = numbers[share > 0], share[share > 0]
    if not len(numbers):
        return None
    if share is None:
        return float(np.quantile(numbers, q))
    order = np.argsort(numbers, kind="stable")
    below = np.cumsum(share[order])
    return float(numbers[order][min(int(np.searchsorted(below, q * below[-1])), len(numbers) - 1)])


def median(values: Series, weights: Series | None = None) -> float | None:
    """Return ``quantile`` at 0.5."""
    return quantile(values, 0.5, weights)


def summary(values: Series, weights: Series | None = None) -> Summary:
    """Return count, holes, mean, median, 95 % quantile and extremes of a series.

    Raises:
        ValueError: as ``measured``.
    """
    every = _floats(values)
    share = None if weights is None else _floats(weights)
    numbers, _ = measured(every, share)
    if not len(numbers):
        return Summary(0, len(every))
    return Summary(
        count=len(numbers),
        missing=len(every) - len(numbers),
        mean=mean(every, share),
        median=quantile(every, 0.5, share),
        p95=quantile(every, 0.95, share),
        min=float(numbers.min()),
        max=float(numbers.max()),
    )


@dataclass(frozen=True, slots=True)
class MedianInterval:
    """A median and an interval that contains the true median.

    Attributes:
        median: median of the sample.
        low: an order statistic of the sample; None when the sample is too small for the requested confidence.
        high: the mirrored order statistic, or None.
        confidence: real coverage of the interval, at least the requested confidence; 0 without an interval.
        count: size of the sample.
    """

    median: float
    low: float | None
    high: float | None
    confidence: float
    count: int


def median_interval(values: Series, confidence: float = 0.95) -> MedianInterval | None:
    """Return the interval of the median by binomial order statistics: right for any continuous distribution.

    The median lies between the k-th smallest and k-th largest of n values with probability
    1 - 2 P(Bin(n, 1/2) < k) (e.g. David and Nagaraja, Order Statistics, 7.1). The largest k that still covers
    ``confidence`` is taken. 95 % needs six values.

    Returns:
        None when nothing was measured.

    Raises:
        ValueError: confidence not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} is not between 0 and 1")
    ordered = np.sort(measured(values)[0])
    n = len(ordered)
    if not n:
        return None
    best, covered = _outermost(n, confidence)
    middle = float(np.median(ordered))
    if not best:
        return MedianInterval(middle, None, None, 0.0, n)
    return MedianInterval(middle, float(ordered[best - 1]), float(ordered[n - best]), covered, n)


@lru_cache(1024)
def _outermost(n: int, confidence: float) -> tuple[int, float]:
    """Return the largest k of ``median_interval`` for n values, and its coverage; 0 where there is no such k."""
    outside, best, covered = 0, 0, 0.0
    for k in range(1, n // 2 + 1):
        outside += 2 * comb(n, k - 1)
        cover = 1 - outside / 2**n  # whole numbers until here: exact for any n
        if cover < confidence:
            break
        best, covered = k, cover
    return best, covered


def ratio_of_pairs(after: Series, before: Series, confidence: float = 0.95) -> MedianInterval | None:
    """Return the median of ``after[i] / before[i]`` and its interval: what a change costs, from interleaved pairs.

    Pairs in which a value is missing or ``before`` is 0 are left out.

    Returns:
        Ratios (1.02: two per cent more), or None without a whole pair.

    Raises:
        ValueError: different lengths, or confidence not between 0 and 1.
    """
    a, b = _floats(after), _floats(before)
    if a.shape != b.shape:
        raise ValueError(f"pairs need equal lengths, got {len(a)} and {len(b)}")
    with np.errstate(divide="ignore", invalid="ignore"):
        return median_interval(np.where(b == 0, np.nan, a / b), confidence)


def _floats(values: Series) -> Floats:
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values.astype(np.float64)
    return np.array([np.nan if v is None else v for v in values], np.float64)
