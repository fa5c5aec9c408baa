"""Address space over time, and nested ranges as disjoint ones: an address is in the shortest range that holds it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memtui.core.fast_numpy import union1d


class Mapped(Protocol):
    """A range and the samples in which the range was mapped, the last one included."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def first_sample(self) -> int: ...
    @property
    def last_sample(self) -> int: ...


def mapped_bytes(rows: Iterable[Mapped], sample: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return f8[n]: address space in each window; a range counts with the extent it has over the session.

    Args:
        rows: ranges of all processes.
        sample: i8[n], rising numbers of the windows.
    """
    totals = np.zeros(len(sample))
    for row in rows:
        low = np.searchsorted(sample, row.first_sample)
        high = np.searchsorted(sample, row.last_sample, side="right")
        totals[low:high] += row.end - row.start
    return totals


Owned = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.intp]]


def owned(first: NDArray[np.uint64], last: NDArray[np.uint64]) -> Owned:
    """Return disjoint (starts, ends, number of the range), rising, from u8[n] ranges (half open, not empty)."""
    edges = union1d(first, last)
    owner = np.full(len(edges), -1, np.intp)
    start, stop = np.searchsorted(edges, first), np.searchsorted(edges, last)
    for i in np.argsort(first - last, kind="stable").tolist():  # wraps around: the longest first, shorter ones over it
        owner[start[i] : stop[i]] = i
    cut = np.flatnonzero(np.diff(owner, prepend=-2))
    starts, owner = edges[cut], owner[cut]
    ends = np.append(starts[1:], edges[-1:])
    used = owner >= 0
    return starts[used], ends[used], owner[used]
