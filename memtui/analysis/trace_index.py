"""An index of a recorded step for repeated queries, built once: a million rows take a tenth of a second."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import CATEGORIES, StepTrace

_EACH = 1024  # rows from one stored sum to the next: 62 KiB for a million rows, and a query adds up 1024 rows at most
_KINDS = len(CATEGORIES)


class StepIndex:
    """A step with its sums, and its blocks by size.

    Blocks are numbered from the largest to the smallest, equal sizes in order of their numbers in the trace. Kind and
    layer of a free are those of the block, so both rows of a block have the same; operator and phase are its own.

    Attributes:
        usage_bytes: i8[n], bytes in use after each row.
        layer: i4[n], index into the names, -1: not known.
        size_bytes: i8[blocks], falling.
        born: i4[blocks], row of the allocation.
        died: i4[blocks], row of the free; ``len(trace)``: not freed.
        start_row: the last row of the existing blocks (0 where no block existed before the step).
        zero: bool[n], rows that cancel out: those of no bytes, and an allocation with its free right behind it,
            except for the pair that makes the peak.
    """

    def __init__(self, trace: StepTrace) -> None:
        self.trace = trace
        n = len(trace)
        self.usage_bytes = trace.usage_bytes
        self.peak_row = int(np.argmax(self.usage_bytes)) if n else -1
        self.peak_bytes = int(self.usage_bytes[self.peak_row]) if n else 0
        self.start_bytes = trace.start_bytes
        self.start_row = max(0, trace.existing - 1)
        born = np.flatnonzero(trace.delta_bytes > 0)
        frees = np.flatnonzero(trace.delta_bytes < 0)
        died_of, layer_of = np.full(n, n, np.int32), np.full(n, -1, np.int32)
        died_of[trace.block[frees]] = frees
        allocations = np.flatnonzero(trace.delta_bytes >= 0)
        layer_of[trace.block[allocations]] = trace.layer[allocations]
        self.layer = layer_of[trace.block]
        order = np.lexsort((trace.block[born], -trace.delta_bytes[born]))
        born = born[order]
        self.born = born.astype(np.int32)
        self.died = died_of[trace.block[born]]
        self.size_bytes = trace.delta_bytes[born]
        self.zero = self._zero()
        cell = np.arange(n) // _EACH * _KINDS + trace.category
        changes = np.bincount(cell, trace.delta_bytes, -(-n // _EACH) * _KINDS).astype(np.int64)  # below 2**53: exact
        self._sums = np.zeros((len(changes) // _KINDS + 1, _KINDS), np.int64)  # before each part of _EACH rows
        np.cumsum(changes.reshape(-1, _KINDS), axis=0, out=self._sums[1:])

    def __len__(self) -> int:
        return len(self.trace)

    def _zero(self) -> NDArray[np.bool_]:
        trace, zero = self.trace, self.trace.delta_bytes == 0
        # Row i + 1 of the same block is its free.
        first = np.flatnonzero(trace.block[1:] == trace.block[:-1])
        first = first[(first >= trace.existing) & (first != self.peak_row)]
        zero[first] = zero[first + 1] = True
        return zero

    def usage_by_category(self, row: int) -> NDArray[np.int64]:
        """Return i8[len(CATEGORIES)]: bytes in use after a row; they add up to ``usage_bytes``."""
        part, trace = row // _EACH, self.trace
        since = slice(part * _EACH, row + 1)
        changes = np.bincount(trace.category[since], trace.delta_bytes[since], _KINDS)
        return self._sums[part] + changes.astype(np.int64)

    def alive(self, row: int) -> NDArray[np.bool_]:
        """Return bool[blocks]: which are alive after a row."""
        return (self.born <= row) & (self.died > row)
