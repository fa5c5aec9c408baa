"""The page frames behind a process's pages, their flags and their idle bits: /proc/PID/pagemap, /proc/kpageflags and
/sys/kernel/mm/page_idle/bitmap (Documentation/admin-guide/mm/pagemap.rst and idle_page_tracking.rst).

All are arrays of 64-bit words that are read in long pieces; nothing here goes from page to page in Python.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

BITMAP, KPAGEFLAGS = Path("/sys/kernel/mm/page_idle/bitmap"), Path("/proc/kpageflags")
Numbers = NDArray[np.uint64]

# Bits of a word of pagemap.
_PRESENT, _EXCLUSIVE = np.uint64(1 << 63), np.uint64(1 << 56)
_FRAME = np.uint64((1 << 55) - 1)
# Bits of a word of kpageflags (include/uapi/linux/kernel-page-flags.h).
LRU, COMPOUND_HEAD, COMPOUND_TAIL, HUGETLB, NO_PAGE, ZERO_PAGE = 5, 15, 16, 17, 20, 24
FOLIO_FRAMES = 512  # the largest folio whose pages are told apart; folios are aligned to their size

_PAGEMAP_SCAN = 0xC0606610  # _IOWR('f', 16, struct pm_scan_arg), since Linux 6.7
_SCAN = struct.Struct("<12Q")
_IS_PRESENT = 1 << 3
_REGIONS, _REGION_WORDS = 4096, 3
_GAP_PAGES = 64  # pages in between that cost less to read than another call
_CHUNK_PAGES = 1 << 18
_GROUPS = 4096  # 16 MiB of flags at a time
_BLOCK_WORDS = 512  # the bitmap gives and takes 4096 bytes at a time
_GAP_WORDS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """What pagemap says of the parts of an address space that are worth reading.

    Attributes:
        spans: u8[n, 2], rising; these parts, in page numbers.
        words: u8 for each page of them; 0 where it is not present.
    """

    spans: NDArray[np.uint64]
    words: Numbers

    def same_as(self, other: Entries) -> bool:
        """Whether the same pages lie in the same page frames."""
        return np.array_equal(self.spans, other.spans) and np.array_equal(self.words, other.words)


def read_entries(pagemap: int, ranges: NDArray[np.uint64], *, dense: bool = False) -> Entries:
    """Read pagemap.

    Args:
        pagemap: a descriptor of /proc/PID/pagemap, opened with CAP_SYS_ADMIN, or frames are 0.
        ranges: u8[n, 2], rising; start and end of the mappings, in page numbers.
        dense: most of the ranges is present, so that to look first where costs more than it saves.
    """
    spans = _near(ranges) if dense else _populated(pagemap, ranges)
    parts = [_read_pagemap(pagemap, first, last) for first, last in spans.tolist()]
    words = np.concatenate(parts) if parts else np.empty(0, np.uint64)
    words &= np.negative(words >> np.uint64(63)) & (_PRESENT | _EXCLUSIVE | _FRAME)
    return Entries(spans, words)


def present_pages(entries: Entries, ranges: NDArray[np.uint64]) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
    """Pages that are present: their numbers, rising, their page frames, and whether nobody else maps the frame."""
    found = np.flatnonzero(entries.words)
    if not len(found):
        none = np.empty(0, np.uint64)
        return none, none, np.empty(0, bool)
    ends = np.cumsum(entries.spans[:, 1] - entries.spans[:, 0])
    span = np.searchsorted(ends, found.astype(np.uint64), side="right")
    numbers = found.astype(np.uint64) + (entries.spans[:, 1] - ends)[span]
    # What lies in a gap that was read as well may belong to no mapping of these.
    place = np.searchsorted(ranges[:, 0], numbers, side="right") - 1
    kept = (place >= 0) & (numbers < ranges[place, 1])
    words = entries.words[found[kept]]
    return numbers[kept], words & _FRAME, (words & _EXCLUSIVE) != 0


def _populated(pagemap: int, ranges: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Ranges of page numbers worth reading: where pages are present, near ones joined. Reserved address space, of
    which CUDA has terabytes, costs nothing where the kernel can say so.
    """
    if not len(ranges):
        return ranges
    try:
        found = present_runs(pagemap, int(ranges[0, 0]) << 12, int(ranges[-1, 1]) << 12)
    except OSError as error:
        if error.errno not in (errno.ENOTTY, errno.EINVAL):
            raise
        found = ranges
    return _near(found)


