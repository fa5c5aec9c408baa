"""Ranges in three parts, by the samples in which they were mapped: shown, left out by a filter, and not matching."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from memtui.session.vma_row import VmaRow

Entry = tuple[VmaRow, str, str]  # a range, its name, why the filter would leave it out
# The first and last sample of a state of a range, why the filter leaves it out then, and the range in that state.
Span = tuple[int, int, str, VmaRow]


class MappedRanges:
    """Ranges by the samples in which they were mapped. There may be thousands of short-lived ones."""

    def __init__(self, entries: list[Entry], spans: list[Span]) -> None:
        self.entries = entries
        self._first = np.array([span[0] for span in spans], np.int64)
        self._last = np.array([span[1] for span in spans], np.int64)

    def _there(self, sample: int) -> np.ndarray:
        return (self._first <= sample) & (sample <= self._last)

    def in_sample(self, sample: int) -> list[Entry]:
        """Return the ranges that were mapped in a sample."""
        return [self.entries[index] for index in np.flatnonzero(self._there(sample)).tolist()]

    def count(self, sample: int) -> int:
        """Return the number of ranges that were mapped in a sample."""
        return int(self._there(sample).sum())


@dataclass(frozen=True, slots=True)
class FilteredRows:
    """All rows in three parts, with the settings ``by``. A row may be left out in some windows, and shown in others."""

    rows: list[VmaRow]
    by: tuple[object, ...]
    shown: MappedRanges
    left_out: MappedRanges
    unmatched: MappedRanges

    def holds(self, keys: Iterable[int], sample: int) -> bool:
        """Return whether all these ranges were mapped in a sample."""
        parts = (self.shown, self.left_out, self.unmatched)
        return {row.id for part in parts for row, _, _ in part.in_sample(sample)}.issuperset(keys)
