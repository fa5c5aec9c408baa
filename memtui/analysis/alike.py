"""Windows of one length: what is touched in 0.2 s and in 2 s are different figures, and no mean or median mixes them.

A budget moves the interval all the time, so windows within a factor of the square root of two of one another count as
alike there. Without a budget those are that were asked for with the same interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.fast_numpy import ranked

HALF_WIDTH = 0.5  # of a group, in octaves
MOST_GROUPS = 16


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Windows that are alike.

    Attributes:
        windows: bool[n], which of all windows.
        interval_ns: shortest and longest interval among them.
        time_fraction: their part of the length of all windows.
    """

    windows: NDArray[np.bool_]
    interval_ns: tuple[int, int]
    time_fraction: float


def like(intervals_ns: NDArray[np.int64], at: int, *, exact: bool) -> NDArray[np.bool_]:
    """Return bool[n]: the windows that are like the one at ``at``. ``exact``: there is no budget."""
    if exact:
        return np.asarray(intervals_ns == intervals_ns[at])
    octaves = np.log2(np.maximum(intervals_ns, 1))
    return np.asarray(np.abs(octaves - octaves[at]) <= HALF_WIDTH)


def groups(
    intervals_ns: NDArray[np.int64], lengths_ns: NDArray[np.int64], *, exact: bool, most: int = MOST_GROUPS
) -> list[Group]:
    """Return the groups of windows, the one that most time was spent at first.

    Args:
        intervals_ns: i8[n], of each window: what a budget made of the one asked for, where there is a budget.
        lengths_ns: i8[n], how long each was.
        exact: there is no budget.
        most: groups; what is left over is in none.
    """
    left = np.ones(len(intervals_ns), bool)
    whole = max(float(lengths_ns.sum()), 1.0)
    found: list[Group] = []
    while left.any() and len(found) < most:
        at = np.flatnonzero(left)
        windows = np.zeros(len(left), bool)
        windows[at[_longest(intervals_ns[at], lengths_ns[at], exact)]] = True
        inside = intervals_ns[windows]
        fraction = float(lengths_ns[windows].sum()) / whole
        found.append(Group(windows, (int(inside.min()), int(inside.max())), fraction))
        left &= ~windows
    return found


def _longest(intervals_ns: NDArray[np.int64], lengths_ns: NDArray[np.int64], exact: bool) -> NDArray[np.bool_]:
    """Return the windows that are like one of them, and of which there was the most time."""
    values, place = ranked(intervals_ns)
    octaves = np.arange(len(values), dtype=float) * 2 if exact else np.log2(np.maximum(values, 1))
    until = np.concatenate(([0.0], np.cumsum(np.bincount(place, lengths_ns.astype(float), len(values)))))
    first = np.searchsorted(octaves, octaves - HALF_WIDTH, side="left")
    last = np.searchsorted(octaves, octaves + HALF_WIDTH, side="right")
    best = int(np.argmax(until[last] - until[first]))
    return np.asarray((place >= first[best]) & (place < last[best]))
