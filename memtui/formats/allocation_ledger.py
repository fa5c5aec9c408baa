"""Turn the allocations and frees of a file, in order, into a trace: match every free to its block."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import CATEGORIES, PHASES, StepTrace
from memtui.formats.imported import NotImportable

UNKNOWN, BETWEEN = CATEGORIES.index("unknown"), PHASES.index("between")
_MOST_BYTES = 1 << 50  # of one block


class Ledger:
    """Collects the allocations and frees of a file, row by row; ``trace`` returns them as a trace.

    A file with addresses says which block is freed. A file without addresses gives the size only: then the newest block
    alive of that key and size is freed, else one of that category and size, else memory that existed before, else parts
    of the newest blocks. Sums, also those by category, are right either way.

    Attributes:
        base: bytes by category that existed before and are not assigned to blocks yet.
        split: frees that took a block in parts.
    """

    def __init__(self, base: Mapping[int, int] | None = None) -> None:
        self.base = dict(base or {})
        self.split = 0
        self._names: dict[str, int] = {}
        # Of each row, and of each block: a file may have millions of both.
        self._t_ns, self._block, self._phase, self._op = array("q"), array("i"), array("b"), array("i")
        self._size_bytes, self._category, self._layer = array("q"), array("b"), array("i")
        self._stack = array("i")  # of each row
        self._stack_before: dict[int, int] = {}  # of each block that existed before and has one
        self._row = array("i")  # of the allocation; -1: the block existed before
        self._live: dict[int, dict[int, None]] = defaultdict(dict)  # by category, in the order they came
        self._by_key: dict[tuple[Hashable, int], list[int]] = defaultdict(list)
        self._by_category: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._allocated: dict[Hashable, int] = {}  # by address
        self._parts: dict[int, list[int]] = defaultdict(list)  # of a row: further blocks

    def __len__(self) -> int:
        return len(self._t_ns)

    def existing(self, size_bytes: int, address: Hashable = None, *, stack: int = -1) -> None:
        """Add a block that existed before. ``stack``: the number of the call stack that allocated it."""
        block = self._new(size_bytes, UNKNOWN, -1, -1)
        if stack >= 0:
            self._stack_before[block] = stack
        if address is not None:
            self._allocated[address] = block

    def allocate(
        self,
        t_ns: int,
        size_bytes: int,
        op: str,
        *,
        category: int = UNKNOWN,
        phase: int = BETWEEN,
        layer: str = "",
        address: Hashable = None,
        key: Hashable = None,
        stack: int = -1,
    ) -> None:
        """Enter a block; no bytes: an operation that allocated nothing.

        ``key`` matches the free to the block; ``stack`` is the number of a call stack.
        """
        block = self._new(size_bytes, category, self._name(layer), len(self))
        self._add_row(t_ns, block, phase, op, stack)
        if not size_bytes:
            del self._live[category][block]
        elif address is not None:
            self._allocated[address] = block
        else:
            self._by_key[key, size_bytes].append(block)
            self._by_category[category, size_bytes].append(block)

    def free_at(self, t_ns: int, address: Hashable, op: str, *, phase: int = BETWEEN, stack: int = -1) -> bool:
        """Free the block at an address; return False where no block is known there."""
        block = self._allocated.pop(address, None)
        if block is None:
            return False
        self._free(t_ns, block, phase, op, stack)
        return True

    def free(
        self,
        t_ns: int,
        size_bytes: int,
        op: str = "",
        *,
        category: int = UNKNOWN,
        phase: int = BETWEEN,
        key: Hashable = None,
    ) -> None:
        """Free ``size_bytes`` of a category.

        Raises NotImportable: fewer bytes are allocated.
        """
        live = self._live[category]
        for waiting in (self._by_key[key, size_bytes], self._by_category[category, size_bytes]):
            while waiting:
                block = waiting.pop()
                if block in live and self._size_bytes[block] == size_bytes:
                    self._free(t_ns, block, phase, op)
                    return
        if self.base.get(category, 0) >= size_bytes:
            self.base[category] -= size_bytes
            self._free(t_ns, self._new(size_bytes, category, -1, -1), phase, op)
        else:
            self._free_parts(t_ns, size_bytes, op, phase, category)

    def _free_parts(self, t_ns: int, size_bytes: int, op: str, phase: int, category: int) -> None:
        self.split += 1
        rest, going = size_bytes, []
        for block in reversed(self._live[category]):
            going.append(block)
            rest -= self._size_bytes[block]
            if rest <= 0:
                break
        if rest > self.base.get(category, 0):
            raise NotImportable(f"frees {size_bytes} bytes where fewer are held")
        if rest > 0:
            self.base[category] -= rest
            going.append(self._new(rest, category, -1, -1))
        elif rest < 0:
            going[-1] = self._cut(going[-1], -rest)
        for block in going:
            self._free(t_ns, block, phase, op)

    def _cut(self, number: int, keep_bytes: int) -> int:
        """Split a block so that ``keep_bytes`` of it stay; return the number of the other part."""
        part_bytes, row = self._size_bytes[number] - keep_bytes, self._row[number]
        self._size_bytes[number] = keep_bytes
        part = self._add(part_bytes, self._category[number], self._layer[number], row)
        if row >= 0:
            self._parts[row].append(part)
        return part

    def _new(self, size_bytes: int, category: int, layer: int, row: int) -> int:
        if not 0 <= size_bytes < _MOST_BYTES:
            raise NotImportable(f"{size_bytes} bytes are not a size of a block")
        return self._add(size_bytes, category, layer, row)

    def _add(self, size_bytes: int, category: int, layer: int, row: int) -> int:
        block = len(self._size_bytes)
        self._size_bytes.append(size_bytes)
        self._category.append(category)
        self._layer.append(layer)
        self._row.append(row)
        self._live[category][block] = None
        return block

    def _free(self, t_ns: int, block: int, phase: int, op: str, stack: int = -1) -> None:
        del self._live[self._category[block]][block]
        self._add_row(t_ns, block, phase, op, stack)

    def _add_row(self, t_ns: int, block: int, phase: int, op: str, stack: int) -> None:
        self._t_ns.append(t_ns)
        self._stack.append(stack)
        self._block.append(block)
        self._phase.append(phase)
        self._op.append(self._name(op))

    def _name(self, text: str) -> int:
        """Return the number of a name; -1 of an empty name."""
        return self._names.setdefault(text, len(self._names)) if text else -1

    def trace(self, start_ns: int, end_ns: int) -> StepTrace:
        """Return all rows as a trace. Raises NotImportable: the rows are not a valid trace."""
        for category, rest in self.base.items():
            if rest > 0:
                self._new(rest, category, -1, -1)
        of_block = [np.array(column, np.int64) for column in (self._size_bytes, self._category, self._layer, self._row)]
        before = np.flatnonzero((of_block[3] < 0) & (of_block[0] > 0))
        columns = self._columns(before, start_ns, *of_block)
        del of_block
        try:
            trace = StepTrace.from_columns(
                columns,
                step=0,
                start_ns=start_ns,
                end_ns=end_ns,
                existing=len(before),
                names=tuple(self._names),
                copy=False,
            )
        except (ValueError, OverflowError) as error:
            raise NotImportable(str(error)) from None
        return replace(trace, stack=self._stacks(before))

    def _stacks(self, before: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the call stack of each row of a trace, -1: not known; None where no row has one."""
        if not self._stack_before and max(self._stack, default=-1) < 0:
            return None
        stack = np.array(self._stack, np.int64)
        parts = [row for row, blocks in sorted(self._parts.items()) for _ in blocks]
        stack = np.insert(stack, [row + 1 for row in parts], stack[parts]) if parts else stack
        return np.concatenate(
            (np.array([self._stack_before.get(block, -1) for block in before.tolist()], np.int64), stack)
        )

    def _columns(
        self,
        before: NDArray[np.int64],
        start_ns: int,
        size_bytes: NDArray[np.int64],
        category: NDArray[np.int64],
        layer: NDArray[np.int64],
        row: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return the columns of a trace: blocks of before, then rows; after a row the other parts of its block."""
        parts = [(after, part) for after, blocks in sorted(self._parts.items()) for part in blocks]
        order = np.insert(np.arange(len(self)), [after + 1 for after, _ in parts], [after for after, _ in parts])
        block = np.insert(np.array(self._block), [after + 1 for after, _ in parts], [part for _, part in parts])
        n = len(before)
        columns = np.empty((7, n + len(order)), np.int64)
        columns[:, :n] = [[start_ns], [0], [0], [0], [BETWEEN], [-1], [0]]
        columns[0, n:] = np.array(self._t_ns)[order]
        columns[1, :n], columns[1, n:] = size_bytes[before], np.where(row[block] == order, 1, -1) * size_bytes[block]
        columns[2, :n], columns[2, n:] = before, block
        columns[3] = category[columns[2]]
        columns[4, n:] = np.array(self._phase)[order]
        columns[5, n:] = np.array(self._op)[order]
        columns[6] = layer[columns[2]]
        used = np.zeros(len(size_bytes), bool)
        used[columns[2]] = True
        columns[2] = (np.cumsum(used) - 1)[columns[2]]
        return columns
