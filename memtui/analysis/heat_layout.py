"""The address axis of the heat map: a huge, mostly empty address space folded onto a few screen rows.

Addresses in no range are left out, and, when the ever-touched blocks are given, also all 2 MiB blocks in which nothing
was ever touched. The remaining addresses are laid end to end ("compacted") and cut into bins, the pixels of one column.

Room. Every range gets one row first, so a small hot stack is visible. The rest is shared in proportion to the square
root of the ranges' bytes: a data set of 586 MiB beside 64 MiB of hot memory gets three times its rows, not nine; with
logarithms a 64 KiB range would get half of what 1 GiB gets and the picture would show nothing of it. No range gets
more bins than it has pages. When there are more ranges than rows, those with most bytes get one row each and the last
row holds all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memtui.analysis.address_ranges import owned
from memtui.core.fast_numpy import union1d
from memtui.core.page_set import PageSet, parts_of
from memtui.core.page_sizes import BLOCK_SHIFT, GIANT_SHIFT, PAGE_BYTES

_U = np.uint64
DEFAULT_GAP_BYTES = 1 << 30


class HeatRange(NamedTuple):
    """A range of addresses that the picture may show.

    Attributes:
        key: the caller's number for it, such as a VMA row.
        start: bytes, a multiple of 4096.
        end: bytes, half open. Ranges may overlap: an address belongs to the shortest range that holds it.
        label: text next to its rows.
        weight_bytes: size that decides the range's share of rows, such as bytes ever touched; None: its extent.
    """

    key: int
    start: int
    end: int
    label: str = ""
    weight_bytes: int | None = None


class Band(NamedTuple):
    """Rows that belong together.

    Attributes:
        row: first row from the top.
        rows: number of rows.
        kind: "range"; "gap": addresses left out between two ranges; "more": the ranges that did not fit.
        key: the range's; -1 for other kinds.
        label: the range's; "" for other kinds.
        start: first address.
        end: end of the last one.
        size_bytes: bytes of a range's bins; distance across a gap.
        ranges: how many ranges it stands for ("more"), or how many not shown lie inside ("gap"; 0: none is mapped).
    """

    row: int
    rows: int
    kind: str
    key: int
    label: str
    start: int
    end: int
    size_bytes: int
    ranges: int


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Addresses that each bin of a column shows; created by ``build``.

    Attributes:
        rows: requested screen rows.
        subrows: bins per row (two for half blocks).
        bands: from the top, without holes; rows below the last band are empty.
        starts: u8[p], rising: pieces of address space, disjoint, bytes.
        ends: u8[p].
        bins: i8[p], the bin of each piece, 0 at the top.
        bin_bytes: i8[rows * subrows], bytes of all pieces of a bin; 0 in gaps and below the last band.
        source: i8[rows * subrows], the bin whose value a bin shows: itself, but a bin without bytes in a range with
            fewer pages than bins repeats the next one; -1 in gaps and below the last band.
    """

    rows: int
    subrows: int
    bands: tuple[Band, ...]
    starts: NDArray[np.uint64]
    ends: NDArray[np.uint64]
    bins: NDArray[np.intp]
    bin_bytes: NDArray[np.int64]
    source: NDArray[np.intp]

    @classmethod
    def build(
        cls,
        ranges: Sequence[HeatRange],
        rows: int,
        subrows: int = 1,
        *,
        touched_blocks: ArrayLike | None = None,
        interval: tuple[int, int] | None = None,
        order: str = "address",
        gap_bytes: int = DEFAULT_GAP_BYTES,
    ) -> Layout:
        """Lay ranges out on screen rows.

        Args:
            ranges: ranges that may be shown; leave out ranges without page sets.
            rows: screen rows, at least 1.
            subrows: bins per row, at least 1.
            touched_blocks: u8[n], ``address >> 21`` of all blocks with pages that were ever touched (``blocks_of``);
                other blocks, and ranges without such blocks, are left out. None: show every address.
            interval: (start, end) in bytes to zoom into.
            order: "address": rising downwards; "weight": the heaviest first (no gap rows then).
            gap_bytes: a distance from which two neighbours get a gap row between them, when there is room.

        Raises:
            ValueError: rows or subrows below 1, an unknown order, a range not page-aligned or empty, or an empty
                interval.
        """
        _check(ranges, rows, subrows, interval, order)
        starts, ends, owners = _extents(ranges, touched_blocks)
        whole = _size_of(len(ranges), starts, ends, owners)
        if interval is not None:
            starts, ends, which = intersect(starts, ends, *_page_aligned(interval))
            owners = owners[which]
        sizes = _size_of(len(ranges), starts, ends, owners)
        given = (w if r.weight_bytes is None else r.weight_bytes for r, w in zip(ranges, whole.tolist(), strict=True))
        weights = np.fromiter(given, np.float64, len(ranges)) * sizes / np.maximum(whole, 1)

        first = np.full(len(ranges), np.iinfo(np.uint64).max, np.uint64)
        np.minimum.at(first, owners, starts)
        shown = np.flatnonzero(sizes)
        own = shown[np.argsort(-weights[shown], kind="stable")]
        fitting = len(own) if len(own) <= rows else rows - 1
        own, rest = own[:fitting], own[fitting:]
        if order == "address":
            own = own[np.argsort(first[own], kind="stable")]

        # Groups of extents from the top: one per range, the rest as one more.
        group_of = np.full(len(ranges), -1)
        group_of[own] = np.arange(len(own))
        group_of[rest] = len(own)
        groups = len(own) + bool(len(rest))
        group = group_of[owners]
        by_group = np.lexsort((starts, group))
        starts, ends, group = starts[by_group], ends[by_group], group[by_group]
        group_bytes = np.bincount(group, (ends - starts).astype(np.float64), groups).astype(np.int64)
        edge = np.flatnonzero(np.diff(group, prepend=-1))
        low, high = starts[edge], ends[np.append(edge[1:], len(group))[:groups] - 1]

        gaps = _gaps(low[: len(own)], high[: len(own)], gap_bytes, rows, groups) if order == "address" else set()
        limit = -(-group_bytes // (PAGE_BYTES * subrows))
        group_weights = np.append(weights[own], 0.0) if len(rest) else weights[own]
        height = _share(group_weights, limit, rows - len(gaps))

        bands: list[Band] = []
        top = np.zeros(groups, np.intp)
        row = 0
        for g in range(groups):
            top[g] = row
            a, b, n = int(low[g]), int(high[g]), int(height[g])
            if g < len(own):
                r = ranges[own[g]]
                bands.append(Band(row, n, "range", r.key, r.label, a, b, int(group_bytes[g]), 1))
            else:
                bands.append(Band(row, n, "more", -1, "", a, b, int(group_bytes[g]), len(rest)))
            row += n
            if g in gaps:
                c = int(low[g + 1])
                within = sum(b <= other.start and other.end <= c for other in ranges)
                bands.append(Band(row, 1, "gap", -1, "", b, c, c - b, within))
                row += 1
        cut = _cut(starts, ends, group_bytes, top * subrows, height * subrows)
        bin_bytes = np.zeros(rows * subrows, np.int64)
        np.add.at(bin_bytes, cut.bins, (cut.ends - cut.starts).astype(np.int64))
        source = np.full(rows * subrows, -1, np.intp)
        source[cut.numbers] = cut.sources
        return cls(rows, subrows, tuple(bands), cut.starts, cut.ends, cut.bins, bin_bytes, source)

    def bin_of(self, addresses: ArrayLike) -> NDArray[np.intp]:
        """Return the bin that shows each address, -1 for addresses left out: i8[n] for u8[n]."""
        address = np.asarray(addresses, np.uint64)
        if not len(self.starts):
            return np.full(address.shape, -1, np.intp)
        piece = np.searchsorted(self.starts, address, side="right") - 1
        inside = (piece >= 0) & (address < self.ends[piece])
        return np.where(inside, self.bins[piece], -1)

    def shares(self, touched_bytes: NDArray[Any]) -> NDArray[np.float32]:
        """Return the touched bytes as a share of each bin: f4 for f8[rows * subrows].

        Shares are nan in gaps and below the last band.
        """
        column = np.full(len(self.bin_bytes), np.nan, np.float32)
        shown = self.source >= 0
        source = self.source[shown]
        column[shown] = touched_bytes[source] / self.bin_bytes[source]
        return column

    def addresses_of(self, number: int) -> list[tuple[int, int]]:
        """Return the ranges (start, end) in bytes that a bin shows, rising; none in a gap."""
        pieces = np.flatnonzero(self.bins == number)
        return list(zip(self.starts[pieces].tolist(), self.ends[pieces].tolist(), strict=True))

    def band_at(self, row: int) -> Band | None:
        """Return the band on a screen row."""
        return next((band for band in self.bands if band.row <= row < band.row + band.rows), None)


def blocks_of(pages: PageSet, earlier: ArrayLike | None = None) -> NDArray[np.uint64]:
    """Return numbers (``address >> 21``) of the 2 MiB blocks that pages touch, and earlier blocks: u8[n], rising."""
    giant = parts_of(pages.giant, GIANT_SHIFT - BLOCK_SHIFT)
    before = np.empty(0, np.uint64) if earlier is None else np.asarray(earlier, np.uint64)
    return union1d(before, pages.blocks, pages.huge, giant)


def _check(ranges: Sequence[HeatRange], rows: int, subrows: int, interval: tuple[int, int] | None, order: str) -> None:
    if rows < 1 or subrows < 1:
        raise ValueError(f"a layout needs at least one row and one bin per row, got {rows} and {subrows}")
    if order not in ("address", "weight"):
        raise ValueError(f"order {order!r} is neither 'address' nor 'weight'")
    for r in ranges:
        if r.start >= r.end or r.start % PAGE_BYTES or r.end % PAGE_BYTES:
            raise ValueError(f"range {r.start:#x}-{r.end:#x} is empty or not aligned to {PAGE_BYTES} bytes")
    if interval is not None and interval[0] >= interval[1]:
        raise ValueError(f"interval {interval[0]:#x}-{interval[1]:#x} is empty")


def _extents(
    ranges: Sequence[HeatRange], touched_blocks: ArrayLike | None
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.intp]]:
    """Return disjoint (starts, ends, index of the range), rising: the addresses that are to be shown."""
    first = np.array([r.start for r in ranges], np.uint64)
    last = np.array([r.end for r in ranges], np.uint64)
    starts, ends, owner = owned(first, last)
    if touched_blocks is not None:
        starts, ends, which = intersect(starts, ends, *_block_runs(np.asarray(touched_blocks, np.uint64)))
        owner = owner[which]
    return starts, ends, owner


