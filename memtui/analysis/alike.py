"""Groups of windows of one length: bytes touched in 0.2 s and in 2 s are different figures and are never averaged.

A budget moves the interval all the time, so with a budget two windows are alike when their intervals differ by no more
than a factor of the square root of two. Without a budget two windows are alike when the same interval was requested.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.core.fast_numpy import ranked

HALF_WIDTH = 0.5  # of a group, in octaves
MOST_GROUPS = 16


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Windows that are alike.

    Attributes:
        windows: bool[n], True for the windows of the group.
        interval_ns: shortest and longest interval in the group.
        time_fraction: part of the length of all windows.
    """

    windows: NDArray[np.bool_]
    interval_ns: tuple[int, int]
    time_fraction: float


def groups(
    intervals_ns: NDArray[np.int64],
    lengths_ns: NDArray[np.int64],
    measured: NDArray[np.bool_],
    *,
    exact: bool,
    most: int = MOST_GROUPS,
) -> list[Group]:
    """Return the groups of windows, first the group with the most time with a working set.

    Args:
        intervals_ns: i8[n], interval of each window: the requested one, or the one that a budget made of it.
        lengths_ns: i8[n], length of each window.
        measured: bool[n], windows with a working set.
        exact: there is no budget.
        most: number of groups; the windows left over are in no group.
    """
    left = np.ones(len(intervals_ns), bool)
    whole = max(float(lengths_ns.sum()), 1.0)
    result: list[Group] = []
    while left.any() and len(result) < most:
        remaining = np.flatnonzero(left)
        windows = np.zeros(len(left), bool)
        some = bool(measured[remaining].any())
        times = measured_times(intervals_ns[remaining], lengths_ns[remaining], measured[remaining], only_measured=some)
        low, high = _longest(*times, exact=exact)
        windows[remaining[(low <= intervals_ns[remaining]) & (intervals_ns[remaining] <= high)]] = True
        inside = intervals_ns[windows]
        fraction = float(lengths_ns[windows].sum()) / whole
        result.append(Group(windows, (int(inside.min()), int(inside.max())), fraction))
        left &= ~windows
    return result


def longest_intervals(
    parts: Iterable[tuple[NDArray[np.int64], NDArray[np.float64]]], *, exact: bool
) -> tuple[int, int]:
    """Return the shortest and the longest interval of the first group, the one with the most time.

    ``parts``: of some windows each, what ``measured_times`` returns; of hours of windows, the arrays are never whole.
    """
    values, times_ns = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return _longest(*_ranked_times(values, times_ns), exact=exact)


def measured_times(
    intervals_ns: NDArray[np.int64], lengths_ns: NDArray[np.int64], measured: NDArray[np.bool_], *, only_measured: bool
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the intervals that occur, rising, and the time of the windows of each.

    ``only_measured``: that of windows in which nothing was measured counts as none; so where there are others.
    """
    return _ranked_times(intervals_ns, lengths_ns * measured if only_measured else lengths_ns)


def _ranked_times(
    intervals_ns: NDArray[np.int64], lengths_ns: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the intervals that occur, rising, and the time of the windows of each."""
    values, rank = ranked(intervals_ns)
    return values, np.asarray(np.bincount(rank, lengths_ns.astype(float), len(values)), np.float64)


def _longest(values: NDArray[np.int64], times_ns: NDArray[np.float64], *, exact: bool) -> tuple[int, int]:
    """Return the shortest and the longest interval of the group with the most time."""
    octaves = np.arange(len(values), dtype=float) * 2 if exact else np.log2(np.maximum(values, 1))
    until = np.concatenate(([0.0], np.cumsum(times_ns)))
    first = np.searchsorted(octaves, octaves - HALF_WIDTH, side="left")
    last = np.searchsorted(octaves, octaves + HALF_WIDTH, side="right")
    best = int(np.argmax(until[last] - until[first]))
    return int(values[first[best]]), int(values[last[best] - 1])
