"""What tensors hold over time: of each stretch of time the fullest moment, by kind of tensor."""

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
    """Stretches in order of time; none overlaps another.

    Attributes:
        start_ns, end_ns: i8[n], CLOCK_MONOTONIC.
        step: i8[n], the training step of the fullest moment.
        op: i8[n], the operator that allocated last at that moment, index into ``names``; -1: not known.
        held_bytes: i8[n, len(CATEGORIES)]: bytes held at that moment.
        names: of operators.
    """

    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    step: NDArray[np.int64]
    op: NDArray[np.int64]
    held_bytes: NDArray[np.int64]
    names: tuple[str, ...]

    @classmethod
    def of(cls, columns: NDArray[np.int64], names: tuple[str, ...]) -> TensorUsage:
        """Take i8[4 + len(CATEGORIES), n], the inverse of ``columns``.

        Raises:
            ValueError: what cannot be; one line says why.
        """
        if columns.ndim != 2 or columns.shape[0] != _HEAD + len(CATEGORIES) or columns.dtype.kind != "i":
            raise ValueError(f"usage in columns of shape {columns.shape}")
        if not all(isinstance(name, str) for name in names):
            raise ValueError("the name of an operator is no text")
        start, end, step, op = columns[:_HEAD].astype(np.int64)
        held = columns[_HEAD:].T.astype(np.int64)
        if len(start):
            if start.min() < 0 or end.max() > _MAX or (end < start).any() or (start[1:] < end[:-1]).any():
                raise ValueError("stretches of time are not in order")
            if step.min() < 0 or op.min() < -1 or op.max() >= len(names):
                raise ValueError("a stretch is of no step or operator")
            if held.min() < 0 or held.max() > _MAX_BYTES:
                raise ValueError("tensors hold what cannot be")
        return cls(start, end, step, op, held, names)

    @property
    def columns(self) -> NDArray[np.int64]:
        """i8[4 + len(CATEGORIES), n], as ``of`` takes them."""
        return np.concatenate((np.stack((self.start_ns, self.end_ns, self.step, self.op)), self.held_bytes.T))

    @property
    def total_bytes(self) -> NDArray[np.int64]:
        """i8[n]: of all kinds together."""
        return self.held_bytes.sum(axis=1)

    def __len__(self) -> int:
        return len(self.start_ns)


def stretches(
    t_ns: NDArray[np.int64],
    held_bytes: NDArray[np.int64],
    op: NDArray[np.int64],
    start_ns: int,
    end_ns: int,
    step: int,
) -> NDArray[np.int64]:
    """Return the fullest moment of each stretch of a step, i8[4 + categories, m]; stretches are of one length.

    Args:
        t_ns: i8[n], n > 0: when something changed, rising; what held at the begin is the first row.
        held_bytes: i8[n, categories]: held from each row on.
        op: i8[n]: what made the change.
        start_ns: when the step began.
        end_ns: when it ended.
        step: its number.
    """
    many = min(MOST_STRETCHES, max(1, -(-(end_ns - start_ns) // STRETCH_NS)))
    edges = start_ns + (end_ns - start_ns) * np.arange(many + 1, dtype=np.int64) // many
    # What held when a stretch began belongs to it, too.
    first = np.maximum(np.searchsorted(t_ns, edges[:-1], side="right") - 1, 0)
    last = np.maximum(np.searchsorted(t_ns, edges[1:], side="left"), first + 1)
    total = held_bytes.sum(axis=1)
    rows = np.array([a + int(np.argmax(total[a:b])) for a, b in zip(first.tolist(), last.tolist(), strict=True)])
    head = np.stack((edges[:-1], edges[1:], np.full(many, step), op[rows]))
    return np.concatenate((head, held_bytes[rows].T)).astype(np.int64)


def joined(columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Join neighbours that together are not longer than a stretch: the fuller moment stands for both."""
    if columns.shape[1] < 2:
        return columns
    total = columns[_HEAD:].sum(axis=0).tolist()
    start, end = columns[0].tolist(), columns[1].tolist()
    kept: list[list[int]] = []  # begin, end, the column that stands for it
    for at in range(len(start)):
        if kept and end[at] - kept[-1][0] <= STRETCH_NS:
            kept[-1][1] = end[at]
            kept[-1][2] = at if total[at] > total[kept[-1][2]] else kept[-1][2]
        else:
            kept.append([start[at], end[at], at])
    found = columns[:, [row[2] for row in kept]]
    found[0], found[1] = [row[0] for row in kept], [row[1] for row in kept]
    return found


def fullest(rows: list[Any]) -> list[Any]:
    """Return at most ``MOST_ROWS`` of them, of neighbours the one whose tensors held most."""
    if len(rows) <= MOST_ROWS:
        return rows
    edges = np.linspace(0, len(rows), MOST_ROWS + 1).astype(int).tolist()
    return [max(rows[a:b], key=lambda row: row.peak_bytes) for a, b in pairwise(edges)]
