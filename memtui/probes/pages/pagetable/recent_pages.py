"""Pages that were accessed recently: those to query where another observer clears accessed bits, too.

Querying all pages would cost too much. A page that was not accessed for 4 to 8 windows is not queried again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memtui.core.page_set import PageSet, inside
from memtui.core.page_sizes import BLOCK_BYTES, BLOCK_SHIFT
from memtui.probes.pages.pagetable.walk_result import Extents, Walk

_PAGES = 32768
_FIRST_PAGES = 8 * _PAGES  # queried once
_FILE_PAGES = 4 * _PAGES  # queried in the first windows: a query takes 100 to 230 ns for each page
_WINDOWS = 4


class RecentPages:
    """The recently accessed pages of one process.

    Attributes:
        pages: all of them.
        in_files, elsewhere: the pages in blocks of 2 MiB where files may be mapped, and the others.
    """

    def __init__(self, before: PageSet | None = None, resident_in_files: PageSet | None = None) -> None:
        """Begin with what the first windows may access.

        Args:
            before: pages that were accessed before the first window, which may be all resident ones.
            resident_in_files: resident pages of files and shared memory, accessed or not: the bits of some may have
                been taken then, too, and nothing else queries such pages on their first access.
        """
        before, in_files = before or PageSet.empty(), resident_in_files or PageSet.empty()
        if in_files.page_count > _FILE_PAGES:
            in_files = PageSet.empty()
        few = before.page_count <= _PAGES
        self._recent, self._earlier = before if few else PageSet.empty(), in_files  # the latter for four windows
        self._windows = 0
        self._last: tuple[PageSet, NDArray[np.uint64] | None, Extents] | None = None
        self.pages = before.union(in_files) if few or before.page_count <= _FIRST_PAGES else in_files
        self.in_files, self.elsewhere = self.pages, PageSet.empty()

    def record(self, touched: PageSet, walk: Walk) -> None:
        """Record the pages of the last window, for ``update``."""
        self._last = touched, walk.mappings, walk.anonymous

    def update(self) -> None:
        """Add the recorded pages. This is slow, so call it while nothing is paused."""
        if self._last is None:
            return
        touched, mappings, anonymous = self._last
        self._last = None
        self._windows += 1
        if self._windows % _WINDOWS == 0:
            self._earlier, self._recent = self._recent, PageSet.empty()
        self._recent = self._recent.union(touched)
        self.pages = self._earlier.union(self._recent)
        self.in_files, self.elsewhere = by_blocks_near_files(self.pages, mappings, anonymous)


def resident_in_files(walk: Walk) -> PageSet:
    """Return the resident 4 KiB pages of a walk that are not private anonymous memory."""
    if walk.resident is None:
        return PageSet.empty()
    small = PageSet(walk.resident.blocks, walk.resident.bits, walk.resident.huge[:0], walk.resident.giant[:0])
    return small.difference(inside(small, np.stack(walk.anonymous, axis=1).reshape(-1)))


def by_blocks_near_files(
    pages: PageSet, mappings: NDArray[np.uint64] | None, anonymous: Extents
) -> tuple[PageSet, PageSet]:
    """Return the 4 KiB pages in blocks of 2 MiB where files or shared memory may be mapped, and the others."""
    near_files = _near_files(pages.blocks, mappings, anonymous)
    return _of_blocks(pages, near_files), _of_blocks(pages, ~near_files)


def _of_blocks(pages: PageSet, chosen: NDArray[np.bool_]) -> PageSet:
    return PageSet(pages.blocks[chosen], pages.bits[chosen], pages.huge[:0], pages.giant[:0])


def _near_files(
    blocks: NDArray[np.uint64], mappings: NDArray[np.uint64] | None, anonymous: Extents
) -> NDArray[np.bool_]:
    """Return for each block whether it has a mapping of other than private anonymous memory; True if not known."""
    if mappings is None:
        return np.ones(len(blocks), bool)
    others = mappings[~np.isin(mappings[:, 0], anonymous[0], assume_unique=True)]
    low = blocks << np.uint64(BLOCK_SHIFT)
    first = np.searchsorted(others[:, 1], low, side="right")
    after = np.searchsorted(others[:, 0], low + np.uint64(BLOCK_BYTES), side="left")
    return first < after
