"""Requests of a workload to the kernel: the page size, and memory with known borders."""

from __future__ import annotations

import ctypes
import mmap
import os

PAGE_BYTES = mmap.PAGESIZE

_PR_SET_THP_DISABLE = 41
_PROT_NONE = 0
_PROT_READ_WRITE = 3
_MADV_HUGEPAGE = 14
_MADV_NOHUGEPAGE = 15
_MAP_PRIVATE_ANONYMOUS = 0x22
_HUGE_BYTES = 2 << 20

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def disable_huge_pages() -> bool:
    """Restrict this process to the base page size; return False where the kernel refused, and pages may be 2 MiB.

    numpy asks for huge pages for every array above 4 MiB; a 2 MiB page has one accessed bit, so a shuffled batch of
    small images would make nearly the whole data set look used.
    """
    return _libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0


def map_pages(pages: int, *, huge: bool = False) -> int:
    """Map anonymous memory of its own VMA and return its address.

    A page without access on each side keeps the kernel from merging it with a neighbour, so that the line in
    ``/proc/PID/maps`` has exactly these borders.

    Args:
        pages: how many pages of ``PAGE_BYTES``.
        huge: ask for 2 MiB pages, on a 2 MiB border, instead of refusing them.
    """
    size = pages * PAGE_BYTES
    slack = _HUGE_BYTES if huge else PAGE_BYTES
    whole = size + 2 * slack
    start = _libc.mmap(None, whole, _PROT_NONE, _MAP_PRIVATE_ANONYMOUS, -1, 0)
    if start is None or start == ctypes.c_void_p(-1).value:
        raise MemoryError(f"cannot map {whole} bytes: {os.strerror(ctypes.get_errno())}")
    address: int = start + PAGE_BYTES
    if huge:
        address = (address + _HUGE_BYTES - 1) & -_HUGE_BYTES
    if _libc.mprotect(address, size, _PROT_READ_WRITE) != 0:
        raise MemoryError(f"cannot use {size} bytes: {os.strerror(ctypes.get_errno())}")
    _libc.madvise(address, size, _MADV_HUGEPAGE if huge else _MADV_NOHUGEPAGE)
    return address
