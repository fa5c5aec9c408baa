"""Clears accessed bits again after they were read, in proportion to the working set where that is sound.

* **full**: ``1`` into ``clear_refs`` visits every page of the process, touched or not: some 10 to 20 ms per GiB.
* **working-set**: only touched pages can be marked, so only their neighbourhood is cleared: private anonymous memory by
  ``process_madvise(MADV_COLD)`` over the 64 KiB around each touched page, files and shared memory by ``3`` into
  ``clear_refs``. Then the touched pages are read once more. What is still marked may be so new that the kernel had it
  in no list yet, and is tried again. A mark that stays (a page that is shared since a fork) makes its page *unknown* in
  the next window, and more than one hundredth of them are cleared in full. Side effect: what is touched becomes the
  first candidate for reclaim until it is touched again, so ``auto`` leaves it alone where reclaim is near, or when it
  would not be cheaper.

MADV_COLD on a part of a large folio would split it. So whole huge pages are covered, and of folios between those sizes
none: their pages stay for the full clear.
"""

from __future__ import annotations

import glob
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memtui.pageset import BLOCK_BYTES, PAGE_BYTES, PageSet
from memtui.probes.pages.base import TrackerError
from memtui.probes.pages.bpf import ARM64
from memtui.probes.pages.flush import COLD, FULL_FLUSH_PAGES, NOT_ON_ARM64, Flusher, Handle, madvise_cold_ranges
from memtui.probes.pages.new_pages import NewPages
from memtui.probes.pages.walk import Extents, Walk, Walker
from memtui.probes.pressure import reclaim_is_near

FULL, WORKING_SET = "full", "working-set"
REARMS = (WORKING_SET, FULL)

