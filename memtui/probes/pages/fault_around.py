"""Which file pages were mapped for the first time in a window, and so perhaps without an access.

When a program reads a page of a mapped file for the first time, Linux also maps neighbours that are in the page cache
(fault-around: up to 15, or a large folio), and on x86 sets the accessed bits of all. From the second window on, the
accessed bit of such a page shows its own accesses. So file pages that were not mapped before are counted separately:
few of them may have been accessed. One of them without its accessed bit lost it to somebody else, who looks for
accessed pages, too (DAMON): it is added to the window.
"""

from __future__ import annotations

import platform
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from memtui.core.page_set import PageSet, inside
from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.samples import MORE_TOUCHED, Vma
from memtui.core.units import size
from memtui.probes.competing_observers import other_observers
from memtui.probes.pages.tracker import PageWindow, is_little

TAKEN = "file pages that others took the accessed bits of"
ACCESSED_WHEN_MAPPED = platform.machine() == "x86_64"  # arm64 leaves it to the first access


class FirstMappings:
    """Follows the file pages of one process from window to window."""

    def __init__(self) -> None:
        self._mapped: PageSet | None = None  # pages of 4 KiB that were mapped before
        self._whole = False  # those are all that were mapped at the end of the last window
        self._generation = 0
        self._vmas: tuple[Vma, ...] = ()
        self._edges = file_edges(())

    def update(self, window: PageWindow, vmas: tuple[Vma, ...]) -> tuple[PageWindow, int | None]:
        """Return a window, with pages that it lacks, and the bytes of file pages that were first mapped in it.

        The bytes are None in the first window, and in one that knows no pages, or those of a part of the memory only.

        Args:
            window: a new generation of it has nothing mapped. Where its resident pages are known, these show what was
                unmapped since.
            vmas: the mappings at the end of the window.
        """
        pages = window.pages
        if pages is None or window.sampled is not None:
            return window, None
        if vmas is not self._vmas:
            self._vmas, self._edges = vmas, file_edges(vmas)
        if window.generation != self._generation:
            self._generation, self._mapped, self._whole = window.generation, PageSet.empty(), True
        touched, before, whole = self._of_files(pages), self._mapped, self._whole
        mapped = self._of_files(window.resident) if window.resident is not None else None
        before_or_touched = touched if before is None else before.union(touched)
        self._mapped, self._whole = (before_or_touched, False) if mapped is None else (mapped, True)
        if before is None:
            return window, None
        taken = mapped.difference(before_or_touched) if mapped is not None else PageSet.empty()
        # Without others it is a mapping that was moved (mremap).
        if taken.page_count and ACCESSED_WHEN_MAPPED and other_observers():
            if whole:
                window, touched = replace(window, pages=pages.union(taken)), touched.union(taken)
            elif not is_little(taken.size_bytes, pages):  # they may have been mapped before this window
                window = window.doubted(f"about {size(taken.size_bytes)} {MORE_TOUCHED}: {TAKEN}")
        return window, touched.difference(before).page_count * PAGE_BYTES

    def _of_files(self, pages: PageSet) -> PageSet:
        none = np.empty(0, np.uint64)
        return inside(PageSet(pages.blocks, pages.bits, none, none), self._edges)


def file_edges(vmas: tuple[Vma, ...]) -> NDArray[np.uint64]:
    """Return the start and end addresses of the mappings of files and of shared memory in one array, rising."""
    return np.array([edge for v in vmas if v.name.startswith("/") for edge in (v.start, v.end)], np.uint64)
