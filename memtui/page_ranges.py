"""Page sets restricted to address ranges, without a loop over pages or ranges."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memtui.pageset import BLOCK_BYTES, BLOCK_SHIFT, GIANT_SHIFT, PAGE_BYTES, PAGE_SHIFT, PAGES_PER_BLOCK, PageSet

_U = np.uint64
_ONES = _U(0xFFFF_FFFF_FFFF_FFFF)


def _tails() -> NDArray[np.uint64]:
    """u8[512, 8]: row i has the bits of pages i and above."""
    page = np.arange(PAGES_PER_BLOCK)
    return np.packbits(page[None, :] >= page[:, None], axis=1, bitorder="little").view("<u8").astype(_U, copy=False)


TAILS = _tails()  # 32 KiB


def inside(pages: PageSet, edges: NDArray[np.uint64]) -> PageSet:
    """The pages that lie in ranges; a 2 MiB or 1 GiB page is kept whole when any part of it does.

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


def _inside_masks(blocks: NDArray[np.uint64], edges: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """u8[n, 8]: the pages of each block with an odd number of edges at or below them."""
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
        begin = np.cumsum(length) - length
        which = np.arange(int(length.sum())) + np.repeat(first[cut] - begin, length)
        page = ((edges[which] >> _U(PAGE_SHIFT)) & _U(PAGES_PER_BLOCK - 1)).astype(np.intp)
        masks[cut] ^= np.bitwise_xor.reduceat(TAILS[page], begin, axis=0)
    return masks


def _overlaps(numbers: NDArray[np.uint64], shift: int, edges: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether each page of ``1 << shift`` bytes shares a byte with the ranges between odd and even edges."""
    low = numbers << _U(shift)
    first = np.searchsorted(edges, low, side="right")
    stop = np.searchsorted(edges, low + _U((1 << shift) - PAGE_BYTES), side="right")
    return (first & 1).astype(np.bool_) | (stop > first)
