"""Rows of the heat map: which memory gets how many cells, and how hot each row was in one window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.working_set import bytes_by_range
from memtui.pageset import PAGE_BYTES, PageSet
from memtui.views import HeatBand
from memtui.widgets import text

GAP_BYTES = 1 << 30  # smaller holes between ranges are not worth a row


@dataclass(frozen=True, slots=True)
class HeatRange:
    """A range of memory that wants a place in the picture. ``weight`` is the most of it that was ever touched."""

    process: int
    start: int
    end: int
    label: str
    weight: int


@dataclass(frozen=True, eq=False)
class HeatRows:
    """Pixel rows, two to a cell. Equal ranges and sizes give an equal layout, so columns can be kept by its key."""

    bands: tuple[HeatBand, ...]
    cells: int
    key: tuple
    _parts: dict[int, tuple[NDArray, NDArray, NDArray, NDArray]] = field(repr=False)

    @property
    def processes(self) -> tuple[int, ...]:
        """Processes whose pages are needed."""
        return tuple(self._parts)

    def column(self, pages: dict[int, PageSet | None]) -> NDArray[np.float32]:
        """Share of pages touched in each pixel row; nan in gaps and where a process has no pages stored."""
        out = np.full(self.cells * 2, np.nan, np.float32)
        for process, (starts, ends, place, row) in self._parts.items():
            touched = pages.get(process)
            if touched is not None:
                share = bytes_by_range(touched, starts, ends) / (ends - starts)
                out[place] = share[row]
        return out


def lay_out(ranges: Sequence[HeatRange], cells: int) -> HeatRows:
    """Give every range at least one row of cells and the hot ones more; mark what lies far apart and what is left out.

    Weights count in steps of four, so a layout holds still while a working set breathes.
    """
    shown = sorted((r for r in ranges if r.weight > 0 and r.end > r.start), key=lambda r: -r.weight)
    left_out = 0
    if len(shown) > cells:
        left_out = len(shown) - max(0, cells - 1)
        shown = shown[: max(0, cells - 1)]
    shown = _disjoint(sorted(shown, key=lambda r: (r.process, r.start)))
    free = cells - len(shown) - bool(left_out)
    gaps = _gaps(shown, min(max(0, free // 2), cells // 6))
    extra = _share_out([_step(r.weight) for r in shown], free - len(gaps), [_most(r) - 1 for r in shown])
    bands: list[HeatBand] = []
    at = 0
    parts: dict[int, list[tuple[HeatRange, int, int]]] = {}
    for number, item in enumerate(shown):
        if number in gaps:
            bands.append(HeatBand(at, 1, f"gap of {text.size(gaps[number])}", "gap"))
            at += 1
        bands.append(HeatBand(at, 1 + extra[number], item.label))
        parts.setdefault(item.process, []).append((item, at, 1 + extra[number]))
        at += 1 + extra[number]
    if left_out:
        bands.append(HeatBand(at, 1, f"{left_out} colder ranges not drawn", "gap"))
        at += 1
    key = (cells, tuple((r.process, r.start, r.end) for r in shown), tuple(b.row for b in bands))
    return HeatRows(tuple(bands), at, key, {process: _edges(own) for process, own in parts.items()})


def _edges(own: list[tuple[HeatRange, int, int]]) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Address ranges of the pixel rows of one process, and which pixel shows which."""
    starts, ends, place, row = [], [], [], []
    count = 0
    for item, cell, cells in own:
        pixels = cells * 2
        pages = (item.end - item.start) // PAGE_BYTES
        parts = max(1, min(pages, pixels))
        edges = item.start + (np.arange(parts + 1) * pages // parts) * PAGE_BYTES
        starts.append(edges[:-1])
        ends.append(edges[1:])
        place.append(cell * 2 + np.arange(pixels))
        row.append(count + np.arange(pixels) * parts // pixels)
        count += parts
    return np.concatenate(starts), np.concatenate(ends), np.concatenate(place), np.concatenate(row)


def _disjoint(shown: list[HeatRange]) -> list[HeatRange]:
    """Ranges of different times can overlap in address: the later one gives way."""
    out: list[HeatRange] = []
    for item in shown:
        if out and out[-1].process == item.process and item.start < out[-1].end:
            if item.end <= out[-1].end:
                continue
            item = HeatRange(item.process, out[-1].end, item.end, item.label, item.weight)
        out.append(item)
    return out


def _gaps(shown: list[HeatRange], most: int) -> dict[int, int]:
    """The largest holes: number of the range after it -> bytes."""
    holes = {
        number: later.start - earlier.end
        for number, (earlier, later) in enumerate(pairwise(shown), 1)
        if earlier.process == later.process and later.start - earlier.end >= GAP_BYTES
    }
    return dict(sorted(holes.items(), key=lambda hole: -hole[1])[:most])


def _step(weight: int) -> float:
    """A weight in coarse steps; its root, so that the largest range does not take all rows."""
    return float(2.0 ** round(np.log2(max(1, weight)) / 2))


def _most(item: HeatRange) -> int:
    """Rows of cells a range can fill: two pages a cell."""
    return max(1, (item.end - item.start) // PAGE_BYTES // 2)


def _share_out(weights: list[float], free: int, limits: list[int]) -> list[int]:
    """Share ``free`` cells by weight (largest remainder), none getting more than its limit."""
    extra = [0] * len(weights)
    while free > 0:
        open_ = [n for n in range(len(weights)) if extra[n] < limits[n]]
        if not open_:
            break
        whole = sum(weights[n] for n in open_)
        grants = {n: min(limits[n] - extra[n], int(free * weights[n] / whole)) for n in open_}
        if not any(grants.values()):
            grants = dict.fromkeys(sorted(open_, key=lambda n: -weights[n])[:free], 1)
        for n, grant in grants.items():
            extra[n] += grant
            free -= grant
    return extra
