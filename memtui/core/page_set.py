"""Sets of accessed pages, in the sizes that the hardware maps, as numpy arrays: compact to send, store and count.

A 4 KiB page is one bit of the 512 that make a 2 MiB block (one page-table page on x86-64); a 2 MiB or 1 GiB page is
one number. Blocks without an accessed page are left out. ``inside`` cuts sets to address ranges, without a loop over
pages or ranges.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memtui.core.compression import inflate, inflate_start
from memtui.core.fast_numpy import distinct, is_in, union1d
from memtui.core.page_sizes import (
    BLOCK_BYTES,
    BLOCK_SHIFT,
    GIANT_BYTES,
    GIANT_SHIFT,
    PAGE_BYTES,
    PAGE_SHIFT,
    PAGES_PER_BLOCK,
)

CODEC_ZLIB = 1
ADDRESS_BITS = 57  # with five levels of page tables
MAX_ENCODED_BYTES = 64 << 20  # of one set before compression: 4 KiB pages all over 1.8 TiB
_HEAD = struct.Struct("<III")


def parts_of(numbers: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    """Return the numbers of the ``1 << bits`` parts of each block, in the order of the blocks: u8[n << bits]."""
    return np.add.outer(numbers << np.uint64(bits), np.arange(1 << bits, dtype=np.uint64)).ravel()


@dataclass(frozen=True, slots=True, eq=False)
class PageSet:
    """Accessed pages of one process in one window.

    Attributes:
        blocks: u8[n], rising; ``address >> 21`` of every 2 MiB block with an accessed 4 KiB page.
        bits: u8[n, 8]; bit ``i % 64`` of word ``i // 64`` is page ``i`` of the block.
        huge: u8[m], rising; ``address >> 21`` of every accessed 2 MiB page.
        giant: u8[k], rising; ``address >> 30`` of every accessed 1 GiB page.
    """

    blocks: NDArray[np.uint64]
    bits: NDArray[np.uint64]
    huge: NDArray[np.uint64]
    giant: NDArray[np.uint64]

    @classmethod
    def empty(cls) -> PageSet:
        none = np.empty(0, np.uint64)
        return cls(none, np.empty((0, 8), np.uint64), none, none)

    @classmethod
    def from_blocks(cls, blocks: ArrayLike, bits: ArrayLike, huge: ArrayLike = (), giant: ArrayLike = ()) -> PageSet:
        """Build from unordered arrays; blocks without a bit are left out. A block number may occur once only."""
        blocks, bits = np.asarray(blocks, np.uint64), np.asarray(bits, np.uint64).reshape(-1, 8)
        used = bits.any(axis=1)
        blocks, bits = blocks[used], bits[used]
        order = np.argsort(blocks, kind="stable")
        return cls(
            blocks[order],
            np.ascontiguousarray(bits[order]),
            distinct(np.asarray(huge, np.uint64)),
            distinct(np.asarray(giant, np.uint64)),
        )

    @classmethod
    def from_pages(cls, pages: ArrayLike) -> PageSet:
        """Build from 4 KiB page numbers (``address >> 12``) in any order."""
        pages = np.asarray(pages, np.uint64)
        if not (pages[1:] > pages[:-1]).all():
            pages = distinct(pages)
        numbers = pages >> np.uint64(9)
        first = np.ones(len(numbers), bool)
        np.not_equal(numbers[1:], numbers[:-1], out=first[1:])
        blocks, row = numbers[first], np.cumsum(first) - 1
        bits = np.zeros((len(blocks), PAGES_PER_BLOCK), np.uint8)
        bits[row, (pages & np.uint64(511)).astype(np.intp)] = 1
        masks = np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64, copy=False)
        return cls(blocks, masks, np.empty(0, np.uint64), np.empty(0, np.uint64))

    @property
    def page_count(self) -> int:
        """The count of accessed 4 KiB pages (huge pages not included)."""
        return int(np.bitwise_count(self.bits).sum())

    @property
    def touch_count(self) -> int:
        """The count of accessed pages of any size: one access per page and window."""
        return self.page_count + len(self.huge) + len(self.giant)

    @property
    def size_bytes(self) -> int:
        """The working-set size."""
        return self.page_count * PAGE_BYTES + len(self.huge) * BLOCK_BYTES + len(self.giant) * GIANT_BYTES

    @property
    def memory_bytes(self) -> int:
        """The memory of the set itself."""
        return self.blocks.nbytes + self.bits.nbytes + self.huge.nbytes + self.giant.nbytes

    def union(self, other: PageSet) -> PageSet:
        """Return the pages that are in either."""
        if not other.memory_bytes:
            return self
        blocks = self.blocks
        if np.array_equal(blocks, other.blocks):
            bits = self.bits | other.bits
        else:
            blocks = union1d(blocks, other.blocks)
            bits = np.zeros((len(blocks), 8), np.uint64)
            for part in (self, other):
                bits[np.searchsorted(blocks, part.blocks)] |= part.bits
        return PageSet(blocks, bits, union1d(self.huge, other.huge), union1d(self.giant, other.giant))

    def difference(self, other: PageSet) -> PageSet:
        """Return the pages that are in this one only."""
        bits = self.bits.copy()
        if len(other.blocks):
            index = np.minimum(np.searchsorted(other.blocks, self.blocks), len(other.blocks) - 1)
            both = other.blocks[index] == self.blocks
            bits[both] &= ~other.bits[index[both]]
        used = bits.any(axis=1)
        huge, giant = self.huge[~is_in(self.huge, other.huge)], self.giant[~is_in(self.giant, other.giant)]
        return PageSet(self.blocks[used], bits[used], huge, giant)

    def pages(self) -> NDArray[np.uint64]:
        """Return 4 KiB page numbers, rising (huge pages not included)."""
        row, column = np.nonzero(self.bit_matrix())
        return (self.blocks[row] << np.uint64(9)) + column.astype(np.uint64)

    def bit_matrix(self) -> NDArray[np.uint8]:
        """Return u1[n, 512] of 0 and 1, a row per block."""
        return np.unpackbits(self.bits.astype("<u8", copy=False).view(np.uint8), axis=1, bitorder="little")

    def ranges(self) -> list[tuple[int, int, int]]:
        """Return accessed ranges (start, end, page_bytes) in bytes: runs of 4 KiB pages first, then of larger ones."""
        return list(self.runs())

    def runs(self, borders: Sequence[int] = ()) -> Iterator[tuple[int, int, int]]:
        """Yield the ``ranges`` one by one, in bounded memory, and split at the addresses in ``borders``."""
        cuts = distinct(np.asarray(borders, np.uint64))
        for shift in (PAGE_SHIFT, BLOCK_SHIFT, GIANT_SHIFT):
            firsts = cuts >> np.uint64(shift)
            pending: tuple[int, int] | None = None
            for numbers in self._numbers(shift):
                breaks = np.flatnonzero((np.diff(numbers) != 1) | is_in(numbers[1:], firsts))
                first = numbers[np.concatenate(([0], breaks + 1))].tolist()
                last = numbers[np.concatenate((breaks, [len(numbers) - 1]))].tolist()
                if pending is not None:
                    if pending[1] + 1 == first[0] and not is_in(numbers[:1], firsts)[0]:
                        first[0] = pending[0]
                    else:
                        yield pending[0] << shift, (pending[1] + 1) << shift, 1 << shift
                pending = first.pop(), last.pop()
                yield from ((a << shift, (b + 1) << shift, 1 << shift) for a, b in zip(first, last, strict=True))
            if pending is not None:
                yield pending[0] << shift, (pending[1] + 1) << shift, 1 << shift

    def _numbers(self, shift: int) -> Iterator[NDArray[np.uint64]]:
        """Yield page numbers of one size, rising, in parts that are not empty; a block has 512 numbers at most."""
        if shift != PAGE_SHIFT:
            numbers = self.huge if shift == BLOCK_SHIFT else self.giant
            if len(numbers):
                yield numbers
            return
        for first in range(0, len(self.blocks), 2048):
            part = PageSet(
                self.blocks[first : first + 2048], self.bits[first : first + 2048], self.huge, self.giant
            ).pages()
            if len(part):
                yield part

    def encode(self) -> bytes:
        """Codec 1: three counts, block and huge numbers as differences, words, all little endian; zlib level 1."""
        parts = [_HEAD.pack(len(self.blocks), len(self.huge), len(self.giant))]
        numbers = (*(np.diff(a, prepend=np.uint64(0)) for a in (self.blocks, self.huge, self.giant)), self.bits)
        parts += [a.astype("<u8", copy=False).tobytes() for a in numbers]
        return zlib.compress(b"".join(parts), 1)

    @classmethod
    def decode(cls, data: bytes) -> PageSet:
        """Undo ``encode``. Raises ValueError for damaged data, also before it would decompress too much."""
        try:
            n, m, k = _HEAD.unpack(inflate_start(data, _HEAD.size))
            size_bytes = _HEAD.size + 8 * (n * 9 + m + k)
            if size_bytes > MAX_ENCODED_BYTES:
                raise ValueError(f"{n} blocks are too many")
            raw = inflate(data, size_bytes)
            values = np.frombuffer(raw, "<u8", n * 9 + m + k, _HEAD.size).astype(np.uint64, copy=False)
        except (struct.error, ValueError) as error:
            raise ValueError(f"damaged page set: {error}") from error
        heads = np.split(values[: n + m + k], [n, n + m])
        blocks, huge, giant = (np.cumsum(a, dtype=np.uint64) for a in heads)
        for numbers, shift in ((blocks, BLOCK_SHIFT), (huge, BLOCK_SHIFT), (giant, GIANT_SHIFT)):
            if len(numbers) and (
                numbers[-1] >> np.uint64(ADDRESS_BITS - shift) or not (numbers[1:] > numbers[:-1]).all()
            ):
                raise ValueError("damaged page set: page numbers do not rise")
        return cls(blocks, values[n + m + k :].reshape(n, 8), huge, giant)


_U = np.uint64
_ONES = _U(0xFFFF_FFFF_FFFF_FFFF)


def _tails() -> NDArray[np.uint64]:
    """Return u8[512, 8]: row i has the bits of pages i and above."""
    page = np.arange(PAGES_PER_BLOCK)
    return np.packbits(page[None, :] >= page[:, None], axis=1, bitorder="little").view("<u8").astype(_U, copy=False)


TAILS = _tails()  # 32 KiB


def inside(pages: PageSet, edges: NDArray[np.uint64]) -> PageSet:
    """Return the pages that lie in ranges; a 2 MiB or 1 GiB page is kept whole when any part of it does.

    Args:
        pages: any.
        edges: u8[2 n], bytes, rising: start, end, start, end; ranges may touch, and are not empty.
    """
    # A page is inside when an odd number of edges lies at or below it; edges of touching ranges cancel.
    bits = pages.bits & _inside_masks(pages.blocks, edges)
    used = bits.any(axis=1)
    return PageSet(
        pages.blocks[used],
        bits[used],
        pages.huge[_overlaps(pages.huge, BLOCK_SHIFT, edges)],
        pages.giant[_overlaps(pages.giant, GIANT_SHIFT, edges)],
    )


def union(sets: Iterable[PageSet]) -> PageSet:
    """Return the pages that are in any of some sets."""
    left = list(sets)
    while len(left) > 1:  # in pairs: what is merged stays of one size
        left = [a.union(b) for a, b in zip(left[::2], left[1::2], strict=False)] + left[len(left) & ~1 :]
    return left[0] if left else PageSet.empty()


def _inside_masks(blocks: NDArray[np.uint64], edges: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return u8[n, 8]: the pages of each block with an odd number of edges at or below them."""
    low = blocks << _U(BLOCK_SHIFT)
    first = np.searchsorted(edges, low, side="right")
    masks = np.repeat(np.where(first & 1, _ONES, _U(0))[:, None], 8, axis=1)
    # The block's last page rather than its end, which overflows for the topmost block of 64-bit addresses.
    stop = np.searchsorted(edges, low + _U(BLOCK_BYTES - PAGE_BYTES), side="right")
    cut = np.flatnonzero(stop > first)
    if len(cut):
        # Every edge inside a block toggles all pages from it on. An edge lies in one block, so the edges of the cut
        # blocks are disjoint runs of `edges`; concatenated they are reduced run by run.
        length = (stop - first)[cut]
        start = np.cumsum(length) - length
        which = np.arange(int(length.sum())) + np.repeat(first[cut] - start, length)
        page = ((edges[which] >> _U(PAGE_SHIFT)) & _U(PAGES_PER_BLOCK - 1)).astype(np.intp)
        masks[cut] ^= np.bitwise_xor.reduceat(TAILS[page], start, axis=0)
    return masks


def _overlaps(numbers: NDArray[np.uint64], shift: int, edges: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether each page of ``1 << shift`` bytes shares a byte with the ranges between odd and even edges."""
    low = numbers << _U(shift)
    first = np.searchsorted(edges, low, side="right")
    stop = np.searchsorted(edges, low + _U((1 << shift) - PAGE_BYTES), side="right")
    return (first & 1).astype(np.bool_) | (stop > first)
