"""VMA rows of older sessions that are marked as left out by the filter although pages of them are stored.

Up to format 9 the last VMA of a row decided for the whole row and for all windows. The stored page sets, and their
sums over 64 windows, show what the filter really included.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.access_counts import SUMMED_SAMPLES, TouchSum
from memtui.analysis.working_set import bytes_by_range
from memtui.core.fast_numpy import distinct
from memtui.session.page_reader import PageReader
from memtui.session.sample_reader import SampleReader
from memtui.session.vma_row import VmaRow

# Page sets that are compared, spread over the session: sums are coarse, and the last windows have none.
_WINDOWS = 16


class FilterCorrection:
    """Clears ``filtered`` of such rows, and caches the rows with stored pages until there are new sums."""

    def __init__(self, samples: SampleReader, pages: PageReader) -> None:
        self._samples, self._pages = samples, pages
        self._stored: set[int] = set()
        self._key: tuple[object, ...] = ()

    def corrected(self, rows: list[VmaRow]) -> list[VmaRow]:
        """Return the rows, with ``filtered`` cleared where pages of them are stored. Raises SessionError."""
        marked = {row.id for row in rows if _may_be_wrong(row)}
        if not marked or not len(self._samples.table):
            return rows
        key = self._samples.table.newest // SUMMED_SAMPLES[0], frozenset(marked)
        if key != self._key:
            self._stored, self._key = self._with_stored_pages(rows, marked), key
        return [row._replace(filtered="") if row.id in self._stored else row for row in rows]

    def _with_stored_pages(self, rows: Sequence[VmaRow], marked: set[int]) -> set[int]:
        """Return those of the marked rows that have stored pages."""
        samples = self._samples.table.sample
        indices = distinct(np.linspace(0, len(samples) - 1, _WINDOWS).astype(np.int64))
        by_process: dict[int, list[VmaRow]] = defaultdict(list)
        for row in rows:
            by_process[row.process].append(row)
        sums = self._pages.sums_of_level(0, 0, self._samples.table.newest)
        stored: set[int] = set()
        for process, own in by_process.items():
            if marked.isdisjoint(row.id for row in own):
                continue
            pieces = _Pieces(own)
            if process in sums:
                stored |= pieces.accessed_in_sum(sums[process])
            for sample in samples[indices].tolist():
                pages = self._pages.page_set(sample, process)
                if pages is not None:
                    stored |= pieces.owners_of(bytes_by_range(pages, pieces.starts, pieces.ends) > 0)
        return stored & marked


def _may_be_wrong(row: VmaRow) -> bool:
    # What cannot be accessed has rows of its own.
    return bool(row.filtered) and not row.perms.startswith("---")


class _Pieces:
    """Address space in pieces without overlap, each of the shortest row that encloses it."""

    def __init__(self, rows: Sequence[VmaRow]) -> None:
        edges = np.array(sorted({edge for row in rows for edge in (row.start, row.end)}), np.uint64)
        owners = np.full(len(edges) - 1, -1)
        for row in sorted(rows, key=lambda row: row.start - row.end):
            low, high = np.searchsorted(edges, np.array((row.start, row.end), np.uint64))
            owners[low:high] = row.id
        owned = owners >= 0
        self.starts, self.ends, self._owners = edges[:-1][owned], edges[1:][owned], owners[owned]

    def owners_of(self, pieces: NDArray[np.bool_]) -> set[int]:
        return set(self._owners[pieces].tolist())

    def accessed_in_sum(self, touched: TouchSum) -> set[int]:
        """Return the rows that contain an accessed chunk as a whole: who accessed a chunk on an edge is not known."""
        shift = np.uint64(touched.shift)
        chunks, _ = touched.chunks()
        first = np.searchsorted(chunks << shift, self.starts)
        last = np.searchsorted((chunks + np.uint64(1)) << shift, self.ends, side="right")
        return self.owners_of(last > first)
