"""A mean, a mean without outliers and a median of the same readings, and the reason when they differ.

Energy is a mean: the median of a load that comes in bursts says nothing of the energy drawn. The other two averages
check whether the mean is credible. When the averages disagree, the reason is searched in the readings: a trend, a load
with two levels, or outliers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import atan, cos, exp, pi, sin, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

RESOLUTION = 0.01  # two averages that differ by less are the same
SECOND_LEVEL = 0.25  # more values than these, far from the median, are not outliers but another level
SIGMAS = 3.0
_MAD_TO_SIGMA = 1.4826  # of a normal distribution
_MEDIAN_ERROR = 1.2533  # standard error of a median by that of a mean, of a normal distribution: sqrt(pi / 2)


@dataclass(frozen=True, slots=True)
class Averages:
    """Three averages of the same values, in their unit.

    Attributes:
        mean: mean of all values.
        mean_3s: mean of the values within 3 sample standard deviations of ``mean``; values are rejected once.
        median: median of all values.
        best: the average to report: ``mean``, or the mean without outliers where there are outliers.
        error: standard error of the mean.
        verdict: ``agree``, ``drift``, ``two levels`` or ``outliers``.
    """

    mean: float
    mean_3s: float
    median: float
    best: float
    error: float
    verdict: str


def averages(values: ArrayLike, independent: float | None = None) -> Averages | None:
    """Return the averages of readings in the order of time.

    Args:
        values: f8[n]; nan is left out.
        independent: number of independent values, where a sensor gives each of its values several times.

    Returns:
        None without a value.
    """
    finite = np.asarray(values, np.float64)
    finite = finite[np.isfinite(finite)]
    if not len(finite):
        return None
    mean, median = float(finite.mean()), float(np.median(finite))
    deviation = float(finite.std(ddof=1)) if len(finite) > 1 else 0.0
    mean_3s = float(finite[np.abs(finite - mean) <= SIGMAS * deviation].mean())
    error = deviation / sqrt(min(max(independent or len(finite), 1), len(finite)))
    verdict, best = "agree", mean
    if abs(mean_3s - median) > max(RESOLUTION * abs(median), 2 * error * sqrt(1 + _MEDIAN_ERROR**2)):
        verdict, best = _cause(finite, mean, median)
    return Averages(mean, mean_3s, median, best, error, verdict)


def _cause(values: NDArray[np.float64], mean: float, median: float) -> tuple[str, float]:
    """Return why the averages differ, and the average to report.

    Ten values or fewer never come here: their mean and median are less than a standard deviation apart.
    """
    if _drifts(values):
        return "drift", mean
    near = np.abs(values - median) <= SIGMAS * _MAD_TO_SIGMA * float(np.median(np.abs(values - median)))
    if 1 - near.mean() > SECOND_LEVEL:
        return "two levels", mean
    return "outliers", float(values[near].mean())


def _drifts(values: NDArray[np.float64]) -> bool:
    """Whether a straight line through time explains most of the variance."""
    time = np.linspace(-1, 1, len(values))
    return float(np.corrcoef(time, values)[0, 1]) ** 2 > 0.5


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> tuple[float, float, float] | None:
    """Return (mean, low, high) by Student's t; None with fewer than two values.

    Args:
        values: f8[n], independent of one another: a value for each window.
        confidence: that the true mean lies between low and high, above 0 and below 1.
    """
    numbers = np.asarray(values, np.float64)
    if len(numbers) < 2:
        return None
    half = student_t((1 + confidence) / 2, len(numbers) - 1) * float(numbers.std(ddof=1)) / sqrt(len(numbers))
    mean = float(numbers.mean())
    return mean, mean - half, mean + half


def student_t(p: float, degrees: int) -> float:
    """Return the quantile of Student's t distribution, for p from 0.5 and below 1.

    The distribution function has a closed form for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4);
    it is inverted by halving.

    Raises:
        ValueError: p or the degrees are out of range.
    """
    if not (0.5 <= p < 1 and degrees >= 1):
        raise ValueError(f"no quantile at {p} with {degrees} degrees of freedom")
    low, high = 0.0, 1.0
    while _within(high, degrees) < 2 * p - 1:
        low, high = high, 2 * high
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < 2 * p - 1 else (low, middle)
    return high


def _within(t: float, degrees: int) -> float:
    """Return the probability that a value lies between -t and t."""
    angle = atan(t / sqrt(degrees))
    total = term = cos(angle) if degrees % 2 else 1.0
    for k in range(3 if degrees % 2 else 2, degrees, 2):
        term *= cos(angle) ** 2 * (k - 1) / k
        total += term
    if degrees % 2 == 0:
        return sin(angle) * total
    return 2 / pi * (angle + (sin(angle) * total if degrees > 1 else 0.0))


def ratio_interval(values: ArrayLike, base: ArrayLike, confidence: float = 0.95) -> tuple[float, float, float] | None:
    """Return (ratio, low, high) of the geometric means of two independent samples, by Welch's t on their logarithms.

    Args:
        values: f8[n], above 0.
        base: f8[m], above 0, in the same unit.
        confidence: that the true ratio lies between low and high.

    Returns:
        None with fewer than two values on a side, or a value that is not above 0.
    """
    sides = [np.asarray(side, np.float64) for side in (values, base)]
    if any(len(side) < 2 or not (side > 0).all() for side in sides):
        return None
    logs = [np.log(side) for side in sides]
    parts = [float(log.var(ddof=1)) / len(log) for log in logs]
    error = sqrt(sum(parts))
    ratio = float(logs[0].mean() - logs[1].mean())
    if error == 0:
        return exp(ratio), exp(ratio), exp(ratio)
    # Welch and Satterthwaite; rounded down, which makes the interval wider.
    degrees = error**4 / sum(part**2 / (len(log) - 1) for part, log in zip(parts, logs, strict=True))
    half = student_t((1 + confidence) / 2, max(1, int(degrees))) * error
    return exp(ratio), exp(ratio - half), exp(ratio + half)
