"""Miss-ratio curve: the share of touches that an LRU memory of a given size would miss.

A touch is counted once per page and window, so a curve belongs to the interval it was measured at: always print the
interval with the figure. By the stack property of LRU (Mattson et al., 1970) a memory of M bytes misses exactly the
touches whose stack distance is above M. Distances are known between two bounds, and so is the curve. A first touch
misses in a memory of any size, which is a cost of starting, not of too little memory: every function can leave first
touches out.

Between the bounds stands an estimate, for touches in random order inside each window (``reuse_estimate.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memtui.analysis.reuse_histogram import BIN_EDGES, bin_of

MOST_APART = 16  # times: bounds that are further apart are not reported without an estimate
ONE_FIGURE = 1.25  # times: bounds that are not further apart need no estimate


def bounds_are_close(lower_bytes: float, upper_bytes: float) -> bool:
    """Return whether two bounds of a size are close enough to speak of."""
    return upper_bytes <= MOST_APART * lower_bytes


def are_one_figure(lower_bytes: float, upper_bytes: float) -> bool:
    """Return whether an estimate between two bounds would say nothing new."""
    return upper_bytes <= ONE_FIGURE * lower_bytes


class ReuseCounts(Protocol):
    """Counts that a curve is computed from: ``ExactReuse`` and ``ReuseHistogram`` satisfy it."""

    first_touches: int

    @property
    def estimated(self) -> NDArray[np.float64] | None: ...

    def entries(self, bound: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """One bound of a curve as a step function.

    Attributes:
        sizes_bytes: i8[k], rising distances.
        misses: i8[k + 1], returning touches missed by a memory below ``sizes_bytes[0]``, below ``sizes_bytes[1]`` ...,
            and from the last size on (0).
    """

    sizes_bytes: NDArray[np.int64]
    misses: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class MissRatioCurve:
    """Lower and upper bound of the miss ratio by memory size.

    Attributes:
        lower: from the lower bounds of the distances: no LRU memory misses less.
        upper: from the upper bounds: no LRU memory misses more.
        first_touches: touches of pages never seen before.
        returning: all other touches.
        estimated: f8[n], returning touches in the bins of ``ReuseHistogram`` by estimated distance; None: not known.
    """

    lower: Steps
    upper: Steps
    first_touches: int
    returning: int
    estimated: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, reuse: ReuseCounts) -> MissRatioCurve:
        """Return the curve of exact or binned reuse counts.

        With binned ones it is exact at powers of two, wider between.
        """
        lower, upper = _steps(*reuse.entries("lower")), _steps(*reuse.entries("upper"))
        return cls(lower, upper, reuse.first_touches, int(upper.misses[0]), reuse.estimated)

    @property
    def drawn_sizes_bytes(self) -> NDArray[np.int64]:
        """Sizes some 9 % apart up to the longest distance: i8[n]; none where no touch came again."""
        longest = self.upper.sizes_bytes[-1:]
        return BIN_EDGES[: int(bin_of(longest)[0]) + 1] if len(longest) else BIN_EDGES[:0]

    def miss_ratio_at(
        self, size_bytes: ArrayLike, first_touches: bool = True
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the miss ratio of LRU memories.

        Args:
            size_bytes: one size or an array of sizes.
            first_touches: count them, as misses; otherwise ratio of the returning touches only.

        Returns:
            (lower, upper), f8 in the shape of ``size_bytes``, 0..1; nan when there was no touch to miss.
        """
        sizes = np.asarray(size_bytes)
        always = self.first_touches if first_touches else 0
        total = self.returning + always
        if not total:
            nothing = np.full(sizes.shape, np.nan)
            return nothing, nothing.copy()
        # A distance equal to the size is a hit.
        lower, upper = (
            (bound.misses[np.searchsorted(bound.sizes_bytes, sizes, side="right")] + always) / total
            for bound in (self.lower, self.upper)
        )
        return lower, upper

    def estimate_at(self, size_bytes: ArrayLike, first_touches: bool = True) -> NDArray[np.float64] | None:
        """Return the estimated miss ratio of LRU memories, between its bounds; None where it is not known.

        Args:
            size_bytes: one size or an array of sizes.
            first_touches: as for ``miss_ratio_at``.
        """
        lower, upper = self.miss_ratio_at(size_bytes, first_touches)
        always = self.first_touches if first_touches else 0
        if self.estimated is None or not self.returning + always:
            return None
        # Inside a bin touches are even over the logarithm of the distance, as in ``reuse_estimate.quantile``.
        hits = np.interp(np.log2(np.maximum(size_bytes, 1)), np.log2(BIN_EDGES), np.cumsum(self.estimated))
        return np.clip((self.returning - hits + always) / (self.returning + always), lower, upper)

    def size_for(self, miss_ratio: float, first_touches: bool = False) -> tuple[int | None, int | None]:
        """Return the smallest LRU memory with at most this miss ratio.

        Args:
            miss_ratio: 0..1.
            first_touches: count them, as misses. Off by default: no size avoids them.

        Returns:
            (lower, upper): no memory below ``lower`` bytes can do it, one of ``upper`` bytes certainly does. Each is
            None when no size does, or when there was no touch to miss.

        Raises:
            ValueError: miss_ratio outside 0..1.
        """
        if not 0 <= miss_ratio <= 1:
            raise ValueError(f"miss ratio {miss_ratio} is not within 0 and 1")
        always = self.first_touches if first_touches else 0
        total = self.returning + always
        lower, upper = (
            _smallest(bound, np.flatnonzero((bound.misses + always) <= miss_ratio * total), total)
            for bound in (self.lower, self.upper)
        )
        return lower, upper


def _steps(distances: NDArray[np.int64], counts: NDArray[np.int64]) -> Steps:
    misses = np.zeros(len(counts) + 1, np.int64)
    misses[:-1] = np.cumsum(counts[::-1])[::-1]
    return Steps(distances, misses)


def _smallest(bound: Steps, enough: NDArray[np.intp], total: int) -> int | None:
    if not total or not len(enough):
        return None
    return 0 if enough[0] == 0 else int(bound.sizes_bytes[enough[0] - 1])
