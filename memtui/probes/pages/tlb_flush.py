"""Flushes cached translations from the TLBs, so that the next access of a page sets its accessed bit again.

Clearing accessed bits does not flush the TLB: while a translation stays cached, accesses of its page set no bit, and
the hottest pages vanish from the working set. No system call flushes another process's TLB as such; two flush it on
the way, and both are called with the target paused:

* **cold**: ``process_madvise(MADV_COLD)`` clears accessed bits and flushes what lies between the first and the last
  page that it cleared; above x86's ceiling of 33 pages, that is the whole address space. Side effect: the pages of the
  span become the first candidates for reclaim until they are accessed again.
* **soft-dirty**: writing ``4`` to ``clear_refs`` always flushes the whole address space. Where the kernel tracks
  soft-dirty pages (MEM_SOFT_DIRTY) it also write-protects every page, which costs one minor fault for each page
  written afterwards and destroys what CRIU would read; elsewhere it is harmless.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memtui.core.page_set import PageSet
from memtui.core.page_sizes import BLOCK_BYTES, PAGE_SHIFT, PAGES_PER_BLOCK
from memtui.core.samples import Capability
from memtui.probes.pages.pagetable.bpf_loader import ARM64
from memtui.probes.pages.pagetable.walk import Walker
from memtui.probes.pages.pagetable.walk_result import Extents, Walk
from memtui.probes.pages.self_test_child import LoopingChild, looping_child
from memtui.probes.pages.tracker import TrackerError

COLD, SOFT_DIRTY, OFF = "cold", "soft-dirty", "off"
FLUSHES = (COLD, SOFT_DIRTY, OFF)
UNFLUSHED = "without a flush, pages that stay hot in the TLB over a whole window may be missed"

NOT_ON_ARM64 = "what MADV_COLD flushes on arm64 are the pages it was given and no others"
# Of x86: cleared pages this far apart (first to last, both counted) flush the whole address space.
FULL_FLUSH_PAGES = 34
_SAFE_PAGES = 64  # length of a span, so that pages that the kernel skips at its ends do no harm
_LONGEST_PAGES = 16384  # 64 MiB: a longer span would disturb the order of reclaim more than it is worth
_ATTEMPTS = 4
_SYS_PROCESS_MADVISE, MADV_COLD = 440, 20  # the latter since Linux 5.4
_MOST_RANGES, _MOST_BYTES = 1024, 1 << 30

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


@dataclass(slots=True, eq=False)
class Handle:
    """The kernel's handles on one process; they follow the process, never a reused pid."""

    pid: int
    pidfd: int
    clear_refs: int
    good_block: int = 0  # number of the 2 MiB block that the last cold flush used

    @classmethod
    def open(cls, pid: int) -> Handle:
        """Raise ProcessLookupError, PermissionError or FileNotFoundError (a kernel without clear_refs)."""
        pidfd = os.pidfd_open(pid)
        try:
            return cls(pid, pidfd, os.open(f"/proc/{pid}/clear_refs", os.O_WRONLY | os.O_CLOEXEC))
        except BaseException:
            os.close(pidfd)
            raise

    def clear(self) -> None:
        """Clear the accessed bit of every page."""
        os.write(self.clear_refs, b"1")

    def clear_mapped_files(self) -> None:
        """Clear the accessed bit of every page in mappings of files; shared memory is one of them."""
        os.write(self.clear_refs, b"3")

    def close(self) -> None:
        os.close(self.pidfd)
        os.close(self.clear_refs)


@dataclass(frozen=True, slots=True)
class Span:
    """A range of addresses for MADV_COLD. It never cuts a huge page, or a large folio inside its mapping."""

    start: int
    end: int


