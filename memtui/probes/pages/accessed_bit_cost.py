"""Measures what a cleared accessed bit costs a program on this machine, as the processor has to set the bit again.

The next access of the page finds the bit clear, so the processor writes the page-table entry before it goes on, and
loads and stores that would have overlapped wait for that. Intel SDM volume 3, 4.8 "Accessed and Dirty Flags"; AMD APM
volume 2, 5.4.2. In a virtual machine the hypervisor's tables may have to be walked once more for the write. Setting the
bit takes six times as long where the entry is not in a cache, so both cases are measured.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from statistics import median

import numpy as np

from memtui.core.accessed_bits import SetCost
from memtui.core.page_sizes import PAGE_BYTES
from memtui.probes.pages.tlb_flush import MADV_COLD

PAGES = SetCost.FEW_PAGES  # more than a TLB holds: so this measures setting the bit, and not the flush that clears it
# With this distance each page has a page table of its own: 16 MiB of tables for 16 MiB of memory, as for 8 GiB.
APART = 512
ROUNDS = 5  # each accesses the pages with their bits set and with their bits cleared; about 60 ms in all
_MAP_NORESERVE = 0x4000  # mmap has it from Python 3.13 on
_CACHE_LINE_BYTES = 64
_libc = ctypes.CDLL(None, use_errno=True)


def measure_set_cost() -> SetCost | None:
    """Measure how much longer the access of a page takes when its accessed bit was cleared.

    The memory is this process's own, in pages of 4 KiB that are accessed in random order. Returns None where the kernel
    cannot clear the bits of single pages, or there is too little memory.
    """
    try:
        near_ns, far_ns = _measure_ns(1), _measure_ns(APART)
    except OSError:
        return None
    return SetCost(near_ns, max(near_ns, far_ns))


def _measure_ns(apart: int) -> float:
    """Return the additional time per page, for pages that lie ``apart`` pages from each other. Raises OSError."""
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
            touched = np.random.default_rng(1).permutation(touched)
            values[touched] = 1  # every page is present, and is not the shared zero page
            _time_to_read_ns(values, touched)  # numpy's first call takes longer
            longer_ns = []
            for _ in range(ROUNDS):
                set_ns = _time_to_read_ns(values, touched)
                if _libc.madvise(ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(size), MADV_COLD):
                    raise OSError(ctypes.get_errno(), "MADV_COLD")
                longer_ns.append(_time_to_read_ns(values, touched) - set_ns)
        finally:
            del values  # the mapping can only be closed without a view of it
    return max(median(longer_ns) / PAGES, 0.0)


def _time_to_read_ns(values: np.ndarray, touched: np.ndarray) -> int:
    """Return the CPU time of this thread: on a busy machine it also waits for a CPU, which is no cost of a bit."""
    began_ns = time.thread_time_ns()
    values.take(touched)
    return time.thread_time_ns() - began_ns
