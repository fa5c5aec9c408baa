"""Which file pages were mapped for the first time in a window, and so perhaps without having been touched.

When a program reads a page of a mapped file for the first time, Linux maps up to 15 neighbours that are in the page
cache, too (fault-around), and on x86 marks them all as accessed. From the second window on the marks of such a page
are its own. So pages of files that were not mapped before are counted apart: at least one in 16 of them was touched.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memtui.pageset import BLOCK_BYTES, PAGE_BYTES, PAGE_SHIFT, PageSet
from memtui.samples import Vma


class FirstMappings:
    """Follows the file pages of one process from window to window."""

    def __init__(self) -> None:
        self._known: NDArray[np.uint64] | None = None  # numbers of pages that were mapped before
        self._generation = 0

    def note(self, pages: PageSet, resident: PageSet | None, vmas: tuple[Vma, ...], generation: int) -> int | None:
        """Bytes of file pages first mapped in this window; None in the very first one, where nothing is known before.

        Args:
            pages: the touched pages of the window.
            resident: the mapped pages at its end, when they are known: corrects what was unmapped since.
            vmas: the mappings at its end.
            generation: number of the address space; a new one has nothing mapped.
        """
        extents = file_extents(vmas)
        if generation != self._generation:
            self._generation, self._known = generation, np.empty(0, np.uint64)
        touched = pages_within(pages, *extents)
        known = self._known
        self._known = pages_within(resident, *extents) if resident is not None else None
        if known is None:
            self._known = touched if self._known is None else self._known
            return None
        new = np.setdiff1d(touched, known, assume_unique=True)
        if self._known is None:
            self._known = np.union1d(known, new) if len(new) else known
        return len(new) * PAGE_BYTES


def file_extents(vmas: tuple[Vma, ...]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Start and end addresses of the mappings of files and of shared memory, rising."""
    kept = [v for v in vmas if v.name.startswith("/")]
    return np.array([v.start for v in kept], np.uint64), np.array([v.end for v in kept], np.uint64)


def pages_within(pages: PageSet, starts: NDArray[np.uint64], ends: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers (``address >> 12``) of the 4 KiB pages in the extents, rising."""
    low = pages.blocks * np.uint64(BLOCK_BYTES)
    # Most blocks are none of files: leave them out before their pages are listed.
    near = np.searchsorted(starts, low + np.uint64(BLOCK_BYTES)) > np.searchsorted(ends, low, side="right")
    none = np.empty(0, np.uint64)
    numbers = PageSet(pages.blocks[near], np.ascontiguousarray(pages.bits[near]), none, none).pages()
    address = numbers << np.uint64(PAGE_SHIFT)
    return numbers[np.searchsorted(starts, address, side="right") > np.searchsorted(ends, address, side="right")]
