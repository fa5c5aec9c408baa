"""Regions for DAMON, and working sets from its results: pure functions on runs of pages and ranges of addresses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memtui.core.page_sizes import PAGE_SHIFT
from memtui.core.samples import Vma, VmaSizes

Runs = NDArray[np.uint64]  # [n, 2]: first page and the one behind the last, in page numbers, rising
Regions = Sequence[tuple[int, int]]  # start and end in bytes, rising
_GAP_PAGES = 16  # missing pages in a row that a region may contain ...
_WIDEST_GAP_PAGES = 512  # ... where there are very many runs
_MOST_RUNS = 1024  # of one process; with more, the smallest are left out


def regions_of(runs: Runs, count: int) -> list[tuple[int, int]]:
    """Return about ``count`` regions of about equal size that cover runs of present pages, and little besides."""
    gap = _GAP_PAGES
    joined = _join(runs, gap)
    while len(joined) > _MOST_RUNS and gap < _WIDEST_GAP_PAGES:
        gap *= 2
        joined = _join(runs, gap)
    sizes = (joined[:, 1] - joined[:, 0]).astype(np.int64)
    if len(joined) > _MOST_RUNS:
        largest = np.sort(np.argsort(sizes, kind="stable")[-_MOST_RUNS:])
        joined, sizes = joined[largest], sizes[largest]
    ideal = max(1.0, sizes.sum() / max(count, 1))
    regions: list[tuple[int, int]] = []
    for (first, last), pieces in zip(joined.tolist(), np.rint(sizes / ideal).astype(int).tolist(), strict=True):
        edges = np.linspace(first, last, max(1, pieces) + 1).astype(np.int64) << PAGE_SHIFT
        regions += zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    return regions


def _join(runs: Runs, gap_pages: int) -> Runs:
    if len(runs) < 2:
        return runs
    breaks = np.flatnonzero(runs[1:, 0] - runs[:-1, 1] > gap_pages)
    firsts, lasts = np.concatenate(([0], breaks + 1)), np.concatenate((breaks, [len(runs) - 1]))
    return np.stack((runs[firsts, 0], runs[lasts, 1]), axis=1)


def page_count(runs: Runs) -> int:
    """Return the count of pages in all runs."""
    return int((runs[:, 1] - runs[:, 0]).sum())


def shares(sizes: Sequence[int], budget: int, least: int) -> list[int]:
    """Return the count of regions of each process: of ``budget`` in proportion to its size, at least ``least``."""
    total = max(1, sum(sizes))
    return [max(least, budget * size // total) for size in sizes]


def sizes_by_vma(regions: Regions, vmas: Sequence[Vma]) -> VmaSizes:
    """Return (start, bytes) of the VMAs in which regions lie.

    A region that spans several VMAs, or a hole, is divided among these VMAs in full. A region that no longer lies in
    any VMA is left out.
    """
    if not regions or not vmas:
        return ()
    starts = np.array([vma.start for vma in vmas], np.int64)
    ends = np.array([vma.end for vma in vmas], np.int64)
    sums = np.zeros(len(vmas))
    for start, end in regions:
        first, last = np.searchsorted(ends, start, side="right"), np.searchsorted(starts, end, side="left")
        inside = np.minimum(ends[first:last], end) - np.maximum(starts[first:last], start)
        if inside.sum() > 0:
            sums[first:last] += inside * ((end - start) / inside.sum())
    return tuple((vma.start, round(size)) for vma, size in zip(vmas, sums.tolist(), strict=True) if size)
