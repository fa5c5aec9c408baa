"""Bounds on the reuse distance of touched pages, window by window.

The reuse distance of a touch is its LRU stack distance: the bytes of the distinct pages touched since the last touch
of the same page, that page included. Order inside a window is unknown, so a page seen in windows i < j has

    upper = |S_i u ... u S_j|        lower = its own size + |S_(i+1) u ... u S_(j-1)|

(MemSnoop, ``reusedistance.jl``). With ``c[k]`` the bytes of the pages whose last touch is in window k, before and
after window j is counted, these are suffix sums: ``upper = sum(c_after[i:])``, ``lower = size + sum(c_before[i+1:])``.
A window therefore costs one gather, one bincount and one cumulative sum: no sets, no loop over pages.

What lies between the bounds has three parts: pages of window i alone, of window j alone, and of both. With ``left[i]``
the bytes of window i that are touched again in window j they are ``c_after[i]``, ``|S_j| - sum(left[i:])`` and
``left[i] - size``. They are what an estimate needs (``reuse_estimate.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.working_set import select
from memtui.core.fast_numpy import distinct, is_in
from memtui.core.page_set import PageSet, parts_of
from memtui.core.page_sizes import BLOCK_BYTES, BLOCK_SHIFT, GIANT_BYTES, GIANT_SHIFT, PAGE_BYTES, PAGES_PER_BLOCK

_U = np.uint64
_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class ReuseSample:
    """The reuse distances of one window: one entry per distinct earlier window and page size.

    A touch is counted once per page and window, whatever the page's size.

    Attributes:
        first_touches: pages never seen before.
        first_touch_bytes: size of those pages.
        upper_bytes: i8[k], upper bound of the distance.
        lower_bytes: i8[k], lower bound of the distance; at most the upper one.
        counts: i8[k], touches with these bounds; above 0.
        earlier_bytes: i8[k], part of what lies between the bounds: pages of the window of the last touch that are
            touched neither now nor in between. None: not known (sessions of an older format).
        later_bytes: i8[k], another part: pages of this window that were touched neither then nor in between. The rest
            are pages of both windows.
        windows_ago: i8[k], how many windows ago the last touch was: 1 is the one before. Windows in which nothing was
            touched do not count. None: not known, as of what is stored.
    """

    first_touches: int
    first_touch_bytes: int
    upper_bytes: NDArray[np.int64]
    lower_bytes: NDArray[np.int64]
    counts: NDArray[np.int64]
    earlier_bytes: NDArray[np.int64] | None = None
    later_bytes: NDArray[np.int64] | None = None
    windows_ago: NDArray[np.int64] | None = None

    @property
    def touches(self) -> int:
        """All touches of the window, first touches included."""
        return self.first_touches + int(self.counts.sum())


class ReuseTracker:
    """Last window of every page of one process and address-space generation.

    Memory: 2 KiB per 2 MiB block with a touched 4 KiB page (0.1 %), 4 bytes per window, 12 bytes per larger page.

    Page sizes may change. When a 2 MiB block of 4 KiB pages is touched as one huge page (THP collapse), the page
    inherits the newest window of its base pages, whose bytes leave the counts. When a huge page is touched in parts
    (split), its 512 base pages inherit its window. The same holds for 1 GiB pages. A page set that has a block in two
    sizes (a walk that met a collapse) counts it in the larger one.

    Reuse across munmap and mmap of one address counts as reuse: a stated limit.
    """

    def __init__(self) -> None:
        # Window numbers are stored, 0 for never: fresh zeroed memory costs nothing until it is written.
        self._pages = _PageTable()
        self._huge = _NumberTable()
        self._giant = _NumberTable()
        self._windows = 0
        # Windows that still have pages own a slot, in order of time; slot 0 stands for "never" and holds no bytes.
        self._slot_of = np.zeros(1024, np.intp)  # by window
        self._window_of = np.zeros(1024, np.int32)  # by slot
        self._bytes = np.zeros(1024, np.int64)  # by slot: c[k] above
        self._slots = 1
        self._compact_slots = 512

    @property
    def seen_bytes(self) -> int:
        """Bytes of all pages seen so far."""
        return int(self._bytes[: self._slots].sum())

    @property
    def memory_bytes(self) -> int:
        """Memory of the tables, unused reserve included."""
        arrays: list[np.ndarray] = [self._slot_of, self._window_of, self._bytes]
        for table in (self._pages, self._huge, self._giant):
            arrays += table.arrays
        return sum(array.nbytes for array in arrays)

    def touch(self, pages: PageSet, within: tuple[int, int] | None = None) -> ReuseSample:
        """Count the next window. Call it for windows in order of time; leave out those without a page set.

        Args:
            pages: the touched pages of the window.
            within: start and end of a range in bytes, multiples of 4096: count the touches in the range only. All pages
                still count for the distances, so the counts of ranges that share no page add up to the whole.

        Returns:
            The bounds of every touch. Entries of one page size run from the farthest to the nearest window.
        """
        pages = drop_nested_pages(pages)
        if not (len(pages.blocks) or len(pages.huge) or len(pages.giant)):
            return ReuseSample(0, 0, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE)
        self._split(pages)
        window = self._windows + 1
        slots = self._slots
        before = self._bytes[:slots]

        small_positions = self._pages.positions(pages)
        huge_positions = self._huge.positions(pages.huge)
        giant_positions = self._giant.positions(pages.giant)
        small = self._pages.last[small_positions]
        huge = self._huge.last[huge_positions]
        giant = self._giant.last[giant_positions]
        left = np.zeros(slots, np.int64)  # bytes that leave each slot
        self._collapse_huge(pages.huge, huge, left)
        self._collapse_giant(pages.giant, giant, left)

        seen = self._by_slot(small, huge, giant)
        for touches, size in seen:
            left += touches * size
        if within is not None:
            part = select(pages, within[:1], within[1:], (True,))
            seen = self._by_slot(
                self._pages.last[self._pages.positions(part)],
                huge[is_in(pages.huge, part.huge)],
                giant[is_in(pages.giant, part.giant)],
            )
        first_touches = sum(int(touches[0]) for touches, _ in seen)
        first_touch_bytes = sum(int(touches[0]) * size for touches, size in seen)
        left[0] = 0
        after = before - left
        now_bytes = len(small) * PAGE_BYTES + len(huge) * BLOCK_BYTES + len(giant) * GIANT_BYTES

        # Sums of c over the slots from i on (after) and beyond i (before).
        tail_after = np.cumsum(after[::-1])[::-1] + now_bytes
        tail_before = np.cumsum(before[::-1])[::-1] - before
        columns: list[tuple[NDArray[np.int64], ...]] = [(_NONE,) * 6]
        for touches, size in seen:
            touches[0] = 0
            used = np.flatnonzero(touches)
            upper, lower, earlier = tail_after[used], tail_before[used] + size, after[used]
            # A page that collapsed inherits from a smaller one: then less than its size left that window.
            both = np.minimum(np.maximum(left[used] - size, 0), upper - lower - earlier)
            later = upper - lower - earlier - both
            counts = touches[used].astype(np.int64, copy=False)
            columns.append((upper, lower, counts, earlier, later, window - self._window_of[used].astype(np.int64)))

        self._pages.last[small_positions] = window
        self._huge.last[huge_positions] = window
        self._giant.last[giant_positions] = window
        self._bytes[:slots] = after
        self._append(window, now_bytes)
        return ReuseSample(first_touches, first_touch_bytes, *map(np.concatenate, zip(*columns, strict=True)))

    def _by_slot(self, *last: NDArray[np.int32]) -> list[tuple[NDArray[np.intp], int]]:
        """Return touches by slot of their last window and page size: 4 KiB, 2 MiB and 1 GiB pages, if there are any."""
        sizes = PAGE_BYTES, BLOCK_BYTES, GIANT_BYTES
        return [
            (np.bincount(self._slot_of[windows], minlength=self._slots), size)
            for windows, size in zip(last, sizes, strict=True)
            if len(windows)
        ]

    def _append(self, window: int, size: int) -> None:
        """Give the window a slot with its bytes; drop the slots without pages now and then."""
        if self._slots >= self._compact_slots:
            # No page names a window without bytes any more, so only slot numbers change: the page tables need not be
            # touched. Doubling the limit makes this free on average.
            live = np.flatnonzero(self._bytes[: self._slots])
            end = len(live) + 1
            self._bytes[1:end] = self._bytes[live]
            self._window_of[1:end] = self._window_of[live]
            self._slot_of[self._window_of[1:end]] = np.arange(1, end)
            self._slots, self._compact_slots = end, max(512, 2 * end)
        if self._slots == len(self._bytes):
            self._bytes = _longer(self._bytes)
            self._window_of = _longer(self._window_of)
        if window == len(self._slot_of):
            self._slot_of = _longer(self._slot_of)
        self._windows = window
        self._bytes[self._slots] = size
        self._window_of[self._slots] = window
        self._slot_of[window] = self._slots
        self._slots += 1

    def _split(self, pages: PageSet) -> None:
        """Split larger pages that are now touched in parts into those parts. No bytes move between windows."""
        if len(self._giant.keys):
            touched: NDArray[np.uint64] = np.concatenate((pages.blocks, pages.huge)) >> _U(9)
            giants: NDArray[np.uint64] = distinct(touched[is_in(touched, self._giant.seen())])
            positions = self._giant.positions(giants)
            parts = parts_of(giants, GIANT_SHIFT - BLOCK_SHIFT)
            part_positions = self._huge.positions(parts)  # can replace `last`: before it is looked up
            self._huge.last[part_positions] = np.repeat(self._giant.last[positions], 512)
            self._giant.last[positions] = 0
        if len(self._huge.keys) and len(pages.blocks):
            blocks = pages.blocks[is_in(pages.blocks, self._huge.seen())]
            positions = self._huge.positions(blocks)
            rows = self._pages.rows(blocks)
            self._pages.table[rows] = self._huge.last[positions][:, None]
            self._huge.last[positions] = 0

    def _collapse_huge(self, numbers: NDArray[np.uint64], last: NDArray[np.int32], left: NDArray[np.int64]) -> None:
        """Let huge pages that were never huge before inherit from their base pages: changes ``last`` and ``left``."""
        new = np.flatnonzero(last == 0)
        row, matches = self._pages.find(numbers[new])
        if len(row):
            last[new[matches]] = self._clear(self._pages.table, row, PAGE_BYTES, left)
            self._uncount(last[new[matches]], BLOCK_BYTES, left)

    def _collapse_giant(self, numbers: NDArray[np.uint64], last: NDArray[np.int32], left: NDArray[np.int64]) -> None:
        for i in np.flatnonzero(last == 0):  # a handful in a session
            blocks = numbers[i] * _U(512) + np.arange(512, dtype=_U)
            huge = self._clear(self._huge.last, self._huge.find(blocks)[0], BLOCK_BYTES, left)
            base = self._clear(self._pages.table, self._pages.find(blocks)[0], PAGE_BYTES, left)
            last[i] = max(huge.max(initial=0), base.max(initial=0))
            self._uncount(last[i : i + 1], GIANT_BYTES, left)

    def _clear(self, table: np.ndarray, row: NDArray[np.intp], size: int, left: NDArray[np.int64]) -> np.ndarray:
        """Forget rows of a table of last windows, whose bytes leave; returns the newest window of each row."""
        old = table[row]
        left += np.bincount(self._slot_of[old[old > 0]], minlength=len(left)) * size
        table[row] = 0
        return old if old.ndim == 1 else old.max(axis=1, initial=0)

    def _uncount(self, inherited: NDArray[np.int32], size: int, left: NDArray[np.int64]) -> None:
        """Undo that ``touch`` subtracts each larger page from the window it inherits: its bytes never counted there."""
        left -= np.bincount(self._slot_of[inherited], minlength=len(left)) * size


class _NumberTable:
    """Last window by page number, as two parallel arrays: rising numbers, and windows."""

    def __init__(self) -> None:
        self.keys = np.empty(0, np.uint64)
        self.last = np.empty(0, np.int32)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.keys, self.last

    def seen(self) -> NDArray[np.uint64]:
        """Return the numbers that are mapped in this size now, as far as known."""
        return self.keys[self.last > 0]

    def positions(self, numbers: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return where the rising numbers are in ``last``; new numbers are inserted with window 0."""
        positions, present = _locate(self.keys, numbers)
        if not present.all():
            new = ~present
            self.keys = np.insert(self.keys, positions[new], numbers[new])
            self.last = np.insert(self.last, positions[new], 0)
            positions = np.searchsorted(self.keys, numbers)
        return positions

    def find(self, numbers: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the positions of the numbers in the table, and the indices of those numbers."""
        positions, present = _locate(self.keys, numbers)
        return positions[present], np.flatnonzero(present)


class _PageTable:
    """Last window of every 4 KiB page: a row of 512 per 2 MiB block, rows in order of arrival."""

    def __init__(self) -> None:
        self.keys = np.empty(0, np.uint64)  # rising block numbers
        self._row = np.empty(0, np.intp)  # the row of each
        self.table = np.zeros((16, PAGES_PER_BLOCK), np.int32)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.keys, self._row, self.table

    @property
    def last(self) -> NDArray[np.int32]:
        """The table as one dimension (a view)."""
        return self.table.reshape(-1)

    def rows(self, blocks: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return the row of each of the rising block numbers; new ones get a row of zeros."""
        positions, present = _locate(self.keys, blocks)
        if not present.all():
            new = ~present
            used = len(self.keys)
            need = used + int(new.sum())
            if need > len(self.table):
                # Half as much again: rows are many megabytes in large processes, and unused ones are only reserved.
                table = np.zeros((max(need, len(self.table) * 3 // 2), PAGES_PER_BLOCK), np.int32)
                table[:used] = self.table[:used]
                self.table = table
            self._row = np.insert(self._row, positions[new], np.arange(used, need))
            self.keys = np.insert(self.keys, positions[new], blocks[new])
            positions = np.searchsorted(self.keys, blocks)
        return self._row[positions]

    def find(self, blocks: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the rows of the blocks in the table, and the indices of those blocks."""
        positions, present = _locate(self.keys, blocks)
        return self._row[positions[present]], np.flatnonzero(present)

    def positions(self, pages: PageSet) -> NDArray[np.intp]:
        """Return where the touched 4 KiB pages are in ``last``."""
        base = self.rows(pages.blocks) * PAGES_PER_BLOCK
        bitmap = pages.bits.reshape(-1)
        used = np.flatnonzero(bitmap)  # scattered pages leave most words empty: unpack only the others
        bit = np.flatnonzero(
            np.unpackbits(bitmap[used].astype("<u8", copy=False).view(np.uint8), bitorder="little").view(np.bool_)
        )
        start = base[used >> 3] + ((used & 7) << 6)
        return start[bit >> 6] + (bit & 63)


def _locate(keys: NDArray[np.uint64], numbers: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return where each number is, or belongs, in the rising keys; and whether the keys contain it."""
    positions = np.searchsorted(keys, numbers)
    if not len(keys):
        return positions, np.zeros(len(numbers), np.bool_)
    return positions, keys[np.minimum(positions, len(keys) - 1)] == numbers


def _longer(array: np.ndarray) -> np.ndarray:
    return np.concatenate((array, np.zeros_like(array)))


def drop_nested_pages(pages: PageSet) -> PageSet:
    """Drop the pages that lie inside a larger touched page."""
    blocks, bits, huge = pages.blocks, pages.bits, pages.huge
    if len(pages.giant):
        huge = huge[~is_in(huge >> _U(9), pages.giant)]
    larger = is_in(blocks, huge) if len(huge) else np.zeros(len(blocks), np.bool_)
    if len(pages.giant):
        larger |= is_in(blocks >> _U(9), pages.giant)
    if larger.any():
        blocks, bits = blocks[~larger], bits[~larger]
    return PageSet(blocks, bits, huge, pages.giant)
