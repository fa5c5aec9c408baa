"""Memory of this process of which a known part is accessed, so that a tracker can prove itself on it."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from memtui.core.page_sizes import PAGE_BYTES, PAGE_SHIFT

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, eq=False)
class OwnPages:
    """4 KiB pages that are present, between two guard pages."""

    address: int  # of the first
    _memory: mmap.mmap
    _clear_refs: int

    @property
    def first(self) -> int:
        """The number of the first page."""
        return self.address >> PAGE_SHIFT

    def order(self, *orders: bytes) -> None:
        """Write to this process's own ``clear_refs``: 1 clears its accessed bits, 4 flushes its translations."""
        for order in orders:
            os.write(self._clear_refs, order)

    def touch(self, pages: Iterable[int]) -> None:
        """Write to some of the pages, counted from 0."""
        for page in pages:
            self._memory[(page + 1) * PAGE_BYTES] = 2


@contextmanager
def own_pages(count: int) -> Iterator[OwnPages]:
    """Yield ``count`` pages, all accessed once; unmap them afterwards. Raises OSError without ``clear_refs``."""
    clear_refs = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
    try:
        with mmap.mmap(-1, (count + 2) * PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            memory.madvise(mmap.MADV_NOHUGEPAGE)
            hold = ctypes.c_char.from_buffer(memory)
            address = ctypes.addressof(hold)
            del hold
            # So that the kernel does not join the mapping with a neighbour.
            for guard in (0, count + 1):
                _libc.mprotect(ctypes.c_void_p(address + guard * PAGE_BYTES), ctypes.c_size_t(PAGE_BYTES), 0)
            pages = OwnPages(address + PAGE_BYTES, memory, clear_refs)
            pages.touch(range(count))
            yield pages
    finally:
        os.close(clear_refs)


def other_pages() -> tuple[str, str] | None:
    """Return (reason, remedy) where the kernel's pages are not of the size that memtui needs, as on some arm64."""
    if mmap.PAGESIZE == PAGE_BYTES:
        return None
    size, own = mmap.PAGESIZE >> 10, PAGE_BYTES >> 10
    return (
        f"it counts in pages of {own} KiB; those of this kernel are of {size} KiB",
        f"a kernel with pages of {own} KiB",
    )


def misjudged(touched: int, seen: int) -> str:
    """Return the reason for a tracker that did not see exactly the accessed pages."""
    return f"the self-test touched {touched} pages of its own and saw {seen}: not to be trusted here"
