"""The page frames behind a process's pages, and their flags.

/proc/PID/pagemap and /proc/kpageflags, see Documentation/admin-guide/mm/pagemap.rst. Both are arrays of 64-bit words,
of which callers want many short and long runs at once. They are read in long pieces; no Python code loops over pages.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import struct
from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memtui.probes.pages.thread_pool import ThreadPool

Run = tuple[int, int, int]  # index of a word in a file; start and end of its run in the concatenated words of all runs


def run_in_parallel(
    pool: ThreadPool | None, files: list[int], runs: list[Run], least: int, work: Callable[[int, list[Run]], None]
) -> None:
    """Process all runs, in parallel where there are many.

    Args:
        pool: threads that share the work; None: this one alone.
        files: descriptors, one for each thread.
        runs: rising.
        least: words for which another thread is used.
        work: processes some of the runs with one of the files.
    """
    size = runs[-1][2] if runs else 0
    parts = min(len(files), size // least)
    if pool is None or parts < 2:
        work(files[0], runs)
        return
    ends = [end for *_, end in runs]
    edges = [0, *(bisect(ends, size * part // parts) for part in range(1, parts)), len(runs)]
    each = zip(files, itertools.pairwise(edges), strict=False)
    pool.together([partial(work, file, runs[first:last]) for file, (first, last) in each])


def _any_time() -> None:
    """Raise nothing: reading may take as long as it does."""


def read(room: memoryview, file: int, runs: list[Run], check: Callable[[], None] = _any_time) -> None:
    """Read all runs into ``room``; bytes beyond the end of the file stay as they are.

    ``check`` is called before each run, and may raise an error.
    """
    for word, start, end in runs:
        check()
        os.preadv(file, [room[start * 8 : end * 8]], word * 8)


def write(data: memoryview, file: int, runs: list[Run]) -> None:
    """Write all runs from ``data``, except for words beyond the end of the file."""
    for word, start, end in runs:
        try:
            os.pwrite(file, data[start * 8 : end * 8], word * 8)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise


KPAGEFLAGS = Path("/proc/kpageflags")
Numbers = NDArray[np.uint64]

# Bits of a word of pagemap.
_PRESENT, _EXCLUSIVE = np.uint64(1 << 63), np.uint64(1 << 56)
_FRAME = np.uint64((1 << 55) - 1)
# Bits of a word of kpageflags (include/uapi/linux/kernel-page-flags.h).
LRU, COMPOUND_HEAD, COMPOUND_TAIL, HUGETLB, NO_PAGE, ZERO_PAGE = 5, 15, 16, 17, 20, 24
FOLIO_FRAMES = 512  # page frames of the largest folio that is recognised; folios are aligned to their size

_PAGEMAP_SCAN = 0xC0606610  # _IOWR('f', 16, struct pm_scan_arg), since Linux 6.7
_SCAN = struct.Struct("<12Q")
_IS_PRESENT = 1 << 3
_REGIONS, _REGION_FIELDS = 4096, 3
_GAP_PAGES = 64  # reading this many pages in between costs less than another call
_CHUNK_PAGES = _PART_PAGES = 1 << 15  # of pagemap: for less, waking another CPU takes longer than it saves
_GROUPS = 4096  # 16 MiB of flags at a time


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Entries of pagemap for the parts of an address space that were read.

    Attributes:
        spans: u8[n, 2], rising; these parts, in page numbers.
        values: u8 for each page of the parts; 0 where it is not present.
    """

    spans: NDArray[np.uint64]
    values: Numbers

    def same_as(self, other: Entries) -> bool:
        """Whether the same pages lie in the same page frames."""
        return np.array_equal(self.spans, other.spans) and np.array_equal(self.values, other.values)


def read_entries(
    pagemap: int,
    ranges: NDArray[np.uint64],
    *,
    dense: bool = False,
    pool: ThreadPool | None = None,
    check: Callable[[], None] = _any_time,
) -> Entries:
    """Read pagemap.

    Args:
        pagemap: a descriptor of /proc/PID/pagemap, opened with CAP_SYS_ADMIN, or frames are 0.
        ranges: u8[n, 2], rising; start and end of the mappings, in page numbers.
        dense: most pages of the ranges are present, so that searching for present runs costs more than it saves.
        pool: threads that share long work.
        check: is called before each piece, and may raise an error.
    """
    check()
    spans = _near(ranges) if dense else _populated(pagemap, ranges, check)
    runs: list[Run] = []
    size = 0
    for first, last in spans.tolist():
        for page in range(first, last, _CHUNK_PAGES):
            runs.append((page, size, size := size + min(_CHUNK_PAGES, last - page)))
    values = np.zeros(size, np.uint64)  # entries beyond the end of the address space stay 0
    files = [pagemap] * (pool.count if pool else 1)
    run_in_parallel(pool, files, runs, _PART_PAGES, partial(read, values.data.cast("B"), check=check))
    values &= np.negative(values >> np.uint64(63)) & (_PRESENT | _EXCLUSIVE | _FRAME)
    return Entries(spans, values)