def _size_of(
    count: int, starts: NDArray[np.uint64], ends: NDArray[np.uint64], owners: NDArray[np.intp]
) -> NDArray[np.int64]:
    """Return the bytes of the extents of each range."""
    sizes = np.zeros(count, np.int64)
    np.add.at(sizes, owners, (ends - starts).astype(np.int64))
    return sizes


def _page_aligned(interval: tuple[int, int]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the interval with its ends moved outwards to pages, as a list of one range."""
    top = (1 << 64) // PAGE_BYTES - 1
    pages = interval[0] // PAGE_BYTES, -(-interval[1] // PAGE_BYTES)
    low, high = (min(max(page, 0), top) * PAGE_BYTES for page in pages)
    return np.array([low], np.uint64), np.array([high], np.uint64)


def _block_runs(blocks: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the address ranges of runs of rising block numbers."""
    if not len(blocks):
        return blocks, blocks
    cut = np.flatnonzero(np.diff(blocks) != 1)
    shift = _U(BLOCK_SHIFT)
    return blocks[np.append(0, cut + 1)] << shift, (blocks[np.append(cut, len(blocks) - 1)] + _U(1)) << shift


def intersect(
    starts: NDArray[np.uint64], ends: NDArray[np.uint64], others: NDArray[np.uint64], other_ends: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.intp]]:
    """Return the common parts of two rising lists of disjoint ranges, with each part's index in the first list."""
    first = np.searchsorted(other_ends, starts, side="right")
    stop = np.maximum(np.searchsorted(others, ends, side="left"), first)
    count = stop - first
    which = np.repeat(np.arange(len(starts)), count)
    other = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count) + first[which]
    return np.maximum(starts[which], others[other]), np.minimum(ends[which], other_ends[other]), which


