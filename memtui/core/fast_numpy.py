"""Functions of numpy that are faster done in another way.

From version 2.3 on ``np.unique`` hashes, which takes 20 to 50 times as long as sorting, and so do ``np.union1d`` and,
for numbers far apart, ``np.isin``. ``np.unique`` and ``np.median`` load ``numpy.ma`` at the first call: 20 ms, a
twentieth of what a replay has until its first picture. And what else is small and is asked for before that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

_TABLE = 6  # times the values: over so many numbers np.isin has a table


def distinct(values: np.ndarray) -> np.ndarray:
    """Return the values that occur, rising."""
    rising = np.sort(values)
    return rising[_new(rising)]


def union1d(*parts: ArrayLike) -> np.ndarray:
    """Return the values that occur in any of the arrays, rising."""
    return distinct(np.concatenate(parts))


def is_in(values: np.ndarray, rising: np.ndarray) -> np.ndarray:
    """Return which of the integers ``values`` are among ``rising``, in which numbers may occur twice."""
    if not len(rising):
        return np.zeros(len(values), bool)
    if int(rising[-1]) - int(rising[0]) <= _TABLE * (len(values) + len(rising)):
        return np.isin(values, rising)
    index = np.searchsorted(rising, values)
    index[index == len(rising)] = 0
    return rising[index] == values


def ranked(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values that occur, rising, and the index among them of every value."""
    order = np.argsort(values, kind="stable")
    rising = values[order]
    new = _new(rising)
    rank = np.empty(len(values), np.intp)
    rank[order] = np.cumsum(new) - 1
    return rising[new], rank


def median(values: np.ndarray) -> float:
    """Return the median of one or more numbers, none of them nan."""
    rising = np.sort(values)
    middle = len(rising) // 2
    return float(rising[middle]) if len(rising) % 2 else (float(rising[middle - 1]) + float(rising[middle])) / 2


def whole_sum(values: Iterable[Any]) -> Any:
    """Return the sum, or None as soon as one part is not known: half a tree is not the tree."""
    parts = list(values)
    return None if any(part is None for part in parts) else sum(parts)


def random_words(count: int) -> np.ndarray:
    """Return random numbers, u8[count], each with equal chances. ``numpy.random`` would load 7 MiB and take 13 ms."""
    return np.frombuffer(os.urandom(8 * count), np.uint64)


def _new(rising: np.ndarray) -> np.ndarray:
    return np.concatenate((np.ones(min(1, len(rising)), bool), rising[1:] != rising[:-1]))


def intervals_s(intervals_ns: np.ndarray, otherwise_ns: int) -> tuple[float, float]:
    """Return the shortest and longest of the intervals of windows; ``otherwise_ns`` where there is no window."""
    if not len(intervals_ns):
        return otherwise_ns / 1e9, otherwise_ns / 1e9
    return float(intervals_ns.min()) / 1e9, float(intervals_ns.max()) / 1e9
