"""A cache of decoded rows of adjacent keys: a reader that follows a session requests nearly the same ones again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
Rows = list[tuple[int, Pairs]]

KEEP_ROWS, KEEP_BYTES = 1 << 14, 64 << 20
# Fewer for short answers, those of a growing session: a small row takes twenty times the bytes of its numbers.
KEEP_SHORT = SHORT = 1 << 10


class RowCache:
    """Caches all rows with keys in ``[low, high)``; of a request only rows outside of it are read."""

    def __init__(self, read: Callable[[int, int], Rows]) -> None:
        """Cache nothing yet. ``read(low, high)`` returns the rows of a range of keys, by rising keys."""
        self._read = read
        self._rows: Rows = []
        self._bytes = self._low = self._high = 0

    def __len__(self) -> int:
        return len(self._rows)

    def between(self, low: int, high: int, final: int) -> Rows:
        """Return the rows of a range of keys; those from ``final`` on are not cached, as more may come between them."""
        # A hole that is wider than the request is not read: requests may be many, and far from one another.
        if low >= final or max(low - self._high, self._low - high) > high - low:
            if low >= final or high - low < self._high - self._low:
                return self._read(low, high)
            self._rows, self._bytes, self._low, self._high = [], 0, low, low
        if low < self._low:
            self._rows[:0] = self._more(low, self._low)
            self._low = low
        if high > self._high:
            self._rows += self._more(self._high, high)
        rows = self._rows[self._index(low) : self._index(high)]
        self._high = max(self._high, min(high, final))
        self._forget(self._index(self._high), len(self._rows))
        most = min(KEEP_SHORT, KEEP_ROWS) if len(rows) <= SHORT else KEEP_ROWS
        if len(self._rows) > most or self._bytes > KEEP_BYTES:
            self._trim(low, high)
        return rows

    def _more(self, low: int, high: int) -> Rows:
        rows = self._read(low, high)
        self._bytes += sum(map(_nbytes, rows))
        return rows

    def _trim(self, low: int, high: int) -> None:
        """Keep the rows that were just requested, if those are not too many themselves."""
        self._high = max(low, min(self._high, high))
        self._forget(self._index(self._high), len(self._rows))
        self._forget(0, self._index(low))
        self._low = low
        if len(self._rows) > KEEP_ROWS or self._bytes > KEEP_BYTES:
            self._forget(0, len(self._rows))
            self._high = low

    def _forget(self, first: int, last: int) -> None:
        self._bytes -= sum(map(_nbytes, self._rows[first:last]))
        del self._rows[first:last]

    def _index(self, key: int) -> int:
        return bisect_left(self._rows, key, key=_key)


def _key(row: tuple[int, Pairs]) -> int:
    return row[0]


def _nbytes(row: tuple[int, Pairs]) -> int:
    return row[1][0].nbytes + row[1][1].nbytes
