"""Blocks of memory with the call stacks that allocated them, as memray captures them: every call of every stack."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from memtui.core.call_stacks import CallStacks, Frame

MOST_BLOCKS = 1 << 24
MOST_READINGS = 1 << 23  # a day of them
MAX_ADDRESS = 1 << 57  # with five levels of page tables
_MAX_BYTES = 1 << 52  # all blocks together: sums stay exact in 64 bits and in a float
NO_ADDRESS = -1


@dataclass(frozen=True, slots=True, eq=False)
class StackBlocks:
    """Blocks of memory, in the order in which they were allocated. Every column is i8[n].

    Attributes:
        address: of the first byte; ``NO_ADDRESS``: not known.
        size_bytes: as it was asked for.
        stack: number in ``CallStacks``; -1: not known.
        allocated: number of the row of the capture that allocated it.
        freed: number of the row that freed it; the count of rows: it was still there at the end.
        count: number of allocations that a block stands for, 1 where the capture has each of them.
    """

    address: NDArray[np.int64]
    size_bytes: NDArray[np.int64]
    stack: NDArray[np.int64]
    allocated: NDArray[np.int64]
    freed: NDArray[np.int64]
    count: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.address)

    @classmethod
    def of(cls, columns: NDArray[np.int64]) -> StackBlocks:
        """Take i8[6, n] in the order of the attributes."""
        return cls(*columns)

    @property
    def columns(self) -> NDArray[np.int64]:
        """i8[6, n], as ``of`` takes them."""
        return np.stack((self.address, self.size_bytes, self.stack, self.allocated, self.freed, self.count))

    def where(self, mask: NDArray[np.bool_]) -> StackBlocks:
        """Return some of the blocks."""
        return StackBlocks.of(self.columns[:, mask])

    def alive_after(self, row: int) -> NDArray[np.bool_]:
        """Return which blocks are alive after a row: b1[n]."""
        return (self.allocated <= row) & (self.freed > row)

    def check(self, rows: int, stacks: int) -> None:
        """Raise ValueError for blocks that cannot be."""
        n = len(self)
        others = self.size_bytes, self.stack, self.allocated, self.freed, self.count
        if any(column.shape != (n,) for column in others):
            raise ValueError("blocks are damaged: columns of different length")
        if not n:
            return
        if not (self.address.min() >= NO_ADDRESS and self.address.max() < MAX_ADDRESS):
            raise ValueError("a block lies outside of memory")
        if self.size_bytes.min() < 0 or float(self.size_bytes.astype(float).sum()) >= _MAX_BYTES:
            raise ValueError("sizes are too large to be true")
        if not -1 <= self.stack.min() <= self.stack.max() < stacks:
            raise ValueError("a block is of no known stack")
        if self.allocated.min() < 0 or self.freed.max() > rows or (self.freed <= self.allocated).any():
            raise ValueError("a block is freed before it is allocated, or after the end")
        if (np.diff(self.allocated) < 0).any() or self.count.min() < 1:
            raise ValueError("blocks are not in the order of their allocation")


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """When rows of a capture were: moments at which it is known how many rows there had been.

    Attributes:
        rows: i8[m], how many rows there had been.
        t_ns: i8[m], the time, rising; both empty where no row has a time.
    """

    rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    t_ns: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.rows)

    def check(self, rows: int) -> None:
        """Raise ValueError unless both rise, and rows are those of the capture."""
        if self.rows.shape != self.t_ns.shape or (np.diff(self.rows) < 0).any() or (np.diff(self.t_ns) < 0).any():
            raise ValueError("the times of a capture fall")
        if len(self) and not 0 <= self.rows[0] <= self.rows[-1] <= rows:
            raise ValueError("the times of a capture are of rows that it lacks")

    def rows_before(self, t_ns: int) -> int | None:
        """Return how many rows there had certainly been at a moment; None before the first reading."""
        number = int(np.searchsorted(self.t_ns, t_ns, side="right")) - 1
        return int(self.rows[number]) if number >= 0 else None

    def rows_until(self, t_ns: int) -> int | None:
        """Return how many rows there had been at most at a moment; None after the last reading."""
        number = int(np.searchsorted(self.t_ns, t_ns, side="left"))
        return int(self.rows[number]) if number < len(self) else None

    def moved(self, shift_ns: int) -> Readings:
        """Return the same readings on another clock."""
        return replace(self, t_ns=self.t_ns + shift_ns)


@dataclass(frozen=True, slots=True, eq=False)
class StackCapture:
    """What memray captured of a process.

    Attributes:
        pid: the process, as it knew itself.
        rows: number of its allocations and frees.
        start_ns, end_ns: when the capture began and ended.
        stacks: the call stacks.
        blocks: what was allocated.
        readings: when rows were.
    """

    pid: int
    rows: int
    start_ns: int
    end_ns: int
    stacks: CallStacks
    blocks: StackBlocks
    readings: Readings

    def check(self) -> None:
        """Raise ValueError unless the parts belong together."""
        if not 0 <= self.start_ns <= self.end_ns:
            raise ValueError("a capture ends before it begins")
        self.readings.check(self.rows)
        self.blocks.check(self.rows, len(self.stacks))

    def peak(self) -> tuple[int, int]:
        """Return the most bytes that were allocated at once, and the first row after which; (0, -1) without blocks."""
        blocks = self.blocks
        gone = blocks.freed < self.rows
        row = np.concatenate((blocks.freed[gone], blocks.allocated))
        change = np.concatenate((-blocks.size_bytes[gone], blocks.size_bytes))
        order = np.argsort(row, kind="stable")  # of one row, what goes comes first
        row, usage = row[order], np.cumsum(change[order])
        if not len(row):
            return 0, -1
        last = np.append(row[1:] != row[:-1], True)  # one change of each row
        row, usage = row[last], usage[last]
        most = int(usage.argmax())
        return int(usage[most]), int(row[most])

    def within(self, first_ns: int, last_ns: int) -> StackCapture:
        """Return the capture of a range of time, with the blocks that were, for all that is known, there in it.

        Without readings the times are numbers of rows.
        """
        timed = len(self.readings) > 0
        low = self.readings.rows_before(first_ns) if timed else first_ns
        high = self.readings.rows_until(last_ns) if timed else last_ns
        end = self.rows if high is None else min(high, self.rows)
        blocks, readings = self.blocks, self.readings
        blocks = blocks.where((blocks.freed >= (low or 0)) & (blocks.allocated < end))
        before = readings.rows <= end
        start_ns, end_ns = self.start_ns, self.end_ns
        if timed:
            start_ns = min(max(start_ns, first_ns), end_ns)
            end_ns = max(start_ns, min(end_ns, last_ns))
        return replace(
            self,
            rows=end,  # the end of this one: what is alive then was left
            start_ns=start_ns,
            end_ns=end_ns,
            blocks=replace(blocks, freed=np.minimum(blocks.freed, end)),
            readings=Readings(readings.rows[before], readings.t_ns[before]),
        )

    def sums(self, alive: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return bytes and allocations of some blocks by stack: i8[n + 1] each, the last one of no known stack."""
        blocks, count = self.blocks, len(self.stacks) + 1
        stack = blocks.stack[alive]
        return (
            np.bincount(stack % count, blocks.size_bytes[alive], count).astype(np.int64),  # exact: fewer than 2**53
            np.bincount(stack % count, blocks.count[alive], count).astype(np.int64),
        )


def times_of(rows: NDArray[np.int64], readings: Readings, end_ns: int) -> NDArray[np.int64]:
    """Return the time of each row, i8[n] in ns: that of the first reading after it, or the end."""
    index = np.searchsorted(readings.rows, rows, side="right")
    return np.append(readings.t_ns, end_ns)[index]


def call_text(frame: Frame) -> str:
    """Return a call in short: ``step (train.py:31)``; without a file it is the function alone."""
    if not frame.file:
        return frame.function
    line = f":{frame.line}" if frame.line else ""
    return f"{frame.function} ({frame.file.rpartition('/')[2]}{line})"
