"""Turn the allocations and frees of a file, in order, into a trace: match every free to its block."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np

from memtui.analysis.allocation_trace import CATEGORIES, PHASES, StepTrace
from memtui.formats.imported import NotImportable

UNKNOWN, BETWEEN = CATEGORIES.index("unknown"), PHASES.index("between")
_MOST_BYTES = 1 << 50  # of one block


@dataclass(slots=True)
class _Block:
    size_bytes: int
    category: int
    layer: int
    row: int  # of the allocation; -1: the block existed before


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
        self._rows: list[tuple[int, int, int, int]] = []  # time, block, phase, operation
        self._blocks: list[_Block] = []
        self._live: dict[int, dict[int, None]] = defaultdict(dict)  # by category, in the order they came
        self._by_key: dict[tuple[Hashable, int], list[int]] = defaultdict(list)
        self._by_category: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._allocated: dict[Hashable, int] = {}  # by address
        self._parts: dict[int, list[int]] = defaultdict(list)  # of a row: further blocks

    def __len__(self) -> int:
        return len(self._rows)

    def existing(self, size_bytes: int, address: Hashable = None) -> None:
        """Add a block that existed before."""
        block = self._new(size_bytes, UNKNOWN, -1, -1)
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
    ) -> None:
        """Enter a block; no bytes: an operation that allocated nothing. ``key`` matches the free to the block."""
        block = self._new(size_bytes, category, self._name(layer), len(self._rows))
        self._rows.append((t_ns, block, phase, self._name(op)))
        if address is not None:
            self._allocated[address] = block
        elif size_bytes:
            self._by_key[key, size_bytes].append(block)
            self._by_category[category, size_bytes].append(block)
        if not size_bytes:
            del self._live[category][block]

    def free_at(self, t_ns: int, address: Hashable, op: str, *, phase: int = BETWEEN) -> bool:
        """Free the block at an address; return False where no block is known there."""
        block = self._allocated.pop(address, None)
        if block is None:
            return False
        self._free(t_ns, block, phase, op)
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
                if block in live and self._blocks[block].size_bytes == size_bytes:
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
            rest -= self._blocks[block].size_bytes
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
        block = self._blocks[number]
        part_bytes = block.size_bytes - keep_bytes
        block.size_bytes = keep_bytes
        part = self._add(_Block(part_bytes, block.category, block.layer, block.row))
        if block.row >= 0:
            self._parts[block.row].append(part)
        return part

    def _new(self, size_bytes: int, category: int, layer: int, row: int) -> int:
        if not 0 <= size_bytes < _MOST_BYTES:
            raise NotImportable(f"{size_bytes} bytes are no size of a block")
        return self._add(_Block(size_bytes, category, layer, row))

    def _add(self, block: _Block) -> int:
        self._blocks.append(block)
        self._live[block.category][len(self._blocks) - 1] = None
        return len(self._blocks) - 1

    def _free(self, t_ns: int, block: int, phase: int, op: str) -> None:
        del self._live[self._blocks[block].category][block]
        self._rows.append((t_ns, block, phase, self._name(op)))

    def _name(self, text: str) -> int:
        """Return the number of a name; -1 of an empty name."""
        return self._names.setdefault(text, len(self._names)) if text else -1

    def trace(self, start_ns: int, end_ns: int) -> StepTrace:
        """Return all rows as a trace. Raises NotImportable: the rows are not a valid trace."""
        for category, rest in self.base.items():
            if rest > 0:
                self._new(rest, category, -1, -1)
        before = [
            (start_ns, record.size_bytes, block, record.category, BETWEEN, -1, record.layer)
            for block, record in enumerate(self._blocks)
            if record.row < 0 and record.size_bytes
        ]
        rows = []
        for index, (t_ns, block, phase, op) in enumerate(self._rows):
            record = self._blocks[block]
            delta_bytes = record.size_bytes if record.row == index else -record.size_bytes
            rows.append((t_ns, delta_bytes, block, record.category, phase, op, record.layer))
            for part in self._parts.get(index, ()):
                rows.append((t_ns, self._blocks[part].size_bytes, part, record.category, phase, op, record.layer))
        columns = np.array([*before, *rows], np.int64).reshape(-1, 7).T.copy()
        if columns.shape[1]:
            columns[2] = np.unique(columns[2], return_inverse=True)[1]
        try:
            return StepTrace.from_columns(
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
