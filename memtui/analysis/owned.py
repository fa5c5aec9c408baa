"""Ranges that may lie in one another, as disjoint ones: an address belongs to the shortest range that holds it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.lean import distinct

Owned = tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.intp]]


def owned(first: NDArray[np.uint64], last: NDArray[np.uint64]) -> Owned:
    """Disjoint (starts, ends, number of the range), rising, of u8[n] ranges (half open, none empty) in any order."""
    edges = distinct(np.concatenate((first, last)))
    owner = np.full(len(edges), -1, np.intp)
    begin, stop = np.searchsorted(edges, first), np.searchsorted(edges, last)
    for i in np.argsort(first - last, kind="stable").tolist():  # wraps around: the longest first, shorter ones over it
        owner[begin[i] : stop[i]] = i
    cut = np.flatnonzero(np.diff(owner, prepend=-2))
    starts, owner = edges[cut], owner[cut]
    ends = np.append(starts[1:], edges[-1:])
    used = owner >= 0
    return starts[used], ends[used], owner[used]