def _gaps(low: NDArray[np.uint64], high: NDArray[np.uint64], least: int, rows: int, groups: int) -> set[int]:
    """Return the ranges that are followed by a gap row: the widest gaps, on at most a sixth of the rows."""
    if len(low) < 2:
        return set()
    # A hull can reach over its neighbour: then there is no gap.
    width = np.where(low[1:] > high[:-1], low[1:] - high[:-1], _U(0))
    room = min(rows // 6, rows - groups)
    wide = np.argsort(width.astype(np.float64), kind="stable")[::-1][: max(room, 0)]
    return {int(i) for i in wide if width[i] >= least}


def _share(weights: NDArray[np.float64], limit: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """Return the rows of each group: one row, and the rest by the square root of the weights, within the limits."""
    height = np.ones(len(weights), np.int64)
    root = np.sqrt(np.maximum(weights, 0.0))
    while (left := rows - int(height.sum())) > 0:
        open_ = np.flatnonzero((height < limit) & (root > 0))
        if not len(open_):
            break
        quota = root[open_] / root[open_].sum() * left
        grant = np.minimum(quota.astype(np.int64), limit[open_] - height[open_])
        if not grant.any():
            # Less than a row each: the largest remainders take them.
            grant[np.argsort(-quota, kind="stable")[:left]] = 1
        height[open_] += grant
    return height


class _Cut(NamedTuple):
    """Pieces by rising address; and for the numbers of all bins of the groups, the bin that has their bytes."""

    starts: NDArray[np.uint64]
    ends: NDArray[np.uint64]
    bins: NDArray[np.intp]
    numbers: NDArray[np.intp]
    sources: NDArray[np.intp]


def _cut(
    starts: NDArray[np.uint64],
    ends: NDArray[np.uint64],
    group_bytes: NDArray[np.int64],
    first_bin: NDArray[np.intp],
    bin_count: NDArray[np.int64],
) -> _Cut:
    """Cut the extents (group after group) into the bins of their groups."""
    none = np.empty(0, np.intp)
    if not len(starts):
        return _Cut(starts, ends, none, none, none)
    # Offsets in compacted space, where all extents lie end to end in the order of the groups.
    offset = np.concatenate(([0], np.cumsum((ends - starts).astype(np.int64))))
    base = np.cumsum(group_bytes) - group_bytes
    step = np.arange(int(bin_count.sum())) - np.repeat(np.cumsum(bin_count) - bin_count, bin_count)
    numbers = (np.repeat(first_bin, bin_count) + step).astype(np.intp)
    pages = np.repeat(group_bytes // PAGE_BYTES, bin_count)
    cuts = np.repeat(base, bin_count) + step * pages // np.repeat(bin_count, bin_count) * PAGE_BYTES
    edges = union1d(offset, cuts)
    left = edges[:-1]
    extent = np.searchsorted(offset, left, side="right") - 1
    # Where a range has fewer pages than bins some cuts coincide: the last of them is the bin with the bytes.
    bins = numbers[np.searchsorted(cuts, left, side="right") - 1]
    sources = numbers[np.searchsorted(cuts, cuts, side="right") - 1]
    piece_starts = starts[extent] + (left - offset[extent]).astype(np.uint64)
    piece_ends = piece_starts + np.diff(edges).astype(np.uint64)
    order = np.argsort(piece_starts)
    return _Cut(piece_starts[order], piece_ends[order], bins[order], numbers, sources)