class Flusher:
    """Flushes the TLB for processes in the way that was chosen for this machine."""

    def __init__(self, walker: Walker, requested: str = "auto", capabilities: tuple[Capability, ...] = ()) -> None:
        """Choose a flush.

        Args:
            walker: for checking whether a cold flush did what it should.
            requested: ``auto``, ``cold``, ``soft-dirty`` or ``off``.
            capabilities: from ``prove_flushes``; ``auto`` takes the first that works.

        Raises:
            TrackerError: the requested flush does not exist on this processor.
        """
        if requested not in (*FLUSHES, "auto"):
            raise ValueError(f"unknown flush {requested!r}: one of auto, {', '.join(FLUSHES)}")
        self._walker = walker
        if requested == COLD and ARM64:
            raise TrackerError(f"flush {COLD} does not work here: {NOT_ON_ARM64}; auto, {SOFT_DIRTY} and {OFF} would")
        works = [capability.name for capability in capabilities if capability.ok]
        self.choice = requested if requested != "auto" else (works or [OFF])[0]
        self.rejected = tuple(c for c in capabilities if not c.ok) if requested == "auto" else ()
        # A user who requested cold alone may need the soft-dirty bits that the other flush destroys.
        self._may_fall_back = requested == "auto" and SOFT_DIRTY in works
        self._costly = soft_dirty_is_tracked()
        self.large_folios = True  # until it is known

    def flush(self, handle: Handle, walk: Walk) -> str:
        """Flush while the process is paused and before its bits are cleared; return the flush that was really done."""
        accessed = walk.pages
        if self.choice == COLD:
            for span in spans(handle, accessed, walk.anonymous):
                if self._cold(handle, span, accessed):
                    handle.good_block = span.start // BLOCK_BYTES
                    return COLD
            if not self._may_fall_back:
                return OFF
            # Few pages, of which no span holds enough: they may be missed once, but writing 4 would write-protect the
            # whole process, which may be large and idle.
            if self._costly and accessed.page_count < FULL_FLUSH_PAGES and not len(accessed.huge):
                return OFF
        if self.choice == OFF:
            return OFF
        os.write(handle.clear_refs, b"4")
        return SOFT_DIRTY

    def _cold(self, handle: Handle, span: Span, accessed: PageSet) -> bool:
        """Try one span; True when the bits that were cleared lie so far apart that everything was flushed."""
        if self.large_folios and self._has_large_folio(handle.pid, span):
            return False
        if not madvise_cold(handle.pidfd, span):
            return False
        after = self._walker.walk(handle.pid, low=span.start, high=span.end)
        if after.errors:
            return False
        cleared = np.setdiff1d(_pages_within(accessed, span), after.pages.pages(), assume_unique=True)
        return len(cleared) > 1 and int(cleared[-1] - cleared[0]) + 1 >= FULL_FLUSH_PAGES

    def _has_large_folio(self, pid: int, span: Span) -> bool:
        """Whether a large folio is mapped page by page here. The span may hold a part of it, and would split it."""
        return bool(self._walker.large(pid, _every_page(span)).page_count)


def madvise_cold(pidfd: int, span: Span) -> bool:
    """Return whether the kernel processed the whole span."""
    vector = np.array([span.start, span.end - span.start], np.uint64)
    return _madvise_cold(pidfd, vector) == span.end - span.start


def madvise_cold_ranges(pidfd: int, starts: NDArray[np.uint64], ends: NDArray[np.uint64]) -> None:
    """Apply MADV_COLD to many ranges, none of which ends before it begins; skip those that the kernel refuses."""
    if (starts > ends).any():
        raise ValueError("a range ends before it begins: it would be cut into parts for ever")
    vectors = np.stack((starts, ends - starts), axis=1)
    while len(vectors):
        # A call takes at most 1024 ranges (UIO_MAXIOV), and processes at most 2 GiB of them (MAX_RW_COUNT).
        total = np.cumsum(vectors[:_MOST_RANGES, 1])
        count = max(int(np.searchsorted(total, _MOST_BYTES, side="right")), 1)
        if count == 1 and total[0] > _MOST_BYTES:
            start, length = vectors[0].tolist()
            rest = np.array([[start + _MOST_BYTES, length - _MOST_BYTES]], np.uint64)
            vectors = np.concatenate(([[start, _MOST_BYTES]], rest, vectors[1:])).astype(np.uint64)
        done = _madvise_cold(pidfd, np.ascontiguousarray(vectors[:count]))
        taken = int(np.searchsorted(np.cumsum(vectors[:count, 1]), max(done, 0), side="right"))
        vectors = vectors[taken if taken == count else taken + 1 :]


