"""Allocations and frees as a file tells of them, in order, become a trace: which free is of which block."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from memtui.analysis.step_trace import CATEGORIES, PHASES, StepTrace
from memtui.importing.result import NotImportable

UNKNOWN, BETWEEN = CATEGORIES.index("unknown"), PHASES.index("between")
_MOST_BYTES = 1 << 50  # of one block


@dataclass(slots=True)
class _Block:
    size_bytes: int
    category: int
    layer: int
    row: int  # of the allocation; -1: it was there before


@dataclass(slots=True)
class Ledger:
    """Takes what a file says, row by row; ``trace`` is what it comes to.

    A file with addresses says which block is freed. One without says how much: then it is the newest block alive of
    that key and size, else of that size, else memory that was there before, else parts of the newest blocks. Sums are
    right either way.

    Attributes:
        base: bytes by category that were there before and are not accounted for yet.
        guessed: frees whose block was found by its size.
        split: of those, how many took a block in parts.
    """

    base: dict[int, int] = field(default_factory=dict)
    guessed: int = 0
    split: int = 0
    _names: dict[str, int] = field(default_factory=dict)
    _rows: list[tuple[int, int, int, int]] = field(default_factory=list)  # time, block, phase, operation
    _blocks: list[_Block] = field(default_factory=list)
    _live: dict[int, None] = field(default_factory=dict)  # in the order they came
    _by_key: dict[Hashable, list[int]] = field(default_factory=dict)
    _held: dict[Hashable, int] = field(default_factory=dict)  # by address
    _parts: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # of a row: further blocks and their bytes

    def __len__(self) -> int:
        return len(self._rows)

    def name(self, text: str) -> int:
        """The number of a name; -1 of none."""
        return self._names.setdefault(text, len(self._names)) if text else -1

    def existing(self, size_bytes: int, category: int = UNKNOWN, layer: str = "", *, address: Hashable = None) -> int:
        """A block that was there before."""
        block = self._new(size_bytes, category, self.name(layer), -1)
        if address is not None:
            self._held[address] = block
        return block

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
    ) -> int:
        """One more block; of no bytes, an operation that allocated nothing. A free will be known by ``key``."""
        block = self._new(size_bytes, category, self.name(layer), len(self._rows))
        self._rows.append((t_ns, block, phase, self.name(op)))
        if address is not None:
            self._held[address] = block
        elif size_bytes:
            self._by_key.setdefault((key, size_bytes), []).append(block)
            self._by_key.setdefault(size_bytes, []).append(block)
        if not size_bytes:
            self._live.pop(block)
        return block

    def free_at(self, t_ns: int, address: Hashable, op: str, *, phase: int = BETWEEN) -> int | None:
        """The block at an address goes; its size, or None where none is known there."""
        block = self._held.pop(address, None)
        if block is None:
            return None
        self._free(t_ns, block, phase, op)
        return self._blocks[block].size_bytes

    def free(
        self, t_ns: int, size_bytes: int, op: str, *, key: Hashable = None, phase: int = BETWEEN, strict: bool = False
    ) -> None:
        """So many bytes go. ``strict``: of that key only, which is a category.

        Raises NotImportable: there are not so many.
        """
        self.guessed += 1
        ways = ((key, size_bytes),) if strict else ((key, size_bytes), size_bytes)
        for way in ways:
            waiting = self._by_key.get(way, [])
            while waiting:
                block = waiting.pop()
                if block in self._live and self._blocks[block].size_bytes == size_bytes:
                    self._free(t_ns, block, phase, op)
                    return
        category = key if strict and isinstance(key, int) else UNKNOWN
        if self.base.get(category, 0) >= size_bytes:
            self.base[category] -= size_bytes
            self._free(t_ns, self._new(size_bytes, category, -1, -1), phase, op)
            return
        self._free_parts(t_ns, size_bytes, op, phase, category if strict else None)

    def _free_parts(self, t_ns: int, size_bytes: int, op: str, phase: int, category: int | None) -> None:
        self.split += 1
        rest, going = size_bytes, []
        for block in reversed(self._live):
            if category is not None and self._blocks[block].category != category:
                continue
            going.append(block)
            rest -= self._blocks[block].size_bytes
            if rest <= 0:
                break
        before = UNKNOWN if category is None else category
        if rest > self.base.get(before, 0):
            raise NotImportable(f"frees {size_bytes} bytes where fewer are held")
        if rest > 0:
            self.base[before] -= rest
            self._free(t_ns, self._new(rest, before, -1, -1), phase, op)
        elif rest < 0:
            going[-1] = self._cut(going[-1], -rest)
        for block in going:
            self._free(t_ns, block, phase, op)

    def _cut(self, block: int, keep_bytes: int) -> int:
        """Take a part off a block, so that ``keep_bytes`` of it stay; the number of the part."""
        known = self._blocks[block]
        part_bytes = known.size_bytes - keep_bytes
        known.size_bytes = keep_bytes
        self._blocks.append(_Block(part_bytes, known.category, known.layer, known.row))
        part = len(self._blocks) - 1
        if known.row >= 0:
            self._parts.setdefault(known.row, []).append((part, part_bytes))
        self._live[part] = None
        return part

    def _new(self, size_bytes: int, category: int, layer: int, row: int) -> int:
        if not 0 <= size_bytes < _MOST_BYTES:
            raise NotImportable(f"{size_bytes} bytes are no size of a block")
        self._blocks.append(_Block(size_bytes, category, layer, row))
        self._live[len(self._blocks) - 1] = None
        return len(self._blocks) - 1

    def _free(self, t_ns: int, block: int, phase: int, op: str) -> None:
        del self._live[block]
        self._rows.append((t_ns, block, phase, self.name(op)))

    def trace(self, start_ns: int, end_ns: int, step: int = 0) -> StepTrace:
        """All rows. Raises NotImportable: they are no trace."""
        for category, rest in self.base.items():
            if rest > 0:
                self._new(rest, category, -1, -1)
        before = [
            (start_ns, one.size_bytes, block, one.category, BETWEEN, -1, one.layer)
            for block, one in enumerate(self._blocks)
            if one.row < 0 and one.size_bytes
        ]
        rows = []
        for at, (t_ns, block, phase, op) in enumerate(self._rows):
            one = self._blocks[block]
            made = one.row == at
            rows.append((t_ns, one.size_bytes if made else -one.size_bytes, block, one.category, phase, op, one.layer))
            for part, part_bytes in self._parts.get(at, ()):
                rows.append((t_ns, part_bytes, part, one.category, phase, op, one.layer))
        columns = np.array([*before, *rows], np.int64).reshape(-1, 7).T.copy()
        if columns.shape[1]:
            columns[2] = np.unique(columns[2], return_inverse=True)[1]
        try:
            return StepTrace.from_columns(
                columns,
                step=step,
                start_ns=start_ns,
                end_ns=end_ns,
                existing=len(before),
                names=tuple(self._names),
                copy=False,
            )
        except (ValueError, OverflowError) as error:
            raise NotImportable(str(error)) from None
