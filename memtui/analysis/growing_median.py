"""The median of numbers that become a few more, in a small part of the time and memory that sorting all of them takes.

However a few more numbers lie, the median moves by half as many places at most: of all numbers only those around the
middle are kept.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_SPARE = 2  # places at both ends: the median of an even number of values is of two of them


class GrowingMedian:
    """The median of numbers, none of them nan."""

    def __init__(self, parts: Iterable[NDArray[np.float64]], more: int, most: int) -> None:
        """Begin with some values.

        Args:
            parts: of the values. Only one array is ever as long as all of them.
            more: how many values can be added.
            most: no more values are in the parts.
        """
        rising, length = np.empty(most), 0
        for part in parts:
            rising[length : length + len(part)] = part
            length += len(part)
        rising = rising[:length]
        rising.sort()
        self._count, self._left = len(rising), more
        half = more // 2 + 1 + _SPARE
        self._below = max(0, self._count // 2 - half)
        last = min(self._count, self._count // 2 + half)
        self._any_above = last < self._count
        self._near: list[float] = rising[self._below : last].tolist()

    def __len__(self) -> int:
        return self._count

    @property
    def left(self) -> int:
        """Number of values that can still be added."""
        return self._left

    def add(self, values: NDArray[np.float64]) -> None:
        """Add values.

        Raises:
            ValueError: there are more than were announced.
        """
        self._left -= len(values)
        if self._left < 0:
            raise ValueError("more values than were announced")
        self._count += len(values)
        for value in values.tolist():
            if self._below and value < self._near[0]:
                self._below += 1
            elif not (self._any_above and value > self._near[-1]):
                insort(self._near, value)

    @property
    def value(self) -> float | None:
        """The median; None without any value."""
        if not self._count:
            return None
        middle = self._count // 2 - self._below
        return self._near[middle] if self._count % 2 else (self._near[middle - 1] + self._near[middle]) / 2
