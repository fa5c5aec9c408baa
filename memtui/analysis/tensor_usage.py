"""Memory of tensors over time: the fullest moment of each stretch of time, by kind of tensor."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import CATEGORIES

STRETCH_NS = 50_000_000
MOST_STRETCHES = 256  # of one step
MOST_ROWS = 600  # of a picture: of more, the fullest ones
_HEAD = 4  # columns before those of the categories
_MAX = 1 << 62
_MAX_BYTES = 1 << 52


@dataclass(frozen=True, slots=True, eq=False)
class TensorUsage:
    """Stretches in order of time, without overlaps.

    Attributes:
        start_ns, end_ns: i8[n], CLOCK_MONOTONIC.
        step: i8[n], the training step of the fullest moment.
        op: i8[n], the operator that allocated last at that moment, index into ``names``; -1: not known.
        usage_bytes: i8[n, len(CATEGORIES)]: bytes in use at that moment.
        names: names of operators.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    step: NDArray[np.int64]
    op: NDArray[np.int64]
    usage_bytes: NDArray[np.int64]
    names: tuple[str, ...]

    @classmethod
    def of(cls, columns: NDArray[np.int64], names: tuple[str, ...]) -> TensorUsage:
        """Take i8[4 + len(CATEGORIES), n], the inverse of ``columns``.

        Raises:
            ValueError: impossible values; one line says why.
        """
        if columns.ndim != 2 or columns.shape[0] != _HEAD + len(CATEGORIES) or columns.dtype.kind != "i":
            raise ValueError(f"usage in columns of shape {columns.shape}")
        if not all(isinstance(name, str) for name in names):
            raise ValueError("the name of an operator is not a text")
        start, end, step, op = columns[:_HEAD].astype(np.int64)
        allocated = columns[_HEAD:].T.astype(np.int64)
        if len(start):
            if start.min() < 0 or end.max() > _MAX or (end < start).any() or (start[1:] < end[:-1]).any():
                raise ValueError("stretches of time are not in order")
            if step.min() < 0 or op.min() < -1 or op.max() >= len(names):
                raise ValueError("a stretch is of no step or operator")
            if allocated.min() < 0 or allocated.max() > _MAX_BYTES:
                raise ValueError("tensors hold what cannot be")
        return cls(start, end, step, op, allocated, names)

    @property
    def columns(self) -> NDArray[np.int64]:
        """i8[4 + len(CATEGORIES), n], as ``of`` takes them."""
        return np.concatenate((np.stack((self.start_ns, self.end_ns, self.step, self.op)), self.usage_bytes.T))

    @property
    def total_bytes(self) -> NDArray[np.int64]:
        """i8[n]: of all kinds together."""
        return self.usage_bytes.sum(axis=1)

    def __len__(self) -> int:
        return len(self.start_ns)


def stretches(
    t_ns: NDArray[np.int64],
    usage_bytes: NDArray[np.int64],
    op: NDArray[np.int64],
    start_ns: int,
    end_ns: int,
    step: int,
) -> NDArray[np.int64]:
    """Return the fullest moment of each stretch of a step, i8[4 + categories, m]; stretches are of one length.

    Args:
        t_ns: i8[n], n > 0: time of each change, rising; the first row is the state at the start.
        usage_bytes: i8[n, categories]: bytes in use from each row on.
        op: i8[n]: operator that made the change.
        start_ns: start of the step.
        end_ns: end of the step.
        step: number of the step.
    """
    count = min(MOST_STRETCHES, max(1, -(-(end_ns - start_ns) // STRETCH_NS)))
    edges = start_ns + (end_ns - start_ns) * np.arange(count + 1, dtype=np.int64) // count
    # The state when a stretch began belongs to the stretch, too.
    first = np.maximum(np.searchsorted(t_ns, edges[:-1], side="right") - 1, 0)
    last = np.maximum(np.searchsorted(t_ns, edges[1:], side="left"), first + 1)
    total = usage_bytes.sum(axis=1)
    rows = np.array([a + int(np.argmax(total[a:b])) for a, b in zip(first.tolist(), last.tolist(), strict=True)])
    head = np.stack((edges[:-1], edges[1:], np.full(count, step), op[rows]))
    return np.concatenate((head, usage_bytes[rows].T)).astype(np.int64)


def joined(columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Join neighbours that together are not longer than a stretch: the fuller moment represents both."""
    if columns.shape[1] < 2:
        return columns
    total = columns[_HEAD:].sum(axis=0).tolist()
    start, end = columns[0].tolist(), columns[1].tolist()
    merged: list[list[int]] = []  # start, end, the column that represents it
    for index in range(len(start)):
        if merged and end[index] - merged[-1][0] <= STRETCH_NS:
            merged[-1][1] = end[index]
            merged[-1][2] = index if total[index] > total[merged[-1][2]] else merged[-1][2]
        else:
            merged.append([start[index], end[index], index])
    result = columns[:, [row[2] for row in merged]]
    result[0], result[1] = [row[0] for row in merged], [row[1] for row in merged]
    return result


def fullest(rows: list[Any]) -> list[Any]:
    """Return at most ``MOST_ROWS`` of the rows, of neighbours the row with the highest peak."""
    if len(rows) <= MOST_ROWS:
        return rows
    edges = np.linspace(0, len(rows), MOST_ROWS + 1).astype(int).tolist()
    return [max(rows[a:b], key=lambda row: row.peak_bytes) for a, b in pairwise(edges)]
