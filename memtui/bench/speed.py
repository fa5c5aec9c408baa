"""What the changing speed of a CPU does to the time of a call, as far as the row itself tells.

The clock of a CPU that others use, too, moves by a third within minutes, with what they do. The yardstick takes longer
then by the same share, and an operator by a part of that, for memory has a clock of its own. That part is the slope of
one logarithm over the other, and with it the blocks of a row are brought to one speed, the reference.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SMOOTHED = 15  # blocks, of which the median is taken: a reading is 45 us long, and a change of speed lasts longer
DISTURBED = 1.25  # times the fastest: no clock does that within a row, a neighbour on the core does
VARIED = 0.003  # standard deviation of the logarithm of the speed; less tells nothing
CHANCE = 1.253 / (2 * SMOOTHED) ** 0.5  # of a median, by the standard deviation of differences of neighbours
MORE = 1.5  # times what chance does
FEWEST = 5  # medians make a slope

Floats = NDArray[np.float64]


def share_that_follows(block_ns: Floats, yard_ns: Floats) -> float | None:
    """How much of the time follows the speed of the CPU: 0 none of it, 1 all.

    Args:
        block_ns: f8[n], in the order of time.
        yard_ns: f8[n], of the yardstick beside each.

    Returns:
        The slope of log time over log yardstick, of medians, from 0 to 1; None where the speed varied too little.
    """
    if len(yard_ns) < SMOOTHED:
        return None
    there = yard_ns <= DISTURBED * np.percentile(yard_ns, 2)
    by_chance = CHANCE * float(np.diff(np.log(yard_ns[there])).std())
    yards, blocks = (np.log(_medians(some[there])) for some in (yard_ns, block_ns))
    if len(yards) < FEWEST or yards.std() < max(VARIED, MORE * by_chance):
        return None
    return float(np.clip(np.polyfit(yards - yards.mean(), blocks, 1)[0], 0, 1))


def at_reference(block_ns: Floats, yard_ns: Floats, reference_ns: float, share: float | None) -> Floats:
    """The blocks as they would be where the yardstick takes ``reference_ns``; as they are where nothing is known."""
    return block_ns if share is None else block_ns * (reference_ns / yard_ns) ** share


def _medians(values: Floats) -> Floats:
    """Of stretches that overlap by half."""
    if len(values) < SMOOTHED:
        return values[:0]
    return np.median(np.lib.stride_tricks.sliding_window_view(values, SMOOTHED)[:: SMOOTHED // 2], axis=1)
