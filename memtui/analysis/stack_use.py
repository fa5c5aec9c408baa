"""Touched and resident bytes by call stack: the blocks of a capture, and the pages of a window.

A block that was there in the whole window counts for its stack. Where blocks came or went meanwhile, bytes count for a
stack if no other one had a block there in that window, else for none. Which of the blocks in a page was touched is not
known: each counts its own bytes of it, as tensors do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.stack_capture import NO_ADDRESS, StackCapture
from memtui.analysis.working_set import bytes_in
from memtui.core.fast_numpy import union1d
from memtui.core.page_set import PageSet

SLACK_NS = 5_000_000
"""What is between the clock of memray's readings, in ms, and where in the capture they are: they wait for a lock."""
_SHARED = -2


@dataclass(frozen=True, slots=True, eq=False)
class StackUse:
    """Bytes of one window by stack; the last number of each array is of blocks without a known stack: i8[stacks + 1].

    Attributes:
        steady_bytes: of blocks that were there in the whole window.
        touched_bytes: bytes of these that lie in touched pages.
        passing_bytes: touched bytes where blocks of this stack, and of no other, came or went in the window.
        resident_bytes: bytes of the steady blocks that lie in resident pages; None: not recorded.
        shared_bytes: touched bytes where blocks of several stacks came or went.
        outside_bytes: touched bytes where no block was.
    """

    steady_bytes: NDArray[np.int64]
    touched_bytes: NDArray[np.int64]
    passing_bytes: NDArray[np.int64]
    resident_bytes: NDArray[np.int64] | None
    shared_bytes: int
    outside_bytes: int


def has_places(capture: StackCapture) -> bool:
    """Return whether a capture has addresses and times, without which no page is of any block."""
    return len(capture.readings) > 0 and bool((capture.blocks.address != NO_ADDRESS).any())


def covers(capture: StackCapture, start_ns: int, end_ns: int) -> bool:
    """Return whether a window lies within a capture."""
    return capture.start_ns <= start_ns and end_ns <= capture.end_ns


def stack_use(
    capture: StackCapture, start_ns: int, end_ns: int, pages: PageSet, resident: PageSet | None = None
) -> StackUse:
    """Return the use of one window that the capture covers, from the pages that were touched in it.

    ``resident``: the pages that were resident at its end.
    """
    blocks, readings = capture.blocks, capture.readings
    first = readings.rows_before(start_ns - SLACK_NS) or 0  # rows that were certainly before the window
    last = readings.rows_until(end_ns + SLACK_NS)
    last = capture.rows if last is None else last  # rows from here on were certainly after it
    there = (blocks.allocated < last) & (blocks.freed >= first) & (blocks.size_bytes > 0) & (blocks.address >= 0)
    steady = there & (blocks.allocated < first) & (blocks.freed >= last)
    passing = there & ~steady
    count = len(capture.stacks) + 1
    start, end, owner, is_steady = _owners(blocks.columns, steady, passing)
    touched = bytes_in(pages, start, end)

    def by_stack(values: NDArray[np.int64], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        # A remainder makes the stack that is not known, -1, the last one. Exact: fewer than 2**53.
        return np.bincount(owner[mask] % count, values[mask], count).astype(np.int64)

    passes = ~is_steady & (owner != _SHARED)
    return StackUse(
        steady_bytes=capture.sums(steady)[0],
        touched_bytes=by_stack(touched, is_steady),
        passing_bytes=by_stack(touched, passes),
        resident_bytes=None if resident is None else by_stack(bytes_in(resident, start, end), is_steady),
        shared_bytes=int(touched[owner == _SHARED].sum()),
        outside_bytes=pages.size_bytes - int(touched.sum()),
    )


def _owners(
    columns: NDArray[np.int64], steady: NDArray[np.bool_], passing: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return disjoint ranges by address: (starts, ends, stacks, whether of a steady block).

    Of steady blocks in one another the newest is the owner; steady blocks come before those that pass. Several stacks
    of passing blocks are ``_SHARED``.
    """
    address, size_bytes, stack = columns[:3]
    newest = np.flatnonzero(steady)
    # What comes and goes at the same address, over and over, is one range.
    some = np.unique(np.stack((address[passing], address[passing] + size_bytes[passing], stack[passing])), axis=1)
    starts = np.concatenate((address[newest], some[0]))
    ends = np.concatenate((address[newest] + size_bytes[newest], some[1]))
    edges = union1d(starts, ends)
    pieces = max(len(edges) - 1, 0)
    first, last = np.searchsorted(edges, starts), np.searchsorted(edges, ends)
    of_steady = _cover(first[: len(newest)], last[: len(newest)], newest, pieces)[1]
    low, high = _cover(first[len(newest) :], last[len(newest) :], some[2], pieces)
    is_steady = of_steady >= 0
    owner = np.where(low == high, low, _SHARED)
    owner[is_steady] = stack[of_steady[is_steady]]
    used = is_steady | (high > np.iinfo(np.int64).min)
    return edges[:-1][used], edges[1:][used], owner[used], is_steady[used]


def _cover(
    first: NDArray[np.intp], last: NDArray[np.intp], value: NDArray[np.int64], pieces: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the least and the greatest value of the ranges over each piece: i8[pieces]; impossible where none is."""
    limits = np.iinfo(np.int64)
    low, high = np.full(pieces, limits.max), np.full(pieces, limits.min)
    if not len(first):
        return low, high
    # A range is two overlapping ones whose length is a power of two; those of a length are halved into the next one.
    # What is in one another n deep takes room for n pieces, not for n**2.
    level = np.frexp((last - first).astype(float))[1] - 1
    for power in range(int(level.max()), -1, -1):
        ranges = level == power
        for start in (first[ranges], last[ranges] - (1 << power)):
            np.minimum.at(low, start, value[ranges])
            np.maximum.at(high, start, value[ranges])
        if power:
            half = 1 << (power - 1)
            low[half:] = np.minimum(low[half:], low[:-half])
            high[half:] = np.maximum(high[half:], high[:-half])
    return low, high
