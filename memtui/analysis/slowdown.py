"""The slowdown of an observed program, from neighbouring pairs of blocks of time with and without observation.

A rate is taken between the first and the last time that a counter was seen to move within a block: whole steps in the
time they took, so a step that crosses the border of a block is in no block. A counter that moved once gives no rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.statistics import MedianInterval, median, ratio_of_pairs

Floats = NDArray[np.float64]
FEW_CHANGES = 10  # in a block: the length of a step is then a tenth of what is measured, or more


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of time in which the program was observed, or was not.

    Attributes:
        counted: by how much the counter rose between its first and its last change.
        over_s: the time between these two changes; None: the counter moved less than twice.
        changes: how often the counter was seen to move.
        windows: samples that were taken in the block.
    """

    pair: int
    observed: bool
    begin_s: float
    end_s: float
    counted: float
    over_s: float | None
    changes: int
    windows: int = 0

    @property
    def per_second(self) -> float | None:
        """The rate; None when the rate is not known."""
        return self.counted / self.over_s if self.over_s else None


def count_in(
    times_s: Sequence[float], values: Sequence[float], start_s: float, end_s: float
) -> tuple[float, float | None, int]:
    """Return (counted, over_s, changes) of a counter between two moments, see ``Block``. ``times_s`` rise."""
    first, last = np.searchsorted(times_s, (start_s, end_s)).tolist()
    changes = last - first
    if changes < 2:
        return 0.0, None, changes
    return float(values[last - 1] - values[first]), float(times_s[last - 1] - times_s[first]), changes


def slow_down(blocks: Sequence[Block]) -> MedianInterval | None:
    """Return how much more time a step takes with observation: median of pairs, 0.02 is 2 %; None without a pair.

    The interval is that of binomial order statistics (``statistics.median_interval``): it needs six pairs.
    """
    by_pair: dict[int, dict[bool, float | None]] = {}
    for block in blocks:
        by_pair.setdefault(block.pair, {})[block.observed] = block.per_second
    whole = [pair for pair in by_pair.values() if pair.get(True) and pair.get(False)]
    ratio = ratio_of_pairs([pair[False] for pair in whole], [pair[True] for pair in whole])
    if ratio is None:
        return None
    low, high = (None if bound is None else bound - 1 for bound in (ratio.low, ratio.high))
    return MedianInterval(ratio.median - 1, low, high, ratio.confidence, ratio.count)


def doubts(blocks: Sequence[Block]) -> list[str]:
    """Return the reasons to doubt the figure, and what would help."""
    reasons = []
    result = slow_down(blocks)
    if result is not None and result.low is None:
        reasons.append(f"no interval: {result.count} pair{'s' * (result.count != 1)}, and 95 % needs 6 (--blocks 6)")
    changes = median([block.changes for block in blocks])
    if changes is not None and changes < FEW_CHANGES:
        reasons.append(
            f"the counter moved {changes:g} times a block: single steps decide, so the interval is wide; "
            "longer blocks (--seconds) or a finer counter help"
        )
    windows = median([block.windows for block in blocks if block.observed])
    if windows is not None and windows < 3:
        reasons.append(
            f"{windows:g} windows a block: what the others cost is not in it; longer blocks (--seconds) help"
        )
    lost = sum(block.per_second is None for block in blocks)
    if lost:
        reasons.append(f"{lost} of {len(blocks)} blocks have no rate, because the counter moved less than twice")
    return reasons
