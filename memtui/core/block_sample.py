"""Random parts of the memory, of which each window reads one, and an estimate of the working set from it. Pure.

A hash of their number and a seed divides the blocks of 2 MiB into parts, so a part is a random sample, and all parts
together are the memory. There are ten parts, or more where a part would have too many blocks that are mapped in small
pages, which cost most. Windows read one part after another. The estimate is the ratio estimator of cluster sampling
(Cochran, Sampling Techniques, 3rd edition, 6.3 and 9A.1): accessed bytes by resident bytes in the sample, times the
resident bytes of the process, which are known. It is exact where everything is accessed, or nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from memtui.core.page_set import PageSet
from memtui.core.page_sizes import BLOCK_BYTES, PAGE_BYTES

PARTS = 10  # at least
SMALL_PAGE_BLOCKS = 32  # of a part, at most twice as many: 512 bits each, which cost about 1 % of a second in all
FEW_BLOCKS = 30  # in a part; with fewer the interval is not reliable
_Z = 1.96  # of a normal distribution, for an interval of 95 %
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)  # as in pagetable.bpf.c
_HALF = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A working set that was estimated from a part of the memory.

    Attributes:
        wss_bytes: the estimate.
        low_bytes: of its interval; at least what was seen.
        high_bytes: likewise; at most what is resident.
        scale: bytes of the process for which one byte in the sample stands.
        blocks: of 2 MiB, in the sample.
    """

    wss_bytes: int
    low_bytes: int
    high_bytes: int
    scale: float
    blocks: int


@dataclass(frozen=True, slots=True)
class BlockSample:
    """A division of blocks into ``parts``, by a ``seed`` below 2**64."""

    seed: int
    parts: int = PARTS

    def for_blocks(self, small_page_blocks: int) -> BlockSample:
        """Return this sample, or a finer one if a part would have too many blocks mapped in pages of 4 KiB.

        Part n of the finer sample lies in part ``n % self.parts`` of this one.
        """
        parts = self.parts
        while small_page_blocks > 2 * SMALL_PAGE_BLOCKS * parts:
            parts *= 2
        return replace(self, parts=parts)

    def part_of(self, blocks: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the part of each block, u8[n], from its number (``address >> 21``)."""
        mixed = (blocks ^ np.uint64(self.seed)) * _FIRST
        mixed = (mixed ^ mixed >> _HALF) * _SECOND
        return (mixed >> _HALF) % np.uint64(self.parts)

    def select(self, pages: PageSet, part: int) -> PageSet:
        """Return the pages that lie in one part. Pages of 1 GiB are in none."""
        keep, keep_huge = self.part_of(pages.blocks) == part, self.part_of(pages.huge) == part
        return PageSet(pages.blocks[keep], pages.bits[keep], pages.huge[keep_huge], pages.giant[:0])


def estimate(touched: PageSet, resident: PageSet, rss_bytes: int | None, doubtful_bytes: int = 0) -> Estimate | None:
    """Estimate the working set of a process from one part of its memory.

    Args:
        touched: pages of the part.
        resident: pages of the part that are there.
        rss_bytes: all resident memory; None: not known.
        doubtful_bytes: of the part, which were perhaps accessed, too; they raise the upper end of the interval.

    Returns:
        The estimate with its 95 % interval; None where the part has no resident page, or ``rss_bytes`` is None.
    """
    if rss_bytes is None:
        return None
    there = _bytes_by_block(resident)
    resident_bytes = sum(there.values())
    if not resident_bytes:
        return None
    seen = _bytes_by_block(touched)
    used = np.array([seen.get(block, 0) for block in there])
    present = np.array(list(there.values()))
    ratio = min(float(used.sum()) / resident_bytes, 1.0)
    scale = max(rss_bytes / resident_bytes, 1.0)
    count = len(present)
    # Variance between blocks; a single block shows no variance.
    spread = float(((used - ratio * present) ** 2).sum()) / (count - 1) if count > 1 else float((present**2).sum())
    error_bytes = _Z * scale * (max(1 - 1 / scale, 0.0) * count * spread) ** 0.5
    all_bytes = resident_bytes * scale
    wss_bytes, seen_bytes = ratio * all_bytes, float(used.sum())
    low_bytes = max(wss_bytes - error_bytes, seen_bytes)
    high_bytes = min(wss_bytes + error_bytes + doubtful_bytes * scale, all_bytes)
    return Estimate(round(wss_bytes), round(low_bytes), round(high_bytes), scale, count)


def _bytes_by_block(pages: PageSet) -> dict[int, int]:
    counts = np.bitwise_count(pages.bits).sum(axis=1) * PAGE_BYTES
    sizes = dict(zip(pages.blocks.tolist(), counts.tolist(), strict=True))
    return sizes | dict.fromkeys(pages.huge.tolist(), BLOCK_BYTES)
