"""Names of the rows of a picture: which mapping their pages belong to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.page_raster import Picture
from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.units import size
from memtui.reports.charts.model import HeatRegion
from memtui.session.vma_row import VmaRow

LEAST = 0.035  # of the height: a name needs room
OTHERS = "others"


def regions(rows: Sequence[VmaRow], picture: Picture, uses: Mapping[int, str]) -> list[HeatRegion]:
    """Return the regions of a picture, by rising address, each with the size of its pages that were touched.

    A region that is too small for a name is one of the others, together with its neighbours of that kind.

    Args:
        rows: at least one mapping; by rising address, without overlaps.
        picture: rows of pages that were touched at some time.
        uses: uses of anonymous mappings that their layout tells, by row.
    """
    names = _names(rows, uses)
    starts, ends = (np.array([getattr(row, side) for row in rows], np.uint64) for side in ("start", "end"))
    addresses = picture.first_pages * np.uint64(PAGE_BYTES)
    mapping = np.searchsorted(starts, addresses, side="right") - 1
    inside = addresses < ends[mapping]
    height = len(picture.first_pages)
    runs = _runs([names[index] if index >= 0 and inside[row] else OTHERS for row, index in enumerate(mapping.tolist())])
    merged = _runs_of((name if end - start >= LEAST * height else OTHERS, start, end) for name, start, end in runs)
    touched = _touched_bytes(picture, height)
    return [
        HeatRegion(f"{name}, {size(float(touched[start:end].sum()))}", start, end)
        for name, start, end in merged
        if end - start >= LEAST * height
    ]


def _names(rows: Sequence[VmaRow], uses: Mapping[int, str]) -> list[str]:
    """Return the name of each mapping. A library's own zeroed memory has none, and lies behind the library."""
    names: list[str] = []
    for index, row in enumerate(rows):
        name = _name(row, uses)
        before = rows[index - 1] if index else None
        if name == "anonymous" and before is not None and before.end == row.start and names[-1] == "libraries":
            name = "libraries"
        names.append(name)
    return names


def _name(row: VmaRow, uses: Mapping[int, str]) -> str:
    if file := row.file_name:
        return "libraries" if ".so" in file else file
    return row.name.strip("[]") or uses.get(row.id, "anonymous")


def _touched_bytes(picture: Picture, height: int) -> NDArray[np.float64]:
    """Return f8[rows], the size of the pages in each row of the picture."""
    firsts = -(-np.arange(height + 1) * picture.pages // height)
    return np.diff(firsts).astype(float) * PAGE_BYTES


def _runs(names: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return (name, start, end) of equal neighbours."""
    return _runs_of((name, index, index + 1) for index, name in enumerate(names))


def _runs_of(parts: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    joined = []
    for name, some in groupby(parts, key=lambda part: part[0]):
        listed = list(some)
        joined.append((name, listed[0][1], listed[-1][2]))
    return joined