def _madvise_cold(pidfd: int, vectors: NDArray[np.uint64]) -> int:
    """Return the bytes processed, from the first range on; below 0: none. Raises ProcessLookupError."""
    done = _libc.syscall(
        ctypes.c_long(_SYS_PROCESS_MADVISE),
        pidfd,
        ctypes.c_void_p(vectors.ctypes.data),
        ctypes.c_size_t(vectors.size // 2),
        MADV_COLD,
        ctypes.c_uint(0),
    )
    if done < 0 and ctypes.get_errno() == errno.ESRCH:
        raise ProcessLookupError("the process ended")
    return int(done)


def spans(handle: Handle, accessed: PageSet, anonymous: Extents) -> Iterator[Span]:
    """Yield a few spans over which a cold flush is safe and would flush everything, the best first.

    They lie in private anonymous memory: pages of the page cache may be other processes' working set, too.
    """
    starts, ends = anonymous
    if not len(starts) or not len(accessed.blocks):
        return
    for block in _wide_blocks(accessed, starts, ends, handle.good_block)[:_ATTEMPTS].tolist():
        yield Span(block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES)
    yield from _pairs(accessed, starts, ends)


def _wide_blocks(
    accessed: PageSet, starts: NDArray[np.uint64], ends: NDArray[np.uint64], preferred: int
) -> NDArray[np.uint64]:
    """Return blocks inside one mapping with accessed pages at least 64 pages apart.

    The block of the last flush comes first, then those with most accessed pages. A whole block never cuts a large
    folio, as folios are aligned to their size.
    """
    low = accessed.blocks << np.uint64(21)
    owner = np.searchsorted(starts, low, side="right") - 1
    inside = (owner >= 0) & (ends[owner] >= low + np.uint64(BLOCK_BYTES))
    nonzero = accessed.bits != 0
    # Accessed pages in two words that are not neighbours are more than 64 pages apart.
    wide = np.flatnonzero(inside & ((7 - np.argmax(nonzero[:, ::-1], axis=1)) - np.argmax(nonzero, axis=1) >= 2))
    blocks = accessed.blocks[wide]
    if preferred in blocks:
        return np.array([preferred, *blocks[blocks != preferred][: _ATTEMPTS - 1]], np.uint64)
    fullest = np.argsort(-np.bitwise_count(accessed.bits[wide]).sum(axis=1, dtype=np.int64), kind="stable")
    return blocks[fullest[:_ATTEMPTS]]


def _pairs(accessed: PageSet, starts: NDArray[np.uint64], ends: NDArray[np.uint64]) -> Iterator[Span]:
    """Yield spans from one accessed page to another of the same mapping, the shortest first.

    They are widened to whole blocks within the mapping, so that they cut neither a huge page nor a large folio.
    """
    pages = accessed.pages()
    owner = np.searchsorted(starts, pages << np.uint64(PAGE_SHIFT), side="right") - 1
    partner = np.searchsorted(pages, pages + np.uint64(_SAFE_PAGES - 1))
    first = np.flatnonzero((partner < len(pages)) & (owner >= 0))
    second = partner[first]
    length = (pages[second] - pages[first]).astype(np.int64)
    last_byte = pages[second] << np.uint64(PAGE_SHIFT)
    good = (length <= _LONGEST_PAGES) & (last_byte < ends[owner[first]])
    first, second, length = first[good], second[good], length[good]
    for i in np.argsort(length, kind="stable")[:_ATTEMPTS]:
        low, high = int(pages[first[i]]) << PAGE_SHIFT, (int(pages[second[i]]) + 1) << PAGE_SHIFT
        mapping = owner[first[i]]
        low = max(low // BLOCK_BYTES * BLOCK_BYTES, int(starts[mapping]))
        high = min(-(-high // BLOCK_BYTES) * BLOCK_BYTES, int(ends[mapping]))
        yield Span(low, high)


def _every_page(span: Span) -> PageSet:
    """Return the 4 KiB pages of a span, without the rest of its blocks, which may belong to other mappings."""
    blocks = np.arange(span.start // BLOCK_BYTES, -(-span.end // BLOCK_BYTES), dtype=np.uint64)
    bits = np.zeros((len(blocks), PAGES_PER_BLOCK), np.uint8)
    before = span.start % BLOCK_BYTES >> PAGE_SHIFT
    bits.reshape(-1)[before : before + (span.end - span.start >> PAGE_SHIFT)] = 1
    return PageSet.from_blocks(blocks, np.packbits(bits, axis=1, bitorder="little").view("<u8"))


def _pages_within(accessed: PageSet, span: Span) -> NDArray[np.uint64]:
    first = np.searchsorted(accessed.blocks, np.uint64(span.start // BLOCK_BYTES))
    last = np.searchsorted(accessed.blocks, np.uint64(-(-span.end // BLOCK_BYTES)))
    none = np.empty(0, np.uint64)
    pages = PageSet(accessed.blocks[first:last], accessed.bits[first:last], none, none).pages()
    return pages[(pages >= span.start >> PAGE_SHIFT) & (pages < span.end >> PAGE_SHIFT)]


def soft_dirty_is_tracked() -> bool:
    """Whether this kernel has MEM_SOFT_DIRTY: then a page that was just written has bit 55 in pagemap."""
    with mmap.mmap(-1, mmap.PAGESIZE) as memory:
        memory[0] = 1
        hold = ctypes.c_char.from_buffer(memory)
        try:
            with Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
                entry = os.pread(pagemap.fileno(), 8, (ctypes.addressof(hold) >> PAGE_SHIFT) * 8)
        except OSError:
            return True  # not known: the careful answer
        finally:
            del hold
    return len(entry) < 8 or bool(struct.unpack("<Q", entry)[0] >> 55 & 1)


# -- the proof ---------------------------------------------------------------------------------------------------------

_PROOF_PAGES, _PROOF_WINDOWS, _PROOF_ATTEMPTS = 256, 3, 2


def prove_flushes(walker: Walker) -> tuple[Capability, ...]:
    """Return which flushes work here: short windows have to see all of 256 pages over which a child process loops."""
    try:
        with looping_child(_PROOF_PAGES) as child:
            try:
                if ARM64:
                    return Capability(COLD, False, NOT_ON_ARM64), _prove(walker, SOFT_DIRTY, child)
                return tuple(_prove(walker, name, child) for name in (COLD, SOFT_DIRTY))
            finally:
                walker.forget(child.pid)
    except (OSError, ValueError, TrackerError) as error:
        return tuple(Capability(name, False, f"the proof failed: {error}") for name in (COLD, SOFT_DIRTY))


def _prove(walker: Walker, name: str, child: LoopingChild) -> Capability:
    """Prove one flush, in two attempts: DAMON, where it runs, clears a bit now and then; a missing flush hides many."""
    for _ in range(_PROOF_ATTEMPTS):
        if not (reason := _try(walker, name, child)):
            break
    return Capability(name, not reason, reason)


def _try(walker: Walker, name: str, child: LoopingChild) -> str:
    """Take some windows of the child; return an empty text when each saw all pages that the child accesses."""
    flusher, handle = Flusher(walker, name), Handle.open(child.pid)
    span = Span(child.address, child.address + (_PROOF_PAGES << PAGE_SHIFT))
    try:
        for window in range(_PROOF_WINDOWS + 1):
            with child.stopped():
                walk = walker.walk(child.pid, low=span.start, high=span.end)
                seen = len(_pages_within(walk.pages, span))
                if window and seen != _PROOF_PAGES:
                    return f"a loop over {_PROOF_PAGES} pages was seen as {seen}"
                if flusher.flush(handle, walk) != name:
                    return "the kernel refused it (it needs Linux 5.10 and CAP_SYS_NICE)"
                handle.clear()
            child.let_run()
        return ""
    finally:
        handle.close()
