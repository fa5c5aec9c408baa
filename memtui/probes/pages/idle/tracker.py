"""The idle tracker: which pages were accessed, from the kernel's idle page tracking (CONFIG_IDLE_PAGE_TRACKING).

The method of MemSnoop: set the idle bit of a page frame, let the process run, and read whether the bit is still set.
The tracker sets bits of the target only, and sets again only those of accessed pages: the bit of an idle page is still
set. The kernel clears accessed bits without flushing the TLB, so the tracker flushes it (see ``tlb_flush.py``).

An idle bit belongs to the page frame and not to the process: for memory that processes share, it shows that one of them
accessed the page. A large folio has one idle bit: where the folio is mapped page by page, the bit shows that one of its
pages was accessed.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memtui.core.fast_numpy import distinct, is_in, union1d
from memtui.core.page_set import PageSet
from memtui.core.page_sizes import PAGE_SHIFT, PAGES_PER_BLOCK
from memtui.core.samples import Capability, Status, Vma
from memtui.probes.pages import page_frames, tracker
from memtui.probes.pages.idle.bitmap import BITMAP, BitPositions, IdleBitmap
from memtui.probes.pages.page_frames import KPAGEFLAGS, Entries, Numbers, has
from memtui.probes.pages.pagetable.lru_drain import LruDrain
from memtui.probes.pages.process_files import ProcessFiles, count_mappings
from memtui.probes.pages.referenced import prove_flush
from memtui.probes.pages.self_test import misjudged, own_pages
from memtui.probes.pages.shared_frames import TouchedFrames
from memtui.probes.pages.soft_dirty import SoftDirtyFlush
from memtui.probes.pages.thread_pool import ThreadPool
from memtui.probes.pages.tlb_flush import SOFT_DIRTY
from memtui.probes.pages.tracker import ClearingTooLong, PageWindow, ReadingTooLong, TrackerError
from memtui.probes.proc_maps import TooManyMappings, parse_maps, read_maps

NAME = "idle"
WORKING_SET = "working-set"
_SMALL, _LARGE, _HUGE, _HUGETLB, _NONE = range(5)  # kinds of pages
_LINES = 1024  # of a table that are parsed at once: a few ms


@dataclass(slots=True, eq=False)
class _Pages:
    """The present pages of a process, in parallel arrays, rising."""

    numbers: Numbers
    frames: Numbers
    shared: NDArray[np.bool_]
    kinds: NDArray[np.uint8]
    bits: Numbers  # the frame with the idle bit of this page
    bit_set: NDArray[np.bool_]  # that bit was set, and read back as set
    new: NDArray[np.bool_]  # absent, or in another frame, when bits were last set
    _positions: BitPositions | None = None  # of their idle bits
    _resident: PageSet | None = None

    @classmethod
    def none(cls) -> _Pages:
        numbers, flags = np.empty(0, np.uint64), np.empty(0, bool)
        return cls(numbers, numbers, flags, np.empty(0, np.uint8), numbers, flags, flags)

    @property
    def positions(self) -> BitPositions:
        """The positions of their idle bits."""
        if self._positions is None:
            self._positions = BitPositions(self.bits)
        return self._positions

    @property
    def resident(self) -> PageSet:
        """All pages that count as the target's."""
        if self._resident is None:
            self._resident = self.select(self.kinds < _NONE)
        return self._resident

    def set_kinds(self, which: NDArray[np.intp], kinds: NDArray[np.uint8], bits: Numbers) -> None:
        """Set the kinds of some pages, and the frames with their idle bits."""
        if not np.array_equal(self.kinds[which], kinds) or not np.array_equal(self.bits[which], bits):
            self.kinds[which], self.bits[which] = kinds, bits
            self._positions = self._resident = None

    def select(self, mask: NDArray[np.bool_]) -> PageSet:
        """Return a set of some pages: 2 MiB pages where one bit is about 2 MiB, else 4 KiB pages."""
        small = PageSet.from_pages(self.numbers[mask & (self.kinds <= _LARGE)])
        large = mask & ((self.kinds == _HUGE) | (self.kinds == _HUGETLB))
        huge = distinct(self.numbers[large] // np.uint64(PAGES_PER_BLOCK))
        return PageSet(small.blocks, small.bits, huge, small.giant)


@dataclass(slots=True, eq=False)
class _Tracked:
    """The state of one process between windows."""

    files: ProcessFiles  # ``source`` is pagemap
    generation: int = 0
    begun: bool = False  # its idle bits were set once
    set_ns: int = 0  # how long it took to set those of its last window
    maps: bytes = b""
    ranges: NDArray[np.uint64] = field(default_factory=lambda: np.empty((0, 2), np.uint64))
    dense: bool = False  # more than half of the ranges is present
    entries: Entries | None = None  # their last entries of pagemap
    pages: _Pages = field(default_factory=_Pages.none)
    # Shared frames that were accessed, and whose bits were set again in a window of another process of the tree.
    seen_by_others: Numbers = field(default_factory=lambda: np.empty(0, np.uint64))


class IdleTracker:
    """Page-exact for private memory; needs root of the machine (page frame numbers)."""

    name = NAME
    rearm = WORKING_SET
    wss, pages = Capability("wss", True), Capability("pages", True)
    pauses = clears = True
    counts_users = False
    page_ns = 300
    resume_by_ns: int | None = None
    reads_running = False  # page frames change their place under a running process

    def __init__(self, flush: str = "auto") -> None:
        """Choose the flush; ``auto`` proves it on a child process.

        Raises:
            TrackerError: this tracker has no such flush, or it does not flush here.
            OSError: the kernel has no idle page tracking, or this is not root.
        """
        self.running: set[int] = set()
        self._tracked: dict[int, _Tracked] = {}
        self._flush = SoftDirtyFlush(NAME, flush, prove_flush)
        self.flush = self._flush.choice
        self._pool = ThreadPool()
        self._bitmap = IdleBitmap(self._pool)
        try:
            self._kpageflags = os.open(KPAGEFLAGS, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._bitmap.close()
            raise
        self._lru_drain = LruDrain()

    def notice(self) -> str:
        """Return, once, what the flush costs, or what its absence does."""
        return self._flush.notice()

    def set_interval(self, interval_ns: int | None) -> None:
        """Do nothing: windows may be of any length."""

    def prepare(self, pid: int) -> int:
        """Return 0: nothing can be done before the first pause."""
        return 0

    def is_prepared(self, pid: int) -> bool:
        """Return True: there is nothing to prepare."""
        return True

    def start(self, pid: int, vmas: tuple[Vma, ...]) -> None:
        """Set the idle bit of every page, so that the first window reports accesses and not residency.

        Raises:
            ProcessLookupError: the process ended.
            PermissionError: page frame numbers are hidden from this process.
            ReadingTooLong, ClearingTooLong, TooManyMappings: see there.
        """
        self.forget(pid)
        tracked = self._tracked[pid] = _open(pid)
        try:
            tracked.pages = self._present_pages(pid, tracked)
        except BaseException:
            self.forget(pid)
            raise

        def finish() -> PageWindow:
            began_ns = time.monotonic_ns()
            self._set_idle(tracked, np.ones(len(tracked.pages.numbers), bool))
            tracked.begun, tracked.set_ns = True, time.monotonic_ns() - began_ns
            return tracker.first_window()

        if tracker.is_late(self.resume_by_ns):
            raise ClearingTooLong(finish)
        finish()

    def count_mappings(self, pid: int) -> int | None:
        """Count the mappings of a process. Raises ProcessLookupError, PermissionError and TooManyMappings."""
        tracked = self._tracked.get(pid)
        return count_mappings(pid, tracked.maps.count(b"\n") or None if tracked else None)

    def start_round(self, processes: int) -> None:
        """Do nothing: every window reads page frames."""

    def window(self, pid: int, vmas: tuple[Vma, ...], *, want_resident: bool) -> PageWindow:
        """Read the idle bits, and set those of accessed pages again. The process has to be paused during this call.

        Raises:
            ProcessLookupError: the process ended.
            TrackerError: page frames cannot be read, or not in time (ReadingTooLong, ClearingTooLong).
            TooManyMappings: see there.
        """
        tracked = self._tracked.get(pid)
        if tracked is None or not tracked.begun:
            self.start(pid, vmas)
            return tracker.first_window()
        start_ns = time.monotonic_ns()
        if tracker.identity(pid) != tracked.files.identity:  # all pages are new, and new pages count as accessed
            new = _open(pid)
            new.generation, new.begun = tracked.generation + 1, True
            self.forget(pid)
            self._tracked[pid] = tracked = new
        pages = tracked.pages = self._present_pages(pid, tracked)
        trackable = pages.kinds < _HUGETLB
        touched = trackable & ~self._bitmap.idle(pages.positions, self._check_time)
        self._notify_others(pid, pages.bits[touched & pages.shared])
        if len(tracked.seen_by_others):
            touched |= trackable & is_in(pages.bits, tracked.seen_by_others)
            tracked.seen_by_others = tracked.seen_by_others[:0]
        # A page whose bit could not be set may have been accessed or not; so may each page of a large folio.
        unknown = touched & ((~pages.bit_set & ~pages.new) | (pages.kinds == _LARGE))
        walked_ns = time.monotonic_ns()
        finish = partial(self._finish, tracked, touched, unknown, (start_ns, walked_ns), want_resident)
        if tracker.is_late(self.resume_by_ns, tracked.set_ns):
            raise ClearingTooLong(finish)
        return finish()

    def _finish(
        self,
        tracked: _Tracked,
        touched: NDArray[np.bool_],
        unknown: NDArray[np.bool_],
        read_ns: tuple[int, int],
        want_resident: bool,
    ) -> PageWindow:
        """Set the idle bits of accessed pages again, and return the window.

        ``read_ns``: when reading them began and ended.
        """
        pages, (start_ns, walked_ns), began_ns = tracked.pages, read_ns, time.monotonic_ns()
        in_common = touched & pages.shared
        touched_pages = pages.select(touched)
        reason = self._reason(pages, unknown)
        self._set_idle(tracked, touched)
        cleared_ns = time.monotonic_ns()
        tracked.set_ns = max(cleared_ns - began_ns, tracked.set_ns // 2)  # without the end of a pause before it
        hugetlb = _starts_of(tracked.ranges, pages.numbers[pages.kinds == _HUGETLB])
        return PageWindow(
            touched_pages,
            pages.resident if want_resident else None,
            flush=self.flush,
            rearm=WORKING_SET,
            generation=tracked.generation,
            maps=partial(bytes, tracked.maps),
            walk_ns=walked_ns - start_ns,
            rearm_ns=cleared_ns - began_ns,
            clear_gap_ns=cleared_ns - start_ns,
            unknown_bytes=pages.select(unknown).size_bytes,
            vma_wss=(lambda: tuple((start, None) for start in hugetlb)) if hugetlb else None,
            frames=lambda: TouchedFrames(pages.numbers[in_common], pages.frames[in_common]),
            status=Status.APPROXIMATE if self._flush.doubt else Status.OK,
            reason="; ".join(filter(None, (reason, self._flush.doubt))),
        )

    def _check_time(self) -> None:
        if tracker.is_late(self.resume_by_ns):
            raise ReadingTooLong

    def _present_pages(self, pid: int, tracked: _Tracked) -> _Pages:
        """Return the pages that are present now, with their kinds from the last window where they are the same."""
        try:
            text = read_maps(pid, check=self._check_time)
        except (ReadingTooLong, TooManyMappings):
            tracked.maps, tracked.entries = b"", None  # how many mappings it has is counted before the next pause
            raise
        if text != tracked.maps:
            tracked.ranges, tracked.maps = self._ranges(text), text
            tracked.entries, tracked.dense = None, False
        last, before = tracked.entries, tracked.pages
        entries = page_frames.read_entries(
            tracked.files.source, tracked.ranges, dense=tracked.dense, pool=self._pool, check=self._check_time
        )
        if last is not None and last.same_as(entries):
            self._update_kinds(before, np.flatnonzero((before.kinds != _SMALL) | ~before.bit_set))
            return before
        numbers, frames, exclusive = page_frames.present_pages(entries, tracked.ranges)
        if len(frames) and not frames.any():
            raise PermissionError("page frame numbers are hidden from this process (CAP_SYS_ADMIN)")
        tracked.dense = 2 * len(numbers) > int((tracked.ranges[:, 1] - tracked.ranges[:, 0]).sum())
        index = np.searchsorted(before.numbers, numbers)
        index[index == len(before.numbers)] = 0
        same = np.zeros(len(numbers), bool)
        if len(before.numbers):
            same = (before.numbers[index] == numbers) & (before.frames[index] == frames)
        kinds, bits, bit_set = np.zeros(len(numbers), np.uint8), frames.copy(), np.zeros(len(numbers), bool)
        new, old = ~same, index[same]
        kinds[same], bits[same], bit_set[same] = before.kinds[old], before.bits[old], before.bit_set[old]
        new[same] = before.new[old]
        pages = _Pages(numbers, frames, ~exclusive, kinds, bits, bit_set, new)
        self._update_kinds(pages, np.flatnonzero(~same | (kinds != _SMALL) | ~bit_set))
        tracked.entries = entries  # only now: these are its pages
        return pages

    def _ranges(self, text: bytes) -> NDArray[np.uint64]:
        """Return the start and end of the mappings of a table, in page numbers. Raises ReadingTooLong."""
        lines, ranges = text.split(b"\n"), []
        for first in range(0, len(lines), _LINES):
            self._check_time()
            part = b"\n".join(lines[first : first + _LINES])
            ranges += [(vma.start >> PAGE_SHIFT, vma.end >> PAGE_SHIFT) for vma in parse_maps(part)]
        return np.array(ranges, np.uint64).reshape(-1, 2)

    def _update_kinds(self, pages: _Pages, which: NDArray[np.intp]) -> None:
        """Read the kinds of some pages again: a folio may have been split, or become large in its place."""
        if len(which):
            pages.set_kinds(which, *self._classify(pages.numbers[which], pages.frames[which]))

    def _classify(self, numbers: Numbers, frames: Numbers) -> tuple[NDArray[np.uint8], Numbers]:
        """Return (kind, frame of the idle bit) of pages."""
        flags, heads = page_frames.flags_of(self._kpageflags, frames, self._check_time)
        compound = has(flags, page_frames.COMPOUND_HEAD) | has(flags, page_frames.COMPOUND_TAIL)
        kinds = np.where(compound, _LARGE, _SMALL).astype(np.uint8)
        kinds[_whole_blocks(numbers, frames) & compound] = _HUGE
        kinds[has(flags, page_frames.HUGETLB)] = _HUGETLB
        # The zero page and device memory: nobody can clear their accessed bits, and they do not count as the target's.
        kinds[has(flags, page_frames.ZERO_PAGE) | has(flags, page_frames.NO_PAGE)] = _NONE
        return kinds, heads

    def _set_idle(self, tracked: _Tracked, which: NDArray[np.bool_]) -> None:
        """Set the idle bits of some pages, flush the TLB, and read back which bits are set."""
        pages = tracked.pages
        which = which & (pages.kinds < _HUGETLB)
        positions = pages.positions.part(which)
        self._lru_drain.drain()  # the idle bit of a page that is in no list yet cannot be set
        self._bitmap.set_bits(positions)
        if self.flush == SOFT_DIRTY:
            os.write(tracked.files.clear_refs, b"4")
        pages.bit_set[which] = self._bitmap.idle(positions)
        pages.new[:] = False

    def _notify_others(self, pid: int, frames: Numbers) -> None:
        """Record accessed frames for the other processes of the tree: their windows read bits that were set again."""
        if len(frames) and len(self._tracked) > 1:
            for other, tracked in self._tracked.items():
                if other != pid:
                    tracked.seen_by_others = union1d(tracked.seen_by_others, frames)

    def _reason(self, pages: _Pages, unknown: NDArray[np.bool_]) -> str:
        """Return a sentence on pages of which it is not known whether they were accessed, and why."""
        folios = int((unknown & (pages.kinds == _LARGE)).sum())
        rest = unknown & (pages.kinds != _LARGE)
        reasons = [f"{folios} pages are parts of large folios, which have one mark together"] if folios else []
        if rest.any():
            flags, _ = page_frames.flags_of(self._kpageflags, pages.frames[rest])
            off = int((~has(flags, page_frames.LRU)).sum())
            if off:
                reasons.append(f"{off} pages are in no list of reclaim and cannot be marked")
            if len(flags) - off:
                reasons.append(f"{len(flags) - off} pages could not be marked")
        return "; ".join(reasons)

    def forget(self, pid: int) -> None:
        """Release the state of a process that ended."""
        tracked = self._tracked.pop(pid, None)
        if tracked:
            tracked.files.close()

    def close(self) -> None:
        """Release everything."""
        for pid in tuple(self._tracked):
            self.forget(pid)
        self._pool.close()
        self._bitmap.close()
        os.close(self._kpageflags)
        self._lru_drain.close()


def _whole_blocks(numbers: Numbers, frames: Numbers) -> NDArray[np.bool_]:
    """Return the pages of those 2 MiB blocks that lie in 2 MiB of page frames: a huge page, whole or in parts."""
    whole = np.zeros(len(numbers), bool)
    first = np.flatnonzero((numbers | frames) % np.uint64(PAGES_PER_BLOCK) == 0)
    first = first[first + PAGES_PER_BLOCK <= len(numbers)]
    if not len(first):
        return whole
    # Where numbers and frames rise together, their difference stays.
    turns = np.concatenate(([0], np.cumsum(np.diff(frames - numbers) != 0)))
    last = first + PAGES_PER_BLOCK - 1
    good = (numbers[last] - numbers[first] == PAGES_PER_BLOCK - 1) & (turns[last] == turns[first])
    for start in first[good].tolist():
        whole[start : start + PAGES_PER_BLOCK] = True
    return whole


def _starts_of(ranges: NDArray[np.uint64], numbers: Numbers) -> list[int]:
    """Return the start addresses of the mappings in which pages lie."""
    index = distinct(np.searchsorted(ranges[:, 0], numbers, side="right") - 1)
    return [start << PAGE_SHIFT for start in ranges[index, 0].tolist()]


def _open(pid: int) -> _Tracked:
    """Raise ProcessLookupError and PermissionError."""
    return _Tracked(ProcessFiles.open(pid, "pagemap"))


# -- the proof ---------------------------------------------------------------------------------------------------------

_PROOF_PAGES, _PROOF_ATTEMPTS = 64, 3


def prove() -> Capability:
    """Prove this tracker on 64 pages of this process: half of them are accessed, and exactly those must be seen.

    Never raises; the reason says in plain words what is missing.
    """
    if not BITMAP.exists():
        lacks = f"{BITMAP} is missing: this kernel has no idle page tracking"
        return Capability(NAME, False, lacks, "a kernel with CONFIG_IDLE_PAGE_TRACKING")
    if os.geteuid() != 0:
        return Capability(NAME, False, "it needs root (page frame numbers: CAP_SYS_ADMIN)", "run with sudo")
    reason = ""
    try:
        for _ in range(_PROOF_ATTEMPTS):  # something else may clear a bit in between; a wrong tracker fails every time
            if not (reason := _self_test()):
                break
    except (OSError, TrackerError) as error:
        reason = str(error)
    return Capability(NAME, not reason, reason, "")


def _self_test() -> str:
    """Return an empty text when exactly the accessed pages of this process are seen; otherwise what was seen."""
    if not Path("/proc/self/clear_refs").exists():
        return "/proc/PID/clear_refs is missing"
    touched = list(range(0, _PROOF_PAGES, 2))
    with own_pages(_PROOF_PAGES) as mine:
        bitmap, lru_drain = IdleBitmap(), LruDrain()
        pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        try:
            ranges = np.array([[mine.first, mine.first + _PROOF_PAGES]], np.uint64)
            numbers, frames, _ = page_frames.present_pages(page_frames.read_entries(pagemap, ranges), ranges)
            if len(numbers) != _PROOF_PAGES or not frames.all():
                return "page frame numbers are hidden from this process (CAP_SYS_ADMIN)"
            lru_drain.drain()
            positions = BitPositions(frames)
            bitmap.set_bits(positions)
            mine.order(b"4")  # this process's own translations are stale, too
            mine.touch(touched)
            seen = np.flatnonzero(~bitmap.idle(positions)).tolist()
        finally:
            os.close(pagemap)
            lru_drain.close()
            bitmap.close()
    return "" if seen == touched else misjudged(len(touched), len(seen))
