"""Clears accessed bits after they were read (re-arms them), in proportion to the working set where that is sound.

* **full**: writing ``1`` to ``clear_refs`` visits every page of the process, accessed or not: 10 to 20 ms per GiB.
* **working-set**: only accessed pages can have the bit set, so only their neighbourhood is cleared: private anonymous
  memory by ``process_madvise(MADV_COLD)`` from each accessed page to the next one nearby, files and shared memory by
  writing ``3`` to ``clear_refs``. Then the accessed pages are read once more. A page whose bit stays set after a second
  try (a page shared since a fork) is *unknown* in the next window; of a process that runs meanwhile, whose bits may be
  new, this is a page that MADV_COLD passes over. Where more than one page in a hundred is unknown, the process is
  cleared in full. Side effect: accessed pages become the first candidates for reclaim until they are accessed again, so
  ``auto`` does not use this way where reclaim is near, or where it would not be cheaper.

MADV_COLD on a part of a large folio would split the folio. So ranges cover whole huge pages and leave out folios of
other sizes: their pages wait for a full clear. Several CPUs can clear ranges at once; ``clear_refs`` uses one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memtui.core.options import REARMS
from memtui.core.page_set import PageSet, parts_of
from memtui.core.page_sizes import BLOCK_BYTES, BLOCK_SHIFT, PAGE_BYTES
from memtui.probes.memory_pressure import reclaim_is_near
from memtui.probes.pages.pagetable.bpf_loader import ARM64
from memtui.probes.pages.pagetable.lru_drain import LruDrain
from memtui.probes.pages.pagetable.parallel_walk import SplitWalker
from memtui.probes.pages.pagetable.walk_result import Extents, Walk
from memtui.probes.pages.thread_pool import Future
from memtui.probes.pages.tlb_flush import (
    COLD,
    FULL_FLUSH_PAGES,
    NOT_ON_ARM64,
    OFF,
    Flusher,
    Handle,
    madvise_cold_ranges,
    spans,
)
from memtui.probes.pages.tracker import TrackerError

_, WORKING_SET, FULL = REARMS

Lanes = tuple[NDArray[np.uint64], NDArray[np.uint8]]  # rising numbers, and a bit for each accessed page
_LANE_PAGES, _LANE_SHIFT, _LANE_BITS = 8, np.uint64(15), 6
_LANES_PER_BLOCK = 1 << _LANE_BITS
_BYTES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_BEFORE_FIRST = np.argmax(_BYTES, axis=1).astype(np.uint64) * np.uint64(PAGE_BYTES)  # by the pages of a lane, in bytes
_TO_LAST = (np.uint64(_LANE_PAGES) - np.argmax(_BYTES[:, ::-1], axis=1).astype(np.uint64)) * np.uint64(PAGE_BYTES)
# However a range was cut: its first and last accessed page are less than two lanes from its ends.
_FLUSHING_PAGES = FULL_FLUSH_PAGES + 2 * (2 * _LANE_PAGES - 1)
_UNKNOWN_SHARE, _UNKNOWN_BYTES = 0.01, 8 * PAGE_BYTES  # more than both is cleared in full
_PAGE_COST, _RANGE_COST = 1.5, 20  # of MADV_COLD, where clear_refs takes 1 for a page (measured: 85 ns, 1.1 us, 57 ns)
_THREAD_GAIN = 0.6  # speed that each further thread adds, by that of the first (measured with two: 0.6 to 1.2)
_PART_COST = 10_000  # of the pages that justify a further thread: half a ms
_PIECES = 4  # for each thread
CLEAR_MOST_PAGES = 1 << 18  # a GiB: less is cleared in full within some 15 ms
# With more pages whose bits stay set, the process has pages that cannot be cleared singly, and not just some new ones.
_GIVE_UP_SHARE = 0.05
_RETRY_AFTER_WINDOWS = 16  # windows that are cleared in full before the working set is tried again


@dataclass(frozen=True, slots=True, eq=False)
class Rearmed:
    """What was really done. ``unknown``: pages whose bits stayed set, of which the next window can say nothing."""

    flush: str
    rearm: str
    unknown: PageSet


class Rearmer:
    """Flushes the TLB and clears accessed bits, one process at a time."""

    def __init__(
        self,
        readers: SplitWalker,
        flusher: Flusher,
        requested: str = "auto",
        *,
        paused: bool = True,
        running: Container[int] = (),
    ) -> None:
        """Choose how to clear.

        Args:
            readers: for reading accessed bits again; their threads clear.
            flusher: for flushing where clearing does not flush on the way.
            requested: ``auto``, ``working-set`` or ``full``.
            paused: targets stand still meanwhile; else bits that stayed set cannot be told from new ones by themselves.
            running: processes that run all the same.

        Raises:
            TrackerError: the requested way does not work on this processor.
        """
        if requested not in REARMS:
            raise ValueError(f"unknown rearm {requested!r}: one of {', '.join(REARMS)}")
        if requested == WORKING_SET and ARM64:
            raise TrackerError(f"rearm {WORKING_SET} does not work here: {NOT_ON_ARM64}; auto and {FULL} would")
        self._readers, self._walker, self._pool = readers, readers.first, readers.pool
        self._flusher, self._requested, self._paused, self._running = flusher, requested, paused, running
        # A user who chose another flush than cold may want the order of reclaim left alone.
        self._allowed = requested == WORKING_SET or (requested == "auto" and flusher.choice == COLD)
        self._full_windows: dict[int, int] = {}  # windows left in which a process is cleared in full
        self._with_files: set[int] = set()  # processes that accessed mapped files in their last window
        self._lru_drain = LruDrain()
        self.choice = WORKING_SET if self._allowed else FULL

    def refresh(self, pids: tuple[int, ...]) -> None:
        """Read what changes slowly: whether large folios exist, and whether reclaim is near. Nothing may be paused."""
        self._flusher.large_folios = large_folios_exist()
        for pid in pids:
            self.check_reclaim(pid)

    def check_reclaim(self, pid: int) -> None:
        """Have a process cleared in full for a while where reclaim is near: MADV_COLD makes pages go first."""
        if self._requested == "auto" and reclaim_is_near(pid):
            self._full_windows[pid] = max(self._full_windows.get(pid, 0), _RETRY_AFTER_WINDOWS)

    def forget(self, pid: int) -> None:
        self._full_windows.pop(pid, None)
        self._with_files.discard(pid)

    def close(self) -> None:
        self._lru_drain.close()

    def clear_most(self, handle: Handle, walk: Walk) -> bool:
        """Clear most accessed bits of a large process while it runs, so that few are left for its first pause.

        Returns whether that was done. The bits of one span stay set: a flush needs bits to clear.
        """
        if not self._allowed or handle.pid in self._full_windows or walk.pages.page_count < CLEAR_MOST_PAGES:
            return False
        span = next(spans(handle, walk.pages, walk.anonymous), None)
        if span is None:
            return False
        starts, ends = intersect(runs_of(self._clearable(handle.pid, walk.pages)), walk.anonymous)
        first, last = np.uint64(span.start), np.uint64(span.end)
        starts, ends = (
            np.concatenate(sides) for sides in ((starts, np.maximum(starts, last)), (np.minimum(ends, first), ends))
        )
        there = starts < ends
        self._clear(handle.pidfd, self._pieces(cut((starts[there], ends[there]))))
        return True

    def clears_ahead(self, pid: int) -> bool:
        """Whether the accessed bits of mapped files can be cleared before those of other memory are read.

        Another thread clears them, and only while the target stands still.
        """
        if not (self._is_still(pid) and self._allowed and self._pool.count > 1):
            return False
        return pid in self._with_files and pid not in self._full_windows

    def _is_still(self, pid: int) -> bool:
        return self._paused and pid not in self._running

    def clear_ahead(self, handle: Handle) -> Future[None]:
        """Start clearing mapped files, after their accessed bits were read and before ``rearm``.

        The caller waits for the result.
        """
        return self._pool.submit(handle.clear_mapped_files)

    def rearm(
        self,
        handle: Handle,
        walk: Walk,
        touched: PageSet,
        noted: PageSet,
        resident_pages: int,
        files: Future[None] | None = None,
        *,
        shared: bool = False,
    ) -> Rearmed:
        """Flush and clear, so that the next walk sees the pages that were accessed since.

        Args:
            handle: of the process.
            walk: the walk of this window.
            touched: the pages of the walk and the noted ones: all whose accessed bits or notes may be set.
            noted: pages whose accessed bits another observer cleared, leaving a note.
            resident_pages: about how many pages a full clear would visit.
            files: returned by ``clear_ahead``, where it was called.
            shared: other processes use the memory and run, also where the process stands still.
        """
        used = ""
        lanes = lanes_of(touched)
        runs = runs_of(lanes)
        if self._is_cheaper(handle.pid, runs, resident_pages):
            used, left = self._by_working_set(handle, walk, touched, noted, lanes, runs, files, shared)
            if left.size_bytes <= max(_UNKNOWN_SHARE * touched.size_bytes, _UNKNOWN_BYTES):
                # A flush needs set bits to clear; those of the first walk are cleared by now.
                used = used or self._flusher.flush(handle, self._walker.walk(handle.pid))
                return Rearmed(used, WORKING_SET, left)
            if left.size_bytes > _GIVE_UP_SHARE * touched.size_bytes:
                self._full_windows[handle.pid] = _RETRY_AFTER_WINDOWS
            walk = walk if used else self._walker.walk(handle.pid)
        return Rearmed(self.clear_all(handle, walk, used, shared=shared), FULL, PageSet.empty())

    def clear_all(self, handle: Handle, walk: Walk, flushed: str = "", *, shared: bool = False) -> str:
        """Flush, and clear every accessed bit; return the flush. ``flushed``: the one that was done before, if one was.

        Who runs brings translations back as soon as they are flushed: bits that are cleared after that would not be set
        again. So a flush follows; the bits that were set meanwhile are those that it can clear.
        """
        still = self._is_still(handle.pid)
        if still:
            flushed = flushed or self._flusher.flush(handle, walk)
        handle.clear()
        if still and not shared:
            return flushed
        anew = self._walker.walk(handle.pid) if not still or self._flusher.choice == COLD else walk
        after = self._flusher.flush(handle, anew)
        return flushed if still and after == OFF else after

    def _is_cheaper(self, pid: int, runs: Extents, resident_pages: int) -> bool:
        if not self._allowed:
            return False
        if remaining := self._full_windows.pop(pid, 0):
            if remaining > 1:
                self._full_windows[pid] = remaining - 1
            return False
        if self._requested == WORKING_SET:
            return True
        cost = float(_costs(runs).sum())
        return cost / (1 + _THREAD_GAIN * (self._parts(cost) - 1)) < resident_pages

    def _drained(self, pid: int) -> bool:
        """Return whether a process stands still; if so, empty the kernel's lists of pages on their way to the LRU."""
        if still := self._is_still(pid):
            self._lru_drain.drain()
        return still

    def _by_working_set(
        self,
        handle: Handle,
        walk: Walk,
        touched: PageSet,
        noted: PageSet,
        lanes: Lanes,
        runs: Extents,
        files: Future[None] | None,
        shared: bool,
    ) -> tuple[str, PageSet]:
        """Return (the flush that came with clearing, or an empty text; pages whose accessed bits stayed set)."""
        clearable = self._clearable(handle.pid, touched, lanes)
        runs = runs if clearable is lanes else runs_of(clearable)
        ranges = intersect(runs, walk.anonymous)
        everything = len(clearable[0]) == len(lanes[0]) and _length(ranges) == _length(runs)
        ranges = cut(ranges)
        flushing = flushing_ranges(ranges, touched.huge)
        used = "" if len(flushing[0]) else self._flusher.flush(handle, walk)
        still = self._drained(handle.pid)
        pieces = self._pieces(ranges)
        if files is not None:
            files.result()
        if not everything and files is None and (shared or not still):
            handle.clear_mapped_files()  # first: clearing the ranges flushes translations that came back meanwhile
        self._clear(handle.pidfd, pieces)
        if shared and used:
            self._flusher.flush(handle, walk)  # nothing else flushes what those that run brought back meanwhile
        if everything:
            self._with_files.discard(handle.pid)
        else:
            self._with_files.add(handle.pid)
            if files is None and still and not shared:
                handle.clear_mapped_files()
        if not still:
            return used or COLD, self._walker.passed_over(handle.pid, touched).union(
                self._walker.noted(handle.pid, noted)
            )
        left = self._still_marked(handle.pid, touched, noted)
        if not used and flushed_in(flushing, touched, left):
            used = COLD
        if not left.touch_count:
            return used, left
        again = intersect(runs_of(_both(lanes_of(left), clearable)), walk.anonymous)
        if len(again[0]):
            # Something else (reclaim, compaction, another observer) may have isolated these pages for a moment.
            self._lru_drain.drain()
            madvise_cold_ranges(handle.pidfd, *again)
            left = self._still_marked(handle.pid, left, noted)
        return used, left

    def _still_marked(self, pid: int, pages: PageSet, noted: PageSet) -> PageSet:
        return self._readers.marked(pid, pages).union(self._walker.noted(pid, noted))

    def _pieces(self, ranges: Extents) -> deque[Extents]:
        """Return pieces of about equal cost, several per thread: pages of one region may take twice as long."""
        total = np.cumsum(_costs(ranges))
        parts = self._parts(float(total[-1]) if len(total) else 0)
        pieces = parts * _PIECES if parts > 1 else 1
        places = np.searchsorted(total, [total[-1] * n / pieces for n in range(1, pieces)])
        return deque(zip(*(np.split(side, places) for side in ranges), strict=True))

    def _clear(self, pidfd: int, pieces: deque[Extents]) -> None:
        """Clear all pieces; where there are several, each of several threads takes the next one when it is done."""

        def clear_some() -> None:
            while True:
                try:
                    piece = pieces.popleft()
                except IndexError:  # none is left
                    return
                madvise_cold_ranges(pidfd, *piece)

        self._pool.together([clear_some] * -(-len(pieces) // _PIECES))

    def _parts(self, cost: float) -> int:
        return max(1, min(self._pool.count, int(cost / _PART_COST)))

    def _clearable(self, pid: int, touched: PageSet, lanes: Lanes | None = None) -> Lanes:
        """Return the lanes without a page of a large folio that is mapped page by page.

        A huge page is a large folio, too, but it is mapped whole.
        """
        lanes = lanes or lanes_of(touched)
        if not self._flusher.large_folios:
            return lanes
        around = np.where(_lane_bytes(touched) != 0, np.uint8(0xFF), np.uint8(0)).view("<u8").astype(np.uint64)
        large = self._walker.large(pid, PageSet.from_blocks(touched.blocks, around))
        numbers, pages = lanes
        keep = ~np.isin(numbers, lanes_of(large)[0], assume_unique=True)
        return numbers[keep], pages[keep]


def lanes_of(pages: PageSet) -> Lanes:
    """Return the lanes of 32 KiB (``address >> 15``) with a page of the set, rising; a huge page fills its block."""
    lanes = _lane_bytes(pages).reshape(-1)
    indices = np.flatnonzero(lanes != 0)
    numbers = (pages.blocks[indices >> _LANE_BITS] << np.uint64(_LANE_BITS)) + (indices & _LANES_PER_BLOCK - 1).view(
        np.uint64
    )
    touched = lanes[indices]
    if not len(pages.huge):
        return numbers, touched
    huge = parts_of(pages.huge, _LANE_BITS)
    numbers, touched = np.concatenate((numbers, huge)), np.concatenate((touched, np.full(len(huge), 0xFF, np.uint8)))
    order = np.argsort(numbers, kind="stable")
    return numbers[order], touched[order]


def _both(lanes: Lanes, others: Lanes) -> Lanes:
    """Return those of the lanes (which are few) that are among the others, too."""
    keep = np.searchsorted(others[0], lanes[0], side="right") > np.searchsorted(others[0], lanes[0])
    return lanes[0][keep], lanes[1][keep]


def _lane_bytes(pages: PageSet) -> NDArray[np.uint8]:
    return pages.bits.astype("<u8", copy=False).view(np.uint8)


def runs_of(lanes: Lanes) -> Extents:
    """Return start and end addresses of runs: from the first accessed page of neighbouring lanes to the last."""
    numbers, touched = lanes
    if not len(numbers):
        return numbers, numbers
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    first, last = np.concatenate(([0], breaks + 1)), np.concatenate((breaks, [len(numbers) - 1]))
    starts = (numbers[first] << _LANE_SHIFT) + _BEFORE_FIRST[touched[first]]
    return starts, (numbers[last] << _LANE_SHIFT) + _TO_LAST[touched[last]]


def intersect(runs: Extents, mappings: Extents) -> Extents:
    """Return the parts of the runs that lie in mappings, each part in one mapping. All rising, none overlapping."""
    first = np.searchsorted(mappings[1], runs[0], side="right")
    last = np.searchsorted(mappings[0], runs[1], side="left")
    count = np.maximum(last - first, 0)
    if count.max(initial=0) <= 1:  # the common case, and there may be many
        run = np.flatnonzero(count)
        mapping = first[run]
        return np.maximum(runs[0][run], mappings[0][mapping]), np.minimum(runs[1][run], mappings[1][mapping])
    run, offset = _expand(count)
    mapping = first[run] + offset
    return np.maximum(runs[0][run], mappings[0][mapping]), np.minimum(runs[1][run], mappings[1][mapping])


def cut(ranges: Extents, shift: int = BLOCK_SHIFT + 3) -> Extents:
    """Return the same ranges; the longer ones (``2 << shift`` and more) are cut at multiples of ``1 << shift``."""
    starts, ends = ranges
    if (ends - starts).max(initial=0) < 2 << shift:
        return ranges
    by = np.uint64(shift)
    first, last = starts >> by, ends - np.uint64(1) >> by
    which, offset = _expand((last - first).astype(np.intp) + 1)
    part = first[which] + offset.astype(np.uint64)
    return np.maximum(starts[which], part << by), np.minimum(ends[which], part + np.uint64(1) << by)


def flushing_ranges(ranges: Extents, huge: NDArray[np.uint64]) -> Extents:
    """Return the ranges over which MADV_COLD flushes the whole address space when it clears every bit in them.

    MADV_COLD flushes from the first to the last page whose bit it cleared. Where a huge page is among them, the
    kernel counts in units of 2 MiB, so ranges with a huge page are left out.
    """
    starts, ends = ranges
    long = ends - starts >= np.uint64(_FLUSHING_PAGES * PAGE_BYTES)
    if len(huge):
        addresses = huge * np.uint64(BLOCK_BYTES)
        long &= np.searchsorted(addresses, starts) == np.searchsorted(addresses, ends)
    return starts[long], ends[long]


def flushed_in(ranges: Extents, touched: PageSet, left: PageSet) -> bool:
    """Whether the bits that were cleared in one of the ranges lie so far apart that everything was flushed."""

    def within(pages: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        addresses = pages * np.uint64(PAGE_BYTES)
        return np.searchsorted(addresses, ranges[0]), np.searchsorted(addresses, ranges[1])

    first, end = within(left.pages())
    if (first == end).any():  # all bits of that range were cleared, and the range is long enough
        return True
    cleared = touched.difference(left).pages()
    first, end = within(cleared)
    some = first < end
    return bool((cleared[end[some] - 1] - cleared[first[some]] + np.uint64(1) >= FULL_FLUSH_PAGES).any())


def large_folios_exist() -> bool:
    """Whether any process of this machine has anonymous folios of several pages; yes when it is not known.

    The kernel counts them by size since Linux 6.13.
    """
    counts = list(Path("/sys/kernel/mm/transparent_hugepage").glob("hugepages-*/stats/nr_anon"))
    try:
        return not counts or any(int(path.read_text()) for path in counts)
    except (OSError, ValueError):
        return True


def _length(ranges: Extents) -> int:
    return int((ranges[1] - ranges[0]).sum())


def _expand(counts: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return for ``counts[i]`` items of each i: (i, number of the item among those of i)."""
    whose = np.repeat(np.arange(len(counts)), counts)
    return whose, np.arange(len(whose)) - np.repeat(np.cumsum(counts) - counts, counts)


def _costs(ranges: Extents) -> NDArray[np.float64]:
    """Return the cost of clearing each range by MADV_COLD, in pages of a full clear."""
    return (ranges[1] - ranges[0]).astype(np.float64) * (_PAGE_COST / PAGE_BYTES) + _RANGE_COST
