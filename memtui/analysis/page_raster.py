"""A raster of where and when a process touched its memory: rows of pages by rising address, one column a window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from memtui.core.fast_numpy import union1d
from memtui.core.page_set import PageSet

ROWS = 360  # of a picture
_BATCH_NUMBERS = 1 << 22  # page numbers


class Picture:
    """Touched share by rows of pages that were ever touched, by rising address, and windows.

    Attributes:
        share: f4[rows, n], 0..1; nan in windows without a page set.
        pages: how many pages were ever touched.
        first_pages: u8[rows], number of the first 4 KiB page of each row.
    """

    def __init__(self, share: NDArray[np.float32], pages: int, first_pages: NDArray[np.uint64]) -> None:
        self.share, self.pages, self.first_pages = share, pages, first_pages


def picture_of(windows: Sequence[PageSet | None], rows: int = ROWS) -> Picture | None:
    """Return the picture of page sets in order of time, in pages of 4 KiB; None where nothing was touched.

    ``windows`` are read twice, one at a time: a lazy sequence has one page set in memory.
    """
    ever = _ever(windows)
    if not len(ever):
        return None
    height = min(rows, len(ever))
    row_of = np.arange(len(ever)) * height // len(ever)
    in_row = np.bincount(row_of, minlength=height)
    share = np.full((height, len(windows)), np.nan, np.float32)
    for column, pages in enumerate(windows):
        if pages is not None:
            touched_rows = row_of[np.searchsorted(ever, _numbers(pages))]
            share[:, column] = np.bincount(touched_rows, minlength=height) / in_row
    return Picture(share, len(ever), ever[np.searchsorted(row_of, np.arange(height))])


def _ever(windows: Iterable[PageSet | None]) -> NDArray[np.uint64]:
    """Return the numbers of all pages, rising."""
    ever = np.empty(0, np.uint64)
    waiting: list[NDArray[np.uint64]] = []
    count = 0
    for pages in windows:
        if pages is None:
            continue
        waiting.append(_numbers(pages))
        count += len(waiting[-1])
        if count > max(_BATCH_NUMBERS, len(ever)):
            ever, waiting, count = union1d(ever, *waiting), [], 0
    return union1d(ever, *waiting)


def _numbers(pages: PageSet) -> NDArray[np.uint64]:
    """Return 4 KiB page numbers, those inside larger pages included."""
    parts = [pages.pages()]
    for numbers, bits in ((pages.huge, 9), (pages.giant, 18)):
        if len(numbers):
            parts.append(np.add.outer(numbers << np.uint64(bits), np.arange(1 << bits, dtype=np.uint64)).ravel())
    return union1d(*parts) if len(parts) > 1 else parts[0]
