"""Touched pages by the kind of the tensors that lie in them: of a working set, and of the rows of a heat map."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.analysis.heat_layout import Layout, intersect
from memtui.analysis.working_set import bytes_by_range, bytes_in
from memtui.core.page_set import PageSet
from memtui.core.page_sizes import PAGE_BYTES

UNKNOWN = CATEGORIES.index("unknown")
MAX_ADDRESS = 1 << 57  # with five levels of page tables


def tensor_name(layer: str, part: str) -> str:
    """Return the name as PyTorch writes it: "features.3.weight"; empty where nothing is known."""
    return ".".join(filter(None, (layer, part)))


@dataclass(frozen=True, slots=True, eq=False)
class TensorMap:
    """Tensors of a process by address.

    Attributes:
        start, size_bytes, category: i8[n], rising by address; ``category`` counts ``allocation_trace.CATEGORIES``.
        names: layer of each tensor.
        parts: name of each tensor in its layer; empty where that is not known.
    """

    start: NDArray[np.int64]
    size_bytes: NDArray[np.int64]
    category: NDArray[np.int64]
    names: tuple[str, ...]
    parts: tuple[str, ...]

    @classmethod
    def of(cls, columns: NDArray[np.int64], names: Sequence[str], parts: Sequence[str] = ()) -> TensorMap:
        """Take i8[3, n] (address, size, category) in any order.

        Raises:
            ValueError: tensors outside of memory, of no size, on top of each other or of no such category.
        """
        if columns.ndim != 2 or columns.shape != (3, len(names)):
            raise ValueError(f"{len(names)} tensors in columns of shape {columns.shape}")
        parts = parts or ("",) * len(names)
        if len(parts) != len(names) or not all(isinstance(name, str) for name in (*names, *parts)):
            raise ValueError("the name of a tensor is not a text")
        order = np.argsort(columns[0], kind="stable")
        start, size, category = (columns[n][order] for n in range(3))
        if len(order) and not (
            start.min() >= 0 and start.max() < MAX_ADDRESS and size.min() > 0 and size.max() < MAX_ADDRESS
        ):
            raise ValueError("a tensor lies outside of memory")
        if (start[1:] < start[:-1] + size[:-1]).any():
            raise ValueError("two tensors lie on top of each other")
        if len(order) and not 0 <= category.min() <= category.max() < len(CATEGORIES):
            raise ValueError("a tensor is of no known category")
        layers, own = (tuple(some[n] for n in order.tolist()) for some in (names, parts))
        return cls(start, size, category, layers, own)

    def title(self, number: int) -> str:
        """Return the layer and part of a tensor, and its kind."""
        return f"{tensor_name(self.names[number], self.parts[number])} {CATEGORIES[int(self.category[number])]}".strip()

    def most_of(self, category: int) -> tuple[str, int] | None:
        """Return (name, bytes) of the tensor that is at least half of a category; None without one, or without name."""
        sizes = np.where(self.category == category, self.size_bytes, 0)
        if not len(sizes) or 2 * int(sizes.max()) < max(int(sizes.sum()), 1):
            return None
        number = int(sizes.argmax())
        name = tensor_name(self.names[number], self.parts[number])
        return (name, int(sizes[number])) if name else None

    @property
    def columns(self) -> NDArray[np.int64]:
        """i8[3, n], as ``of`` takes them."""
        return np.stack((self.start, self.size_bytes, self.category))

    def part(self, of: NDArray[np.bool_]) -> TensorMap:
        """Return some of the tensors; ``of``: bool[n]."""
        names, parts = (tuple(itertools.compress(texts, of)) for texts in (self.names, self.parts))
        return TensorMap(self.start[of], self.size_bytes[of], self.category[of], names, parts)

    def exists_bytes(self) -> NDArray[np.int64]:
        """Return i8[len(CATEGORIES)]: sizes added up by category."""
        return self._by_category(self.size_bytes)

    def touched_bytes(self, pages: PageSet) -> NDArray[np.int64]:
        """Return i8[len(CATEGORIES)]: the bytes of ``touched_each``, added up by category."""
        return self._by_category(self.touched_each(pages))

    def touched_each(self, pages: PageSet) -> NDArray[np.int64]:
        """Return i8[n]: bytes of each tensor that lie in touched pages, so never more than its size.

        Which of the tensors in a page was touched is not known: each counts its own part of it.
        """
        return bytes_in(pages, self.start, self.start + self.size_bytes)

    def page_bytes(self, pages: PageSet) -> int:
        """Return the size of the touched pages in which a tensor lies; a page that several share counts once."""
        return int(bytes_by_range(pages, *self.page_ranges()).sum())

    def page_ranges(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return (starts, ends), u8[n], rising, disjoint: whole pages of each tensor, less those of the one before."""
        first = self.start // PAGE_BYTES * PAGE_BYTES
        last = -(-(self.start + self.size_bytes) // PAGE_BYTES) * PAGE_BYTES
        # The page in which one ends and the next begins.
        first[1:] = np.maximum(first[1:], np.maximum.accumulate(last)[:-1])
        last = np.maximum(last, first)  # one that lies in a page of others only
        return first.astype(np.uint64), last.astype(np.uint64)

    def largest_in(self, start: int, end: int) -> int | None:
        """Return the tensor with the most bytes in a range of addresses; None where no tensor lies there."""
        first = max(int(np.searchsorted(self.start, start, side="right")) - 1, 0)
        last = int(np.searchsorted(self.start, end))
        ends = self.start[first:last] + self.size_bytes[first:last]
        inside = np.minimum(ends, end) - np.maximum(self.start[first:last], start)
        return first + int(inside.argmax()) if len(inside) and inside.max() > 0 else None

    def _by_category(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        totals = np.zeros(len(CATEGORIES), np.int64)
        np.add.at(totals, self.category, values)
        return totals


NO_KIND = 255
LEAST = 4  # a bin is of a kind when tensors hold this part of it: 1 / 4


def bin_kinds(layout: Layout, tensors: TensorMap) -> NDArray[np.uint8]:
    """Return u1[bins]: the kind with the most bytes of each bin, where tensors have a quarter; else ``NO_KIND``."""
    count = len(CATEGORIES)
    starts = tensors.start.astype(np.uint64)
    ends = starts + tensors.size_bytes.astype(np.uint64)
    parts, part_ends, which = intersect(starts, ends, layout.starts, layout.ends)
    tensor_bytes = np.zeros(len(layout.bin_bytes) * count, np.int64)
    np.add.at(
        tensor_bytes, layout.bin_of(parts) * count + tensors.category[which], (part_ends - parts).astype(np.int64)
    )
    by_bin = tensor_bytes.reshape(-1, count)
    kinds = np.where(by_bin.sum(axis=1) * LEAST >= np.maximum(layout.bin_bytes, 1), by_bin.argmax(axis=1), NO_KIND)
    # A bin without bytes of its own repeats another one, as the picture does.
    return np.where(layout.source >= 0, kinds[layout.source], NO_KIND).astype(np.uint8)
