"""The heat map of addresses over time: the touched share of each bin of addresses, column by column.

A value is the fraction of a bin's bytes that was touched in a window, 0 to 1; nan where nothing is known (no page set
was stored) or nothing is shown (a gap).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memtui.analysis.heat_layout import Band, HeatRange, Layout, blocks_of
from memtui.analysis.working_set import bytes_by_range
from memtui.core.page_set import PageSet

__all__ = ["Band", "HeatMap", "HeatRange", "Layout", "bin_column", "blocks_of"]


def bin_column(pages: PageSet | None, layout: Layout) -> NDArray[np.float32]:
    """Return the touched share of each bin in one window.

    Args:
        pages: the touched pages; None when the window has no page set.
        layout: see ``Layout.build``.

    Returns:
        f4[layout.rows * layout.subrows], 0..1 from the top; nan in gaps, below the last band and without page set.
    """
    count = len(layout.bin_bytes)
    if pages is None:
        return np.full(count, np.nan, np.float32)
    return layout.shares(np.bincount(layout.bins, bytes_by_range(pages, layout.starts, layout.ends), count))


class HeatMap:
    """Columns of equal or unequal length over time, filled from windows in any order.

    A column is the mean of the windows that overlap it, weighted by the time they share: several windows in a column
    are averaged, a window longer than a column fills several. The mean, unlike the maximum, does not make everything
    look hot when zoomed out. A window is left out of a bin where it is nan.
    """

    def __init__(self, layout: Layout, edges_ns: ArrayLike) -> None:
        """Create an empty picture.

        Args:
            layout: the address axis.
            edges_ns: f8[columns + 1], rising, monotonic nanoseconds.

        Raises:
            ValueError: fewer than two edges, or not rising.
        """
        self.layout = layout
        self.edges_ns = np.asarray(edges_ns, np.float64)
        if self.edges_ns.ndim != 1 or len(self.edges_ns) < 2 or not (np.diff(self.edges_ns) > 0).all():
            raise ValueError("a heat map needs at least two rising column edges")
        shape = (len(layout.bin_bytes), len(self.edges_ns) - 1)
        self._sum = np.zeros(shape)
        self._weight = np.zeros(shape)

    def add(self, start_ns: float, end_ns: float, window: PageSet | NDArray[np.float32] | None) -> None:
        """Add a window.

        Args:
            start_ns: start of the window, monotonic nanoseconds.
            end_ns: end of the window, after ``start_ns``.
            window: page set of the window, or the column that ``bin_column`` returned for the page set (cached by a
                caller that redraws), or None for a window without a page set.

        Raises:
            ValueError: the window ends before it begins, or the column has another length than the layout's.
        """
        if end_ns <= start_ns:
            raise ValueError(f"a window ends at {end_ns} ns, not after its begin at {start_ns} ns")
        first = max(int(np.searchsorted(self.edges_ns, start_ns, side="right")) - 1, 0)
        last = min(int(np.searchsorted(self.edges_ns, end_ns, side="left")), self._sum.shape[1])
        if window is None or first >= last:
            return
        column = window if isinstance(window, np.ndarray) else bin_column(window, self.layout)
        if column.shape != self._sum.shape[:1]:
            raise ValueError(f"a column has shape {column.shape}, expected {self._sum.shape[:1]}")
        measured = np.flatnonzero(~np.isnan(column))
        low = np.maximum(self.edges_ns[first:last], start_ns)
        shared = np.minimum(self.edges_ns[first + 1 : last + 1], end_ns) - low
        self._sum[measured, first:last] += np.multiply.outer(column[measured].astype(np.float64), shared)
        self._weight[measured, first:last] += shared

    def share(self) -> NDArray[np.float32]:
        """Return f4[bins, columns], 0..1, top row first; nan where nothing is known."""
        result = np.full(self._sum.shape, np.nan, np.float32)
        measured = self._weight > 0
        result[measured] = self._sum[measured] / self._weight[measured]
        return result