_LANE_PAGES = 16
_LANE_BYTES = _LANE_PAGES * PAGE_BYTES
_LANES_PER_BLOCK = BLOCK_BYTES // _LANE_BYTES
# First and last touched page of a range of this many lanes lie far enough apart, wherever in their lanes they are.
_FLUSHING_LANES = -(-(FULL_FLUSH_PAGES + 2 * (_LANE_PAGES - 1)) // _LANE_PAGES)
_UNKNOWN_SHARE, _UNKNOWN_BYTES = 0.01, 8 * PAGE_BYTES  # more than both is cleared in full
_PAGE_COST, _RANGE_COST = 2.2, 20  # of MADV_COLD, where clear_refs takes 1 for a page (measured: 100 ns, 1 us, 55 ns)
_HOPELESS_SHARE = 0.05  # this process has too many pages that cannot be cleared singly, not just some new ones:
_REST_WINDOWS = 16  # so many windows go by before it is tried again


@dataclass(frozen=True, slots=True, eq=False)
class Rearmed:
    """What was really done. ``unknown``: pages whose marks stayed, so that the next window cannot tell of them."""

    flush: str
    rearm: str
    unknown: PageSet


class Rearmer:
    """Flushes and clears, one process at a time."""

    def __init__(self, walker: Walker, flusher: Flusher, asked: str = "auto", *, paused: bool = True) -> None:
        """Choose.

        Args:
            walker: for reading marks again.
            flusher: for flushing where clearing does not do it on the way.
            asked: ``auto``, ``working-set`` or ``full``.
            paused: the target stands still meanwhile; only then can marks that stayed be told from new ones.

        Raises:
            TrackerError: that way does not work on this processor.
        """
        if asked not in (*REARMS, "auto"):
            raise ValueError(f"unknown rearm {asked!r}: one of auto, {', '.join(REARMS)}")
        if asked == WORKING_SET and ARM64:
            raise TrackerError(f"rearm {WORKING_SET} does not work here: {NOT_ON_ARM64}; auto and {FULL} would")
        self._walker, self._flusher, self._asked, self._paused = walker, flusher, asked, paused
        # Who chose another flush than cold may want the order of reclaim left alone.
        self._allowed = asked == WORKING_SET or (asked == "auto" and flusher.choice == COLD)
        self._rest: dict[int, int] = {}  # windows left in which a process is cleared in full
        self._new_pages = NewPages()
        self.choice = WORKING_SET if self._allowed else FULL

    def look_around(self, pids: tuple[int, ...]) -> None:
        """Take in what changes slowly. Call it now and then while nothing is paused."""
        self._flusher.large_folios = large_folios_exist()
        for pid in pids:
            self.look_at(pid)

    def look_at(self, pid: int) -> None:
        """Whether this process has to be cleared in full for a while: what is marked as cold is reclaimed first."""
        if self._asked == "auto" and reclaim_is_near(pid):
            self._rest[pid] = max(self._rest.get(pid, 0), _REST_WINDOWS)

    def forget(self, pid: int) -> None:
        self._rest.pop(pid, None)

    def close(self) -> None:
        self._new_pages.close()

    def rearm(self, handle: Handle, walk: Walk, touched: PageSet, resident_pages: int) -> Rearmed:
        """Flush and clear, so that the next walk sees what was touched since.

        Args:
            handle: of the process.
            walk: what the walk of this window met.
            touched: its pages, and those whose marks somebody else took: all that may be marked in any way.
            resident_pages: about how many pages a full clear would visit.
        """
        used = ""
        lanes = lanes_of(touched)
        runs = runs_of(lanes)
        if self._is_worth_it(handle.pid, lanes.size * _LANE_PAGES, len(runs[0]), resident_pages):
            used, left = self._by_working_set(handle, walk, touched, lanes)
            if left.size_bytes <= max(_UNKNOWN_SHARE * touched.size_bytes, _UNKNOWN_BYTES):
                # A flush looks for marks to clear; those of the first walk are gone.
                used = used or self._flusher.flush(handle, self._walker.walk(handle.pid))
                return Rearmed(used, WORKING_SET, left)
            if left.size_bytes > _HOPELESS_SHARE * touched.size_bytes:
                self._rest[handle.pid] = _REST_WINDOWS
            walk = walk if used else self._walker.walk(handle.pid)
        used = used or self._flusher.flush(handle, walk)
        handle.clear()
        return Rearmed(used, FULL, PageSet.empty())

    def _is_worth_it(self, pid: int, pages: int, ranges: int, resident_pages: int) -> bool:
        if not self._allowed:
            return False
        if rest := self._rest.pop(pid, 0):
            if rest > 1:
                self._rest[pid] = rest - 1
            return False
        return self._asked == WORKING_SET or _PAGE_COST * pages + _RANGE_COST * ranges < resident_pages

    def _by_working_set(
        self, handle: Handle, walk: Walk, touched: PageSet, lanes: NDArray[np.uint64]
    ) -> tuple[str, PageSet]:
        """(the flush that came with it, or nothing; pages whose marks stayed)."""
        kept = self._without_large_folios(handle.pid, touched, lanes) if self._flusher.large_folios else lanes
        runs = runs_of(kept)
        ranges = intersect(runs, walk.anonymous)
        flushing = flushing_ranges(runs, ranges, touched.huge)
        used = "" if len(flushing[0]) else self._flusher.flush(handle, walk)
        madvise_cold_ranges(handle.pidfd, *ranges)
        if len(kept) < len(lanes) or _length(ranges) < _length(runs):
            handle.clear_mapped_files()
        if not self._paused:
            return used or COLD, PageSet.empty()
        left = self._walker.marked(handle.pid, touched)
        if not used and flushed_in(flushing, touched, left):
            used = COLD
        again = intersect(runs_of(np.intersect1d(lanes_of(left), kept, assume_unique=True)), walk.anonymous)
        if len(again[0]):
            self._new_pages.settle()
            madvise_cold_ranges(handle.pidfd, *again)
            left = self._walker.marked(handle.pid, left)
        return used, left

    def _without_large_folios(self, pid: int, touched: PageSet, lanes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Lanes without a page of a large folio that is mapped page by page. A huge page is one, but mapped whole."""
        around = np.where(touched.bits.view("<u2") != 0, np.uint16(0xFFFF), np.uint16(0)).view(np.uint64)
        large = self._walker.large(pid, PageSet.from_blocks(touched.blocks, around))
        return np.setdiff1d(lanes, lanes_of(large), assume_unique=True)


def lanes_of(pages: PageSet) -> NDArray[np.uint64]:
    """Numbers (``address >> 16``) of the 64 KiB with a page of the set, rising; a huge page has all of its block."""
    row, column = np.nonzero(pages.bits.view("<u2").reshape(-1, _LANES_PER_BLOCK))
    found = pages.blocks[row] * np.uint64(_LANES_PER_BLOCK) + column.astype(np.uint64)
    if not len(pages.huge):
        return found
    every = np.arange(_LANES_PER_BLOCK, dtype=np.uint64)
    huge = pages.huge[:, None] * np.uint64(_LANES_PER_BLOCK) + every
    return np.union1d(found, huge.ravel())


def runs_of(lanes: NDArray[np.uint64]) -> Extents:
    """Start and end addresses of neighbouring lanes."""
    if not len(lanes):
        return lanes, lanes
    breaks = np.flatnonzero(np.diff(lanes) != 1)
    first, last = lanes[np.concatenate(([0], breaks + 1))], lanes[np.concatenate((breaks, [len(lanes) - 1]))]
    return first * np.uint64(_LANE_BYTES), (last + np.uint64(1)) * np.uint64(_LANE_BYTES)


def intersect(runs: Extents, mappings: Extents) -> Extents:
    """The parts of the runs that lie in mappings, each part in one mapping. All rising, none overlapping."""
    first = np.searchsorted(mappings[1], runs[0], side="right")
    last = np.searchsorted(mappings[0], runs[1], side="left")
    count = np.maximum(last - first, 0)
    run = np.repeat(np.arange(len(count)), count)
    mapping = np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count) + first[run]
    return np.maximum(runs[0][run], mappings[0][mapping]), np.minimum(runs[1][run], mappings[1][mapping])


def flushing_ranges(runs: Extents, ranges: Extents, huge: NDArray[np.uint64]) -> Extents:
    """Ranges over which MADV_COLD flushes the whole address space, when it clears every mark in them.

    It flushes from the first to the last mark that it cleared in one mapping. Of a run that no mapping cut, the first
    and the last lane have a touched page each. Huge pages count by 2 MiB, so ranges with one are left out.
    """
    starts, ends = ranges
    run = np.searchsorted(runs[1], starts, side="right")  # in which each of them lies
    whole = (runs[0][run] == starts) & (runs[1][run] == ends)
    whole &= ends - starts >= np.uint64(_FLUSHING_LANES * _LANE_BYTES)
    if len(huge):
        at = huge * np.uint64(BLOCK_BYTES)
        whole &= np.searchsorted(at, starts) == np.searchsorted(at, ends)
    return starts[whole], ends[whole]


def flushed_in(ranges: Extents, touched: PageSet, left: PageSet) -> bool:
    """Whether the marks that were cleared in one of the ranges lie so far apart that everything was flushed."""

    def within(pages: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        at = pages * np.uint64(PAGE_BYTES)
        return np.searchsorted(at, ranges[0]), np.searchsorted(at, ranges[1])

    first, end = within(left.pages())
    if (first == end).any():  # all of that range, which is long enough
        return True
    cleared = touched.difference(left).pages()
    first, end = within(cleared)
    some = first < end
    return bool((cleared[end[some] - 1] - cleared[first[some]] + np.uint64(1) >= FULL_FLUSH_PAGES).any())


def large_folios_exist() -> bool:
    """Whether any process of this machine has anonymous folios of several pages; yes when it is not known.

    The kernel counts them by size since Linux 6.13.
    """
    counts = glob.glob("/sys/kernel/mm/transparent_hugepage/hugepages-*/stats/nr_anon")
    try:
        return not counts or any(int(Path(path).read_text()) for path in counts)
    except (OSError, ValueError):
        return True


def _length(ranges: Extents) -> int:
    return int((ranges[1] - ranges[0]).sum())
