"""Measures what a cleared accessed bit costs a program on this machine: its processor has to set the bit again.

The next access of the page finds the bit clear, so the processor writes the page-table entry before it goes on, and
loads and stores that would have overlapped wait for that. Intel SDM volume 3, 4.8 "Accessed and Dirty Flags"; AMD APM
volume 2, 5.4.2. In a virtual machine the hypervisor's tables may have to be walked once more for the write.
"""

from __future__ import annotations

import ctypes
import mmap
import time

import numpy as np

from memtui.pageset import PAGE_BYTES
from memtui.probes.pages.flush import MADV_COLD

PAGES = 4096  # more than a second-level TLB holds: what is measured is the bit, and not the flush that clears it
ROUNDS = 7  # of reading the memory with its bits set and with them cleared; about 25 ms in all
_libc = ctypes.CDLL(None, use_errno=True)


def measure_set_cost_ns() -> float | None:
    """Measure how much longer one page takes, in ns; None where the kernel cannot clear the bits of chosen pages.

    The memory is this process's own, in pages of 4 KiB. The figure is the difference between reading it with
    accessed bits cleared and reading it with the bits set, each at its fastest, and 0 at least.
    """
    with mmap.mmap(-1, PAGES * PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        try:
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        except OSError:
            pass  # a kernel without huge pages
        values = np.frombuffer(memory, np.float32)
        try:
            values_at = ctypes.c_void_p(values.ctypes.data)
            np.add(values, 1, out=values)  # every page is there, and is not the shared page of zeros
            cleared_ns, set_ns = [], []
            _time_to_read_ns(values)  # numpy's first call takes longer
            for _ in range(ROUNDS):
                set_ns.append(_time_to_read_ns(values))
                if _libc.madvise(values_at, ctypes.c_size_t(len(memory)), MADV_COLD):
                    return None
                cleared_ns.append(_time_to_read_ns(values))
        finally:
            del values  # the mapping can only be closed without a view of it
    return max((min(cleared_ns) - min(set_ns)) / PAGES, 0.0)


def _time_to_read_ns(values: np.ndarray) -> int:
    began_ns = time.perf_counter_ns()
    values.max()
    return time.perf_counter_ns() - began_ns
