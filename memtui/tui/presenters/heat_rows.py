"""The memory that the rows of the heat map show, and the number of rows of each process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.distinct_labels import Labelled, distinct_labels
from memtui.analysis.heat_layout import DEFAULT_GAP_BYTES
from memtui.analysis.heat_map import Band, blocks_of
from memtui.core.fast_numpy import distinct
from memtui.core.page_set import PageSet
from memtui.core.units import size
from memtui.session.vma_row import VmaRow
from memtui.widgets.views.memory import HeatBand

GROUP_SHIFT = 3  # memory is laid out in groups of 8 blocks (16 MiB): a few new blocks do not move the picture


@dataclass(frozen=True, slots=True)
class ProcessRange:
    """A range of one process, to be drawn.

    ``weight_bytes``: the most of it that was ever accessed, times the share of the time in sight in which it ran.
    """

    process: int
    key: int
    start: int
    end: int
    label: str
    weight_bytes: int
    who: str = ""  # of several processes: the one with which the label starts
    perms: str = ""


def groups_of(pages: PageSet) -> NDArray[np.uint64]:
    """Return the groups of blocks with a touched page, rising."""
    if len(pages.huge) or len(pages.giant):
        return distinct(blocks_of(pages) >> np.uint64(GROUP_SHIFT))
    groups = pages.blocks >> np.uint64(GROUP_SHIFT)  # blocks rise, which makes this cheap
    return groups[np.flatnonzero(np.diff(groups, prepend=~groups[:1]))]


def heat_band(band: Band, top_row: int, mapped: int, before: Band | None, who: str) -> HeatBand:
    """Return the view of a band in the layout of one process, with its row in the picture and its label."""
    after_gap = (
        before is not None and before.kind == band.kind == "range" and band.start - before.end >= DEFAULT_GAP_BYTES
    )
    label = band.label
    if band.kind == "gap":
        inside = f"{mapped} range{'s' * (mapped > 1)} not drawn" if mapped else "not mapped"
        label = f"{size(band.size_bytes)}{', ' * bool(mapped) or ' '}{inside}"
    elif band.kind == "more":
        label = f"{who} {band.ranges} {'others' if before else 'ranges'}".lstrip()
    who = "" if band.kind == "gap" else who
    return HeatBand(top_row + band.row, band.rows, label, band.kind, band.key, band.start, band.end, after_gap, who)


def rounded_weight(weight: int) -> int:
    """Return a weight rounded to a power of four, so that a layout stays while a working set varies a little."""
    return 1 << (max(1, weight).bit_length() + 1) // 2 * 2


def ranges_to_draw(ranges: Sequence[ProcessRange], cells: int, keep: int | None) -> list[ProcessRange]:
    """Return the ranges to draw: each takes at least a row, and rows of small libraries would crowd out hot memory.

    These are the ranges with a hundredth of the hottest weight, and the first few in any case. No two labels are alike.
    """
    order = sorted(ranges, key=lambda r: (-rounded_weight(r.weight_bytes), r.process, r.start))
    least = rounded_weight(order[0].weight_bytes) / 100 if order else 0
    drawn = [
        r
        for n, r in enumerate(order)
        if n < max(3, cells // 2) or rounded_weight(r.weight_bytes) >= least or r.key == keep
    ]
    labels = distinct_labels([Labelled(r.label, r.perms, r.start) for r in drawn])
    return [replace(r, label=label) for r, label in zip(drawn, labels, strict=True)]


def shares_of(rows: Iterable[VmaRow], first: int, last: int) -> dict[int, float]:
    """Return the share of the windows from one to another in which each process ran, without those that never did."""
    lives: dict[int, tuple[int, int]] = {}
    for row in rows:
        end = last if row.open else row.last_sample
        low, high = lives.get(row.process, (row.first_sample, end))
        lives[row.process] = min(low, row.first_sample), max(high, end)
    parts = {process: (max(low, first), min(high, last)) for process, (low, high) in lives.items()}
    return {process: (high - low + 1) / (last - first + 1) for process, (low, high) in parts.items() if low <= high}


def row_counts(weights: list[int], cells: int) -> list[int]:
    """Return rows of each process by the square root of its weight.

    Each has at least one, but where there are so many processes that they would take half of the rows: the workers of
    each epoch would leave none for the training.
    """
    root = np.sqrt(np.array(weights, float))
    least = int(len(weights) <= cells // 2)
    quota = root / max(float(root.sum()), 1.0) * (cells - least * len(weights))
    heights = least + quota.astype(int)
    rest = np.argsort(-(quota % 1), kind="stable")[: cells - int(heights.sum())]
    heights[rest] += 1
    return heights.tolist()
