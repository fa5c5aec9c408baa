"""Which file pages were mapped for the first time in a window, and so perhaps without an access.

When a program reads a page of a mapped file for the first time, Linux also maps up to 15 neighbours that are in the
page cache (fault-around), and on x86 sets the accessed bits of all. From the second window on, the accessed bit of such
a page shows its own accesses. So file pages that were not mapped before are counted separately: at least one in 16 of
them was accessed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memtui.core.page_set import PageSet, inside
from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.samples import Vma


class FirstMappings:
    """Follows the file pages of one process from window to window."""

    def __init__(self) -> None:
        self._mapped: PageSet | None = None  # pages of 4 KiB that were mapped before
        self._generation = 0
        self._vmas: tuple[Vma, ...] = ()
        self._edges = file_edges(())

    def update(self, pages: PageSet, resident: PageSet | None, vmas: tuple[Vma, ...], generation: int) -> int | None:
        """Return the bytes of file pages that were first mapped in this window; None in the first window.

        Args:
            pages: the accessed pages of the window.
            resident: the mapped pages at the end of the window, where known: shows what was unmapped since.
            vmas: the mappings at the end of the window.
            generation: number of the address space; a new one has nothing mapped.
        """
        if vmas is not self._vmas:
            self._vmas, self._edges = vmas, file_edges(vmas)
        if generation != self._generation:
            self._generation, self._mapped = generation, PageSet.empty()
        touched, mapped_before = self._of_files(pages), self._mapped
        mapped = self._of_files(resident) if resident is not None else None
        if mapped_before is None:
            self._mapped = touched if mapped is None else mapped
            return None
        self._mapped = mapped_before.union(touched) if mapped is None else mapped
        return touched.difference(mapped_before).page_count * PAGE_BYTES

    def _of_files(self, pages: PageSet) -> PageSet:
        none = np.empty(0, np.uint64)
        return inside(PageSet(pages.blocks, pages.bits, none, none), self._edges)


def file_edges(vmas: tuple[Vma, ...]) -> NDArray[np.uint64]:
    """Return the start and end addresses of the mappings of files and of shared memory in one array, rising."""
    return np.array([edge for v in vmas if v.name.startswith("/") for edge in (v.start, v.end)], np.uint64)
