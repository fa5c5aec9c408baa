"""Has the C library's allocator give memory back to the kernel, in processes that live for hours."""

from __future__ import annotations

import ctypes

_M_MMAP_THRESHOLD = -3  # malloc.h
_LARGE_BYTES = 128 << 10  # glibc's own limit at the start of a process


def give_back_large_blocks() -> None:
    """Have malloc give each block of 128 KiB and more back to the kernel when it is freed.

    glibc begins so, but raises its limit to the size of any such block that is freed, up to 32 MiB (mallopt(3),
    M_MMAP_THRESHOLD). From then on large blocks lie among small ones that live longer, and the memory of a moment stays
    with the process. A C library without mallopt (musl) has no such limit.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def give_back_free_pages() -> None:
    """Give the pages that malloc has free back to the kernel (malloc_trim(3)); a C library without it (musl) does so.

    By itself glibc does that at the end of its heap only, and one block that lives there keeps all that is free below.
    """
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
