"""Every allocation and free of one training step: usage over time, the peak, and the blocks alive at any row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CATEGORIES = ("weights", "gradients", "activations", "optimiser state", "inputs", "buffers", "temporaries", "unknown")
PHASES = ("forward", "backward", "optimiser", "between")

_COLUMNS = ("t_ns", "delta_bytes", "block", "category", "phase", "op", "layer")
_BETWEEN = PHASES.index("between")
_MAX_BYTES = 1 << 52  # one block, and all rows together: sums stay exact in 64 bits and in a float


@dataclass(frozen=True, slots=True)
class Block:
    """A block of memory that is alive: numbers as in the columns of ``StepTrace``."""

    block: int
    size_bytes: int
    category: int
    op: int
    layer: int
    since_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class StepTrace:
    """Allocations and frees of one training step, in order of time.

    The first ``existing`` rows are the blocks that existed when the step began (weights, optimiser state, buffers,
    inputs, gradients of the step before): at ``start_ns``, phase "between". Times are CLOCK_MONOTONIC. A row of no
    bytes is an operation that allocated nothing; its block has no other row.
    """

    step: int  # number of the step, from 0
    start_ns: int
    end_ns: int
    existing: int
    t_ns: NDArray[np.int64]  # i8[n]
    delta_bytes: NDArray[np.int64]  # i8[n], a free is negative, an operation that allocated nothing 0
    block: NDArray[np.int64]  # i8[n], from 0; an allocation and its free share it
    category: NDArray[np.int64]  # i8[n], index into CATEGORIES, the same in both rows of a block
    phase: NDArray[np.int64]  # i8[n], index into PHASES
    op: NDArray[np.int64]  # i8[n], index into names; -1: not known
    layer: NDArray[np.int64]  # i8[n], index into names; -1: not known
    names: tuple[str, ...]
    stack: NDArray[np.int64] | None = None  # i8[n], number of the call stack; -1: not known; None: of no row

    def __len__(self) -> int:
        return len(self.t_ns)

    @property
    def usage_bytes(self) -> NDArray[np.int64]:
        """i8[n]: bytes in use after each row, the existing blocks included."""
        return np.cumsum(self.delta_bytes)

    @property
    def start_bytes(self) -> int:
        """Bytes in use when the step began."""
        return int(self.delta_bytes[: self.existing].sum())

    @property
    def peak_row(self) -> int:
        """First row after which the most memory is in use; -1 without rows."""
        return int(np.argmax(self.usage_bytes)) if len(self) else -1

    @property
    def peak_bytes(self) -> int:
        """Most bytes in use at once."""
        return int(self.usage_bytes.max(initial=0))

    @property
    def peak_above_start_bytes(self) -> int:
        """Bytes the step needed on top of the bytes in use when it began."""
        return self.peak_bytes - self.start_bytes

    @property
    def returns_to_start(self) -> bool:
        """Whether the step leaves as many bytes in use as it found."""
        return int(self.delta_bytes.sum()) == self.start_bytes

    def by_category(self) -> NDArray[np.int64]:
        """Return i8[n, len(CATEGORIES)]: bytes in use by category after each row; the rows sum to ``usage_bytes``."""
        changes = np.zeros((len(self), len(CATEGORIES)), np.int64)
        changes[np.arange(len(self)), self.category] = self.delta_bytes
        return np.cumsum(changes, axis=0)

    def live_at(self, row: int) -> list[Block]:
        """Return the blocks alive after a row, the largest first.

        Raises:
            IndexError: no such row.
        """
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} is not within 0 and {len(self) - 1}")
        # A block has an odd number of rows so far exactly while it is alive: its first one is the allocation.
        numbers, first, count = np.unique(self.block[: row + 1], return_index=True, return_counts=True)
        alive = (count == 1) & (self.delta_bytes[first] > 0)
        numbers, first = numbers[alive], first[alive]
        order = np.lexsort((numbers, -self.delta_bytes[first]))
        columns = (self.delta_bytes, self.category, self.op, self.layer, self.t_ns)
        picked = [column[first[order]].tolist() for column in columns]
        return [Block(*values) for values in zip(numbers[order].tolist(), *picked, strict=True)]

    def new_blocks(self, row: int) -> list[Block]:
        """Return the blocks alive after a row that the step allocated. Raises IndexError."""
        before = set(self.block[: self.existing].tolist())
        return [block for block in self.live_at(row) if block.block not in before]

    def name(self, index: int) -> str:
        """Name of an operation or a layer; "" when it is not known."""
        return self.names[index] if index >= 0 else ""

    def check(self) -> list[str]:
        """Return a sentence for each kind of broken invariant; none for a sound trace."""
        wrong = self._check_head()
        if wrong:
            return wrong
        n = len(self)
        falls = np.flatnonzero(np.diff(self.t_ns) < 0)
        if len(falls):
            wrong.append(f"time falls at row {falls[0] + 1}")
        if n and (self.t_ns.min() < self.start_ns or self.t_ns.max() > self.end_ns):
            wrong.append("a row lies outside the step")
        for label, column, low, high in (
            ("block", self.block, 0, n),
            ("category", self.category, 0, len(CATEGORIES)),
            ("phase", self.phase, 0, len(PHASES)),
            ("operation", self.op, -1, len(self.names)),
            ("layer", self.layer, -1, len(self.names)),
        ):
            bad = np.flatnonzero((column < low) | (column >= high))
            if len(bad):
                wrong.append(f"{label} {column[bad[0]]} at row {bad[0]} does not exist")
        sizes_sound = not n or -_MAX_BYTES < self.delta_bytes.min() <= self.delta_bytes.max() < _MAX_BYTES
        if not sizes_sound or np.abs(self.delta_bytes.astype(float)).sum() >= _MAX_BYTES:
            return [*wrong, "sizes are too large to be true"]
        before = slice(0, self.existing)
        if (self.delta_bytes[before] <= 0).any():
            wrong.append("a row of the existing blocks is not an allocation")
        if (self.t_ns[before] != self.start_ns).any() or (self.phase[before] != _BETWEEN).any():
            wrong.append("an existing block does not begin with the step")
        below = np.flatnonzero(self.usage_bytes < 0)
        if len(below):
            wrong.append(f"usage is negative after row {below[0]}")
        return wrong + self._check_blocks()

    def _check_head(self) -> list[str]:
        n = len(self.t_ns)
        for label in _COLUMNS:
            column = getattr(self, label)
            if column.shape != (n,) or column.dtype != np.int64:
                return [f"column {label} is not i8[{n}]"]
        stack = self.stack
        if stack is not None and (stack.shape != (n,) or stack.dtype != np.int64 or stack.min(initial=-1) < -1):
            return [f"the call stacks are not numbers of {n} rows"]
        if self.step < 0:
            return [f"step {self.step} is negative"]
        if self.start_ns > self.end_ns:
            return ["the step ends before it begins"]
        if not 0 <= self.existing <= n:
            return [f"{self.existing} existing blocks in {n} rows"]
        return []

    def _check_blocks(self) -> list[str]:
        """Check that each block is allocated once, freed at most once and afterwards, with one size and category."""
        wrong = []
        order = np.argsort(self.block, kind="stable")
        block, delta, category = self.block[order], self.delta_bytes[order], self.category[order]
        same = block[1:] == block[:-1]  # same[i]: row i + 1 belongs to the block of row i
        first = np.concatenate(([True], ~same))[: len(block)]
        alone = first & np.concatenate((~same, [True]))[: len(block)]
        for sentence, bad in (
            ("block {} has a row of no bytes", (delta == 0) & ~alone),
            ("block {} is freed without or before its allocation", first & (delta < 0)),
            ("block {} is allocated twice", ~first & (delta > 0)),
            ("block {} is freed twice", np.concatenate(([False, False], same[1:] & same[:-1]))[: len(block)]),
            ("block {} is freed with another size", np.concatenate(([False], same & (delta[1:] != -delta[:-1])))),
            (
                "block {} changes its category",
                np.concatenate(([False], same & (category[1:] != category[:-1]))),
            ),
        ):
            where = np.flatnonzero(bad[: len(block)])
            if len(where):
                wrong.append(sentence.format(block[where[0]]))
        return wrong

    def to_columns(self) -> NDArray[np.int64]:
        """Return i8[7, n]: time, change in bytes, block, category, phase, operation, layer."""
        return np.stack([getattr(self, label) for label in _COLUMNS])

    @classmethod
    def from_columns(
        cls,
        columns: object,
        *,
        step: int,
        start_ns: int,
        end_ns: int,
        existing: int,
        names: Sequence[str],
        copy: bool = True,
    ) -> StepTrace:
        """Invert ``to_columns``, for data of unknown origin.

        ``copy`` False is for columns that nobody else will change: to touch new memory costs more than to read it.

        Raises:
            ValueError: damaged data; one line says what is wrong.
        """
        try:
            head = _whole(step), _whole(start_ns), _whole(end_ns), _whole(existing)
            if isinstance(names, str) or not isinstance(names, (list, tuple)):
                raise ValueError("the names are not a list")
            if not all(isinstance(name, str) for name in names):
                raise ValueError("a name is not text")
            t_ns, delta_bytes, block, category, phase, op, layer = _columns(columns, copy)
            trace = cls(*head, t_ns, delta_bytes, block, category, phase, op, layer, tuple(names))
            wrong = trace.check()
            if wrong:
                raise ValueError(wrong[0])
        except ValueError as error:
            raise ValueError(f"damaged trace of a step: {error}") from error
        return trace


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not -(1 << 63) <= int(value) < 1 << 63:
        raise ValueError("step, times and the number of existing blocks are whole numbers")
    return int(value)


def _columns(columns: object, copy: bool) -> NDArray[np.int64]:
    """Return i8[7, n]."""
    try:
        array = np.asarray(columns)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError("the columns differ in length") from error
    if array.ndim != 2 or array.shape[0] != len(_COLUMNS):
        raise ValueError(f"the columns have the shape {array.shape}, not ({len(_COLUMNS)}, n)")
    # An empty list has no type of its own.
    if array.size and array.dtype.kind not in "iu":
        raise ValueError("the columns are not whole numbers")
    if array.size and array.dtype.kind == "u" and array.max() >= 1 << 63:
        raise ValueError("a number is too large")
    return array.astype(np.int64, copy=copy)
