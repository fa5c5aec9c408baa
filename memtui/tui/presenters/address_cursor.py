"""The cursor in the address space: the layouts of all processes one below the other, and rows of addresses."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from memtui.analysis.heat_map import Band, Layout
from memtui.analysis.working_set import bytes_by_range
from memtui.core.page_set import PageSet
from memtui.core.page_sizes import PAGE_BYTES

SUBROWS = 2  # pixels of a cell
ZOOM = 4  # one step shows a quarter of what was in sight


@dataclass(frozen=True, slots=True)
class AddressCursor:
    """An address of one process."""

    process: int
    address: int


@dataclass(frozen=True, slots=True)
class Interval:
    """A part of the address space of one process."""

    process: int
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


@dataclass(slots=True)
class Stack:
    """Layouts from the top: (process, layout, first row of cells)."""

    layouts: list[tuple[int, Layout, int]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(layout.rows for _, layout, _ in self.layouts)

    @property
    def bytes_shown(self) -> int:
        """Return the bytes of memory in sight."""
        return sum(int((layout.ends - layout.starts).sum()) for _, layout, _ in self.layouts)

    def _entry_of(self, row: int) -> tuple[int, Layout, int] | None:
        layouts = (entry for entry in self.layouts if entry[2] <= row < entry[2] + entry[1].rows)
        return next(layouts, None)

    def row_of(self, cursor: AddressCursor) -> int | None:
        """Return the row that shows an address or its neighbours; None where the process is not in sight."""
        for process, layout, top in self.layouts:
            if process == cursor.process and len(layout.starts):
                index = int(np.searchsorted(layout.starts, np.uint64(cursor.address), side="right")) - 1
                if index + 1 < len(layout.starts) and (index < 0 or cursor.address >= int(layout.ends[index])):
                    index += 1  # the address is not shown: take the next one
                return top + int(layout.bins[max(0, index)]) // SUBROWS
        return None

    def cursor_of_row(self, row: int) -> AddressCursor | None:
        """Return the first address of a row; None in a gap and below the last band."""
        pieces = self.pieces(row)
        match = self._entry_of(row)
        return AddressCursor(match[0], min(pieces)[0]) if pieces and match else None

    def cursor_of_range(self, key: int) -> AddressCursor | None:
        """Return the first address in sight of a range."""
        for _, layout, top in self.layouts:
            for band in layout.bands:
                if band.key == key:
                    return self.cursor_of_row(top + band.row)
        return None

    def pieces(self, row: int) -> list[tuple[int, int]]:
        """Return the addresses (start, end) of a row of cells."""
        match = self._entry_of(row)
        if match is None:
            return []
        _, layout, top = match
        bins = range((row - top) * SUBROWS, (row - top + 1) * SUBROWS)
        return [piece for source in sorted({int(layout.source[b]) for b in bins} - {-1})
                for piece in layout.addresses_of(source)]  # fmt: skip

    def row_after(self, row: int, by: int) -> int:
        """Return the row ``by`` further among the rows that show memory, or the last of them."""
        shown = [r for r in range(self.rows) if self.pieces(r)]
        if not shown:
            return row
        here = min(range(len(shown)), key=lambda n: abs(shown[n] - row))
        return shown[max(0, min(len(shown) - 1, here + by))]

    def band(self, row: int) -> Band | None:
        """Return the band of a row."""
        match = self._entry_of(row)
        return match[1].band_at(row - match[2]) if match else None

    def touched(self, row: int, pages: PageSet) -> int:
        """Return bytes of a row that a page set touches."""
        pieces = np.array(sorted(self.pieces(row)), np.uint64).reshape(-1, 2)
        return int(bytes_by_range(pages, pieces[:, 0], pieces[:, 1]).sum())

    def around(self, row: int) -> Interval | None:
        """Return the interval of one step of zooming in: the range of a row, or a quarter of a range shown alone.

        Return None where nothing smaller can be shown: a pixel shows a page already, or the row is a gap.
        """
        match, band, pieces = self._entry_of(row), self.band(row), self.pieces(row)
        if match is None or band is None or not pieces:
            return None
        process, layout, _ = match
        if len(self.layouts) > 1 or sum(b.kind != "gap" for b in layout.bands) > 1:
            if band.kind == "range":
                return Interval(process, band.start, band.end)
            return Interval(process, min(pieces)[0], max(end for _, end in pieces))
        below = np.concatenate(([0], np.cumsum((layout.ends - layout.starts).astype(np.int64))))
        whole, least = int(below[-1]), PAGE_BYTES * SUBROWS * layout.rows
        if whole <= least:
            return None
        index = int(np.searchsorted(layout.starts, np.uint64(min(pieces)[0])))
        half = max(whole // ZOOM, least) // 2
        middle = max(half, min(whole - half, int(below[index])))
        return Interval(process, _address(layout, below, middle - half), _address(layout, below, middle + half - 1) + 1)


def _address(layout: Layout, below: np.ndarray, offset: int) -> int:
    """Return the address at an offset in the memory that is shown, laid end to end."""
    index = int(np.searchsorted(below, offset, side="right")) - 1
    return int(layout.starts[index]) + offset - int(below[index])
