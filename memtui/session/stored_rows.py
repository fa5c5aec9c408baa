"""Rows of older sessions that are marked as left out by the filter, and of which pages are stored all the same.

Up to format 9 the last VMA of a row decided for all of it and for all windows. What is stored tells otherwise: the page
sets, and their sums over 64 windows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.access_counts import SUMMED_SAMPLES, TouchSum
from memtui.analysis.fast_numpy import distinct
from memtui.analysis.working_set import bytes_by_range
from memtui.session.vma_row import VmaRow

if TYPE_CHECKING:
    from memtui.session.reader import SessionReader

_WINDOWS = 16  # whose page sets are looked at, spread over the session: sums are coarse, and the last windows have none


class StoredRows:
    """Keeps what was found, until there are new sums."""

    def __init__(self) -> None:
        self._found: set[int] = set()
        self._key: tuple[object, ...] = ()

    def marks_mended(self, reader: SessionReader, rows: list[VmaRow]) -> list[VmaRow]:
        """Return the rows, without the mark where pages of them are stored. Raises SessionError."""
        marked = {row.id for row in rows if _may_be_wrong(row)}
        if not marked or not len(reader.samples):
            return rows
        key = reader.samples.newest // SUMMED_SAMPLES[0], frozenset(marked)
        if key != self._key:
            self._found, self._key = _stored(reader, rows, marked), key
        return [row._replace(filtered="") if row.id in self._found else row for row in rows]


def _may_be_wrong(row: VmaRow) -> bool:
    # What cannot be accessed has rows of its own.
    return bool(row.filtered) and not row.perms.startswith("---")


def _stored(reader: SessionReader, rows: Sequence[VmaRow], marked: set[int]) -> set[int]:
    """Which of the marked rows have stored pages."""
    samples = reader.samples.sample
    places = distinct(np.linspace(0, len(samples) - 1, _WINDOWS).astype(np.int64))
    by_process: dict[int, list[VmaRow]] = defaultdict(list)
    for row in rows:
        by_process[row.process].append(row)
    sums = reader.touch_sums_of(0, 0, reader.samples.newest)
    found: set[int] = set()
    for process, own in by_process.items():
        if marked.isdisjoint(row.id for row in own):
            continue
        pieces = _Pieces(own)
        if process in sums:
            found |= pieces.touched_in_sum(sums[process])
        for sample in samples[places].tolist():
            pages = reader.page_set(sample, process)
            if pages is not None:
                found |= pieces.owners_of(bytes_by_range(pages, pieces.starts, pieces.ends) > 0)
    return found & marked


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

    def touched_in_sum(self, touched: TouchSum) -> set[int]:
        """Rows with a touched chunk that lies in them as a whole: who touched a chunk on an edge is not known."""
        shift = np.uint64(touched.shift)
        chunks, _ = touched.chunks()
        first = np.searchsorted(chunks << shift, self.starts)
        last = np.searchsorted((chunks + np.uint64(1)) << shift, self.ends, side="right")
        return self.owners_of(last > first)