def _near(ranges: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The ranges, those near each other joined."""
    if len(ranges) < 2:
        return ranges
    breaks = np.flatnonzero(ranges[1:, 0] - ranges[:-1, 1] > _GAP_PAGES)
    return np.stack(
        (ranges[np.concatenate(([0], breaks + 1)), 0], ranges[np.concatenate((breaks, [len(ranges) - 1])), 1]), axis=1
    )


def present_runs(pagemap: int, start: int, end: int) -> NDArray[np.uint64]:
    """u8[n, 2]: runs of present pages between two addresses, in page numbers. Raises OSError before Linux 6.7."""
    regions = np.empty((_REGIONS, _REGION_WORDS), np.uint64)
    parts = []
    while start < end:
        argument = bytearray(
            _SCAN.pack(_SCAN.size, 0, start, end, 0, regions.ctypes.data, _REGIONS, 0, 0, _IS_PRESENT, 0, _IS_PRESENT)
        )
        count = fcntl.ioctl(pagemap, _PAGEMAP_SCAN, argument, True)
        parts.append(regions[:count, :2] >> np.uint64(12))
        start = _SCAN.unpack(argument)[4]
    return np.concatenate(parts) if parts else np.empty((0, 2), np.uint64)


def _read_pagemap(pagemap: int, first: int, last: int) -> Numbers:
    """The words of a range of page numbers; 0 beyond the end of the address space."""
    words = np.zeros(last - first, np.uint64)
    for begin in range(0, len(words), _CHUNK_PAGES):
        count = min(len(words) - begin, _CHUNK_PAGES)
        found = np.frombuffer(os.pread(pagemap, count * 8, (first + begin) * 8), np.uint64)
        words[begin : begin + len(found)] = found
        if len(found) < count:
            break
    return words


def flags_of(kpageflags: int, frames: Numbers) -> tuple[Numbers, Numbers]:
    """(flags, first frame of its folio) of page frames, which need not be in order.

    The pages of a large folio have one idle bit, at the folio's first frame.
    """
    flags, heads = np.zeros(len(frames), np.uint64), frames.copy()
    groups, place = np.unique(frames // np.uint64(FOLIO_FRAMES), return_inverse=True)
    order = np.argsort(place, kind="stable")
    edges = np.searchsorted(place[order], np.arange(len(groups) + 1))
    for first in range(0, len(groups), _GROUPS):
        last = min(first + _GROUPS, len(groups))
        words = np.zeros((last - first, FOLIO_FRAMES), np.uint64)
        for row, group in enumerate(groups[first:last].tolist()):
            found = np.frombuffer(os.pread(kpageflags, FOLIO_FRAMES * 8, group * FOLIO_FRAMES * 8), np.uint64)
            words[row, : len(found)] = found
        within = np.where(has(words, COMPOUND_HEAD), np.arange(FOLIO_FRAMES, dtype=np.uint64), np.uint64(0))
        head = np.maximum.accumulate(within, axis=1)
        mine = order[edges[first] : edges[last]]
        row, column = place[mine] - first, (frames[mine] % np.uint64(FOLIO_FRAMES)).astype(np.intp)
        flags[mine] = words[row, column]
        tails = has(flags[mine], COMPOUND_TAIL)
        start = groups[place[mine]] * np.uint64(FOLIO_FRAMES)
        heads[mine[tails]] = (start + head[row, column])[tails]
    return flags, heads


def has(flags: Numbers, bit: int) -> NDArray[np.bool_]:
    """Whether a flag is set."""
    return flags >> np.uint64(bit) & np.uint64(1) != 0


class BitPlaces:
    """Where the idle bits of some page frames lie. To find that takes longer than to read them, so it can be kept."""

    def __init__(self, frames: Numbers) -> None:
        self.words, self._place = np.unique(frames >> np.uint64(6), return_inverse=True)
        self._bit = frames & np.uint64(63)

    def of(self, values: Numbers) -> NDArray[np.bool_]:
        """Whether the bit of each frame is set, from the values of ``words``."""
        return values[self._place] >> self._bit & np.uint64(1) != 0

    def masks(self) -> Numbers:
        """For each of ``words`` the bits of these frames."""
        masks = np.zeros(len(self.words), np.uint64)
        np.bitwise_or.at(masks, self._place, np.uint64(1) << self._bit)
        return masks

    def part(self, which: NDArray[np.bool_]) -> BitPlaces:
        """Those of some of the frames."""
        found = BitPlaces.__new__(BitPlaces)
        place = self._place[which]
        used = np.zeros(len(self.words), bool)
        used[place] = True
        found.words, found._place = self.words[used], (np.cumsum(used) - 1)[place]
        found._bit = self._bit[which]
        return found


class IdleBitmap:
    """The idle bits of page frames. Setting one clears the accessed bits of the page, in all its mappings."""

    def __init__(self) -> None:
        """Raises OSError where the kernel has none, or to others than root."""
        self._fd = os.open(BITMAP, os.O_RDWR | os.O_CLOEXEC)

    def idle(self, frames: BitPlaces) -> NDArray[np.bool_]:
        """Whether the bit that was set is still set: nobody touched the page since."""
        wanted, words = frames.words, np.zeros(len(frames.words), np.uint64)
        for first, last in _runs(wanted):
            begin, end = int(wanted[first]), int(wanted[last - 1]) + 1
            found = np.frombuffer(os.pread(self._fd, (end - begin) * 8, begin * 8), np.uint64)
            at = (wanted[first:last] - np.uint64(begin)).astype(np.intp)
            known = at < len(found)
            words[first:last][known] = found[at[known]]
        return frames.of(words)

    def mark(self, frames: BitPlaces) -> None:
        """Set the bits of these frames and of no others. One that cannot be tracked stays as it is."""
        wanted, words = frames.words, frames.masks()
        for first, last in _runs(wanted):
            begin, end = int(wanted[first]), int(wanted[last - 1]) + 1
            block = np.zeros(end - begin, np.uint64)
            block[(wanted[first:last] - np.uint64(begin)).astype(np.intp)] = words[first:last]
            try:
                os.pwrite(self._fd, block.tobytes(), begin * 8)
            except OSError as error:
                if error.errno != errno.ENXIO:  # beyond the last page frame: device memory
                    raise

    def close(self) -> None:
        os.close(self._fd)


def _runs(words: Numbers) -> list[tuple[int, int]]:
    """Slices of rising word numbers that are read at once: near each other and inside one block."""
    if not len(words):
        return []
    block = words // np.uint64(_BLOCK_WORDS)
    breaks = np.flatnonzero((np.diff(words) > _GAP_WORDS) | (block[1:] != block[:-1])) + 1
    return list(itertools.pairwise([0, *breaks.tolist(), len(words)]))
