"""Pages first accessed in a window of which another observer took the accessed bit.

Pages that were accessed lately are queried in any case (``recent_pages``). The other pages of private anonymous memory
are all queried where they are few, and otherwise a random part of them, which tells how many may be missing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memtui.core.fast_numpy import random_words
from memtui.core.page_set import PageSet, inside
from memtui.core.page_sizes import PAGES_PER_BLOCK
from memtui.probes.pages.pagetable.walk import Walker
from memtui.probes.pages.pagetable.walk_result import Walk

MOST_PAGES = 1 << 14  # 64 MiB: a query takes 100 to 230 ns for each page (measured)
_EXCLUSIVE = np.uint64(1 << 56)  # of an entry of /proc/PID/pagemap: nobody else maps the page


@dataclass(frozen=True, slots=True, eq=False)
class FirstAccesses:
    """What a query gave.

    Attributes:
        pages: 4 KiB pages that were accessed and whose bits were taken.
        unsure: those of them that may have been accessed before the window.
        doubtful_pages: how many more may have been accessed.
    """

    pages: PageSet
    unsure: PageSet
    doubtful_pages: int


class FirstAccessReader:
    """Queries the pages of one process that are not queried in any case."""

    def __init__(self, walk: Walk) -> None:
        """``walk``: one with resident pages."""
        # All notes of before the window are cleared, except for those of pages that others map, too.
        self._is_cleared, self._left = False, PageSet.empty()
        self._sample: PageSet | None = None
        self._store(walk)

    @property
    def wants_resident(self) -> bool:
        """Whether the next walk should return resident pages, so that all of them can be queried."""
        return self._scale == 1

    def record_clear(self) -> None:
        """Record that the notes of all pages were cleared."""
        self._is_cleared, self._left = True, PageSet.empty()

    def draw(self) -> None:
        """Draw the pages of the next query, where there are too many for all. Nothing should be paused."""
        if self._scale > 1:
            bits = self._pages.bits.copy()
            for _ in range(self._scale.bit_length() - 1):  # each halves what is left
                bits &= random_words(bits.size).reshape(bits.shape)
            self._sample = PageSet.from_blocks(self._pages.blocks, bits)

    def read(self, walker: Walker, pid: int, walk: Walk, recent: PageSet) -> FirstAccesses:
        """Query pages after a walk of this window. Raises as ``Walker.walk``.

        Args:
            walker: with nothing in doubt that is still to be taken.
            pid: of the process.
            walk: of this window.
            recent: pages that are queried in any case.
        """
        if walk.resident is not None:
            self._store(walk)
        if self._scale > 1 and self._sample is None:
            self.draw()
        query = self._pages if self._sample is None else inside(self._sample, _edges(walk))
        self._sample = None
        noted = walker.noted(pid, query.difference(recent).difference(walk.pages))
        walker.take_doubts()  # the note of a larger folio stays, and would be a doubt in every window
        own = _only_mapped_by(pid, noted)
        others = noted.difference(own)
        unsure = own.difference(own.difference(self._left)) if self._is_cleared else own
        self._is_cleared, self._left = self._scale == 1, others
        count, scale = noted.page_count, self._scale
        # With c events seen, c + 2 sqrt(c) + 3 is about the upper limit of 97.5 % of a Poisson distribution's mean.
        most = ceil((count + 2 * sqrt(count) + 3) * scale) if scale > 1 else count
        return FirstAccesses(own, unsure, most - own.page_count)

    def _store(self, walk: Walk) -> None:
        """Keep the pages of private anonymous memory, and how many of them stand for each that is queried."""
        assert walk.resident is not None
        resident, none = walk.resident, np.empty(0, np.uint64)
        self._pages = inside(PageSet(resident.blocks, resident.bits, none, none), _edges(walk))
        self._scale = 1
        while self._pages.page_count > self._scale * MOST_PAGES:
            self._scale *= 2


def _edges(walk: Walk) -> NDArray[np.uint64]:
    return np.stack(walk.anonymous, axis=1).reshape(-1)


def _only_mapped_by(pid: int, pages: PageSet) -> PageSet:
    """Return those of the pages that no other process maps: a note does not say who accessed a page.

    They are few. Where that cannot be read, the set is empty.
    """
    if not len(pages.blocks):
        return pages
    matrix = pages.bit_matrix().astype(bool)
    try:
        with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
            for block, row in zip(pages.blocks.tolist(), matrix, strict=True):
                first, last = np.flatnonzero(row)[[0, -1]].tolist()
                offset = (block * PAGES_PER_BLOCK + first) * 8
                entries = np.frombuffer(os.pread(pagemap.fileno(), (last + 1 - first) * 8, offset), np.uint64)
                row[first : first + len(entries)] &= (entries & _EXCLUSIVE) != 0
                row[first + len(entries) :] = False
    except OSError:
        return PageSet.empty()
    bits = np.packbits(matrix, axis=1, bitorder="little").view("<u8").astype(np.uint64)
    return PageSet.from_blocks(pages.blocks, bits)
