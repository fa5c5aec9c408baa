"""Measures what a cleared accessed bit costs a program on this machine, as the processor has to set the bit again.

The next access of the page finds the bit clear, so the processor writes the page-table entry before it goes on, and
loads and stores that would have overlapped wait for that. Intel SDM volume 3, 4.8 "Accessed and Dirty Flags"; AMD APM
volume 2, 5.4.2. In a virtual machine the hypervisor's tables may have to be walked once more for the write. Setting the
bit takes six times as long where the entry is not in a cache, so both cases are measured. Clearing the bits of a range
loads its entries, so in the second case other memory is read in between, as a program does before it comes back.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Callable

import numpy as np

from memtui.core.accessed_bits import SetCost
from memtui.core.fast_numpy import median, random_words
from memtui.core.page_sizes import PAGE_BYTES
from memtui.probes.pages.tlb_flush import MADV_COLD

PAGES = SetCost.FEW_PAGES  # more than a TLB holds: so this measures setting the bit, and not the flush that clears it
# With this distance each page has a page table of its own: 16 MiB of tables for 16 MiB of memory, as for 8 GiB.
APART = 512
# Each round accesses the pages with their bits set and with their bits cleared. About 200 ms in all.
ROUNDS, ROUNDS_UNCACHED = 5, 3
EVICTED_BYTES = 32 << 20  # as much as a large cache holds
_CHUNK_BYTES = 256 << 10
_MAP_NORESERVE = 0x4000  # mmap has it from Python 3.13 on
_CACHE_LINE_BYTES = 64
_libc = ctypes.CDLL(None, use_errno=True)


def measure_set_cost() -> SetCost | None:
    """Measure how much longer the access of a page takes when its accessed bit was cleared.

    The memory is this process's own, in pages of 4 KiB that are accessed in random order. Returns None where the kernel
    cannot clear the bits of single pages, or there is too little memory.
    """
    try:
        near_ns = _measure_ns(1, ROUNDS)
        other = os.memfd_create("memtui-evict")  # memory that is not mapped: a large buffer would count as ours
        try:
            _fill(other)
            far_ns = _measure_ns(APART, ROUNDS_UNCACHED, lambda: _read(other))
        finally:
            os.close(other)
    except OSError:
        return None
    return SetCost(near_ns, max(near_ns, far_ns))


def _measure_ns(apart: int, rounds: int, evict: Callable[[], None] = lambda: None) -> float:
    """Return the additional time per page, for pages that lie ``apart`` pages from each other. Raises OSError.

    ``evict`` is called before each access of the pages.
    """
    size = PAGES * apart * PAGE_BYTES
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE) as memory:
        try:
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        except OSError:
            pass  # a kernel without huge pages
        values = np.frombuffer(memory, np.uint8)
        try:
            places = np.arange(PAGES, dtype=np.intp)
            # Another cache line in each page: lines at the same offset of all pages would share few sets of a cache.
            touched = places * (apart * PAGE_BYTES) + places * _CACHE_LINE_BYTES % PAGE_BYTES
            touched = touched[np.argsort(random_words(PAGES))]
            values[touched] = 1  # every page is present, and is not the shared zero page
            _time_to_read_ns(values, touched)  # numpy's first call takes longer
            longer_ns = []
            for _ in range(rounds):
                evict()
                set_ns = _time_to_read_ns(values, touched)
                if _libc.madvise(ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(size), MADV_COLD):
                    raise OSError(ctypes.get_errno(), "MADV_COLD")
                evict()
                longer_ns.append(_time_to_read_ns(values, touched) - set_ns)
        finally:
            del values  # the mapping can only be closed without a view of it
    return max(median(np.array(longer_ns)) / PAGES, 0.0)


def _fill(file: int) -> None:
    """Give a file of memory its pages: a hole is read from one page of zeros. Raises OSError."""
    chunk = bytes(_CHUNK_BYTES)
    for offset in range(0, EVICTED_BYTES, _CHUNK_BYTES):
        os.pwrite(file, chunk, offset)


def _read(file: int) -> None:
    """Read a file of memory, which takes the place of all else in the caches."""
    chunk = bytearray(_CHUNK_BYTES)
    for offset in range(0, EVICTED_BYTES, _CHUNK_BYTES):
        os.preadv(file, [chunk], offset)


def _time_to_read_ns(values: np.ndarray, touched: np.ndarray) -> int:
    """Return the CPU time of this thread: on a busy machine it also waits for a CPU, which is no cost of a bit."""
    began_ns = time.thread_time_ns()
    values.take(touched)
    return time.thread_time_ns() - began_ns
