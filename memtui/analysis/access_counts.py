"""Touched memory over many windows together: page touches in each chunk of addresses, 64 KiB or more.

A session of hours has more windows than a picture has columns. The sum of 64 windows is a thirtieth of their page
sets, so the recorder stores such sums, and a sum of every 4 of them, three times over. A picture of hours is then the
mean of all its windows, computed from a few sums a column without decoding a single window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.heat_layout import Layout, intersect
from memtui.core.fast_numpy import distinct, union1d
from memtui.core.page_set import PageSet, parts_of
from memtui.core.page_sizes import BLOCK_SHIFT, GIANT_SHIFT, PAGE_BYTES, PAGE_SHIFT

SUMMED_SAMPLES = (64, 256, 1024, 4096)  # of a stored sum, by its level; the last one of a session may have fewer
CHUNK_SHIFT = 16
GROUP = 1 << BLOCK_SHIFT - CHUNK_SHIFT  # chunks; of 64 KiB they are a block of 2 MiB
MAX_GROUPS = 1 << 11  # of one sum, 4 GiB of 64 KiB; of more memory the chunks are larger
_BIT = np.uint64(1)
_PAGES = 1 << CHUNK_SHIFT - PAGE_SHIFT  # of a chunk; as many bits of a page set


@dataclass(frozen=True, slots=True, eq=False)
class TouchSum:
    """Touches of one process over some windows.

    Attributes:
        windows: number of windows that have a page set.
        shift: a chunk is ``1 << shift`` bytes, at least 64 KiB.
        groups: u8[n], rising; number of every group of 32 chunks with a touch, ``address >> shift + 5``.
        touches: i8[n, 32]; touched 4 KiB pages of each chunk, added up over the windows. A larger page counts as the
            4 KiB pages in it.
    """

    windows: int
    shift: int
    groups: NDArray[np.uint64]
    touches: NDArray[np.int64]

    @property
    def memory_bytes(self) -> int:
        """Memory that the sum itself takes."""
        return self.groups.nbytes + self.touches.nbytes

    def chunks(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return (number, touches) of the chunks with a touch: u8[k], rising, and i8[k]."""
        row, column = np.nonzero(self.touches)
        return self.groups[row] * np.uint64(GROUP) + column.astype(np.uint64), self.touches[row, column]

    def blocks(self, shift: int) -> NDArray[np.uint64]:
        """Return numbers (``address >> shift``) of the blocks in touched chunks, or around them: u8[k], rising."""
        chunks, _ = self.chunks()
        if shift >= self.shift:
            return distinct(chunks >> np.uint64(shift - self.shift))
        return parts_of(chunks, self.shift - shift)

    def coarser(self, shift: int) -> TouchSum:
        """Return the same sum in larger chunks."""
        result = self
        while result.shift < shift:
            result = result._halved()
        return result

    def _halved(self) -> TouchSum:
        pairs = self.touches.reshape(-1, GROUP // 2, 2).sum(axis=2)
        groups = distinct(self.groups >> _BIT)
        touches = np.zeros((len(groups), 2, GROUP // 2), np.int64)
        touches[np.searchsorted(groups, self.groups >> _BIT), (self.groups & _BIT).astype(np.intp)] = pairs
        return TouchSum(self.windows, self.shift + 1, groups, touches.reshape(-1, GROUP))


def add_up(sums: Sequence[TouchSum]) -> TouchSum:
    """Return the sum of sums, in the largest of their chunks, or in larger chunks until ``MAX_GROUPS`` are enough."""
    shift = max(part.shift for part in sums)
    sums = [part.coarser(shift) for part in sums]
    groups = union1d(*(part.groups for part in sums))
    touches = np.zeros((len(groups), GROUP), np.int64)
    for part in sums:
        touches[np.searchsorted(groups, part.groups)] += part.touches
    return _bounded(TouchSum(sum(part.windows for part in sums), shift, groups, touches))


class TouchTally:
    """Adds up the touched pages of one process, window after window."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._windows = 0
        self._groups = np.empty(0, np.uint64)
        self._touches = np.empty((0, GROUP), np.int64)

    def add(self, pages: PageSet) -> None:
        """Add one window."""
        self._windows += 1
        # 16 pages are 16 bits: a chunk is one number of the bitmap.
        self._add(pages.blocks, np.bitwise_count(pages.bits.astype("<u8", copy=False).view("<u2")))
        self._add(pages.huge, _PAGES)
        self._add(parts_of(pages.giant, GIANT_SHIFT - BLOCK_SHIFT), _PAGES)

    def pop(self) -> TouchSum | None:
        """Return the sum since the last call, in ``MAX_GROUPS`` at most; None if no window was added."""
        if not self._windows:
            return None
        total = TouchSum(self._windows, CHUNK_SHIFT, self._groups, self._touches)
        self._reset()
        return _bounded(total)

    def _add(self, blocks: NDArray[np.uint64], counts: NDArray[np.uint8] | int) -> None:
        if not len(blocks):
            return
        groups = union1d(self._groups, blocks)
        if len(groups) > len(self._groups):
            touches = np.zeros((len(groups), GROUP), np.int64)
            touches[np.searchsorted(groups, self._groups)] = self._touches
            self._groups, self._touches = groups, touches
        self._touches[np.searchsorted(self._groups, blocks)] += counts


class TouchLevels:
    """The tally of one process and the sums of sums that are not whole yet."""

    def __init__(self) -> None:
        self.tally = TouchTally()
        self._parts: list[list[TouchSum]] = [[] for _ in SUMMED_SAMPLES]  # by the level they add up to

    def end(self, samples: int) -> list[tuple[int, TouchSum]]:
        """Return the sums (level, sum) that end after this number of samples; those of level 0 always end."""
        last = next((n for n, length in enumerate(SUMMED_SAMPLES) if n and samples % length), len(SUMMED_SAMPLES))
        return self._end(last)

    def end_all(self) -> list[tuple[int, TouchSum]]:
        """Return the sums of all levels for a process that ended, complete or not."""
        return self._end(len(SUMMED_SAMPLES))

    def _end(self, levels: int) -> list[tuple[int, TouchSum]]:
        finished = []
        self._parts[0] = [total] if (total := self.tally.pop()) is not None else []
        for level, parts in enumerate(self._parts[:levels]):
            if not parts:
                continue
            finished.append((level, add_up(parts)))
            parts.clear()
            if level + 1 < len(self._parts):
                self._parts[level + 1].append(finished[-1][1])
        return finished


def bin_sum(touched: TouchSum | None, layout: Layout) -> NDArray[np.float32]:
    """Return the touched share of each bin, the mean of the windows: ``heat_map.bin_column`` for many windows at once.

    Where in a chunk the touches were is not known: they are spread over the part of the chunk that the layout shows.

    Args:
        touched: the sum; None when no sum is known.
        layout: see ``Layout.build``.

    Returns:
        f4[layout.rows * layout.subrows], 0..1 from the top; nan in gaps, below the last band and without windows.
    """
    count = len(layout.bin_bytes)
    if touched is None:
        return np.full(count, np.nan, np.float32)
    chunks, touches = touched.chunks()
    shift = np.uint64(touched.shift)
    starts, ends, piece = intersect(layout.starts, layout.ends, chunks << shift, (chunks + _BIT) << shift)
    chunk = np.searchsorted(chunks, starts >> shift)
    size_bytes = (ends - starts).astype(np.float64)
    shown_bytes = np.bincount(chunk, size_bytes, len(chunks))[chunk]
    density = np.minimum(touches[chunk] * PAGE_BYTES / (touched.windows * shown_bytes), 1.0)
    return layout.shares(np.bincount(layout.bins[piece], density * size_bytes, count))


def _bounded(touched: TouchSum) -> TouchSum:
    while len(touched.groups) > MAX_GROUPS and touched.shift < GIANT_SHIFT:
        touched = touched.coarser(touched.shift + 1)
    return touched