def present_pages(entries: Entries, ranges: NDArray[np.uint64]) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
    """Return the present pages: their numbers, rising, their page frames, and whether only this process maps them."""
    present = np.flatnonzero(entries.values)
    if not len(present):
        none = np.empty(0, np.uint64)
        return none, none, np.empty(0, bool)
    ends = np.cumsum(entries.spans[:, 1] - entries.spans[:, 0])
    span = np.searchsorted(ends, present.astype(np.uint64), side="right")
    numbers = present.astype(np.uint64) + (entries.spans[:, 1] - ends)[span]
    # A page in a gap between runs may lie in none of the mappings.
    index = np.searchsorted(ranges[:, 0], numbers, side="right") - 1
    mapped = (index >= 0) & (numbers < ranges[index, 1])
    values = entries.values[present[mapped]]
    return numbers[mapped], values & _FRAME, (values & _EXCLUSIVE) != 0


def _populated(pagemap: int, ranges: NDArray[np.uint64], check: Callable[[], None]) -> NDArray[np.uint64]:
    """Return the ranges of page numbers to read: runs of present pages, near ones joined.

    Reserved address space, of which CUDA has terabytes, costs nothing where the kernel can find present runs.
    """
    if not len(ranges):
        return ranges
    try:
        runs = present_runs(pagemap, int(ranges[0, 0]) << 12, int(ranges[-1, 1]) << 12, check)
    except OSError as error:
        if error.errno not in (errno.ENOTTY, errno.EINVAL):
            raise
        runs = ranges
    return _near(runs)


def _near(ranges: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the ranges, with those near each other joined."""
    if len(ranges) < 2:
        return ranges
    breaks = np.flatnonzero(ranges[1:, 0] - ranges[:-1, 1] > _GAP_PAGES)
    return np.stack(
        (ranges[np.concatenate(([0], breaks + 1)), 0], ranges[np.concatenate((breaks, [len(ranges) - 1])), 1]), axis=1
    )


def present_runs(pagemap: int, start: int, end: int, check: Callable[[], None] = _any_time) -> NDArray[np.uint64]:
    """Return u8[n, 2]: runs of present page numbers between two addresses. Raises OSError before Linux 6.7."""
    regions = np.empty((_REGIONS, _REGION_FIELDS), np.uint64)
    parts = []
    while start < end:
        check()
        argument = bytearray(
            _SCAN.pack(_SCAN.size, 0, start, end, 0, regions.ctypes.data, _REGIONS, 0, 0, _IS_PRESENT, 0, _IS_PRESENT)
        )
        count = fcntl.ioctl(pagemap, _PAGEMAP_SCAN, argument, True)
        parts.append(regions[:count, :2] >> np.uint64(12))
        start = _SCAN.unpack(argument)[4]
    return np.concatenate(parts) if parts else np.empty((0, 2), np.uint64)


def flags_of(kpageflags: int, frames: Numbers, check: Callable[[], None] = _any_time) -> tuple[Numbers, Numbers]:
    """Return (flags, first frame of the folio) of page frames in any order.

    The pages of a large folio have one idle bit, at the folio's first frame. ``check`` is called before each read, and
    may raise an error.
    """
    flags, heads = np.zeros(len(frames), np.uint64), frames.copy()
    groups, group_index = np.unique(frames // np.uint64(FOLIO_FRAMES), return_inverse=True)
    order = np.argsort(group_index, kind="stable")
    edges = np.searchsorted(group_index[order], np.arange(len(groups) + 1))
    for first in range(0, len(groups), _GROUPS):
        last = min(first + _GROUPS, len(groups))
        flag_words = np.zeros((last - first, FOLIO_FRAMES), np.uint64)
        for row, group in enumerate(groups[first:last].tolist()):
            check()
            values = np.frombuffer(os.pread(kpageflags, FOLIO_FRAMES * 8, group * FOLIO_FRAMES * 8), np.uint64)
            flag_words[row, : len(values)] = values
        within = np.where(has(flag_words, COMPOUND_HEAD), np.arange(FOLIO_FRAMES, dtype=np.uint64), np.uint64(0))
        head = np.maximum.accumulate(within, axis=1)
        mine = order[edges[first] : edges[last]]
        row, column = group_index[mine] - first, (frames[mine] % np.uint64(FOLIO_FRAMES)).astype(np.intp)
        flags[mine] = flag_words[row, column]
        tails = has(flags[mine], COMPOUND_TAIL)
        start = groups[group_index[mine]] * np.uint64(FOLIO_FRAMES)
        heads[mine[tails]] = (start + head[row, column])[tails]
    return flags, heads


def has(flags: Numbers, bit: int) -> NDArray[np.bool_]:
    """Whether a flag is set."""
    return flags >> np.uint64(bit) & np.uint64(1) != 0
