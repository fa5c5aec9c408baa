"""How fast use of memory grows, told apart from the start of a program and from use that rises and falls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.core.fast_numpy import median

LONGEST_S, SHORTEST_S = 600.0, 45.0
_BLOCKS = 6
_STUDENT = 2.776  # 97.5 % of Student's t distribution with _BLOCKS - 2 degrees of freedom
_MOST_ERROR = 0.5  # half the interval, as a share of the slope
_STEADY = 0.5  # times the slope: that of the last blocks, at least; the error is too large where it is over 2 times
_MOST_FALL = 0.5  # of the growth: the deepest fall from what was reached before, beyond what falls in most blocks, ...
_LEAST_RISE = 0.75  # ... and times that: growth is at least so much
# Of what is looked at: the longest that grows evenly counts, or else the longest that grows steadily. The start of a
# program that is watched from there makes a steady growth uneven.
_SPANS = 1.0, 5 / 6, 2 / 3, 0.5, 0.25
EVEN = 0.25  # half the interval, as a share of the slope

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Growth:
    """A growth that goes on: its rate, the interval in which that lies with 95 %, and for how long it was seen."""

    bytes_per_s: float
    low_bytes_per_s: float
    high_bytes_per_s: float
    span_s: float

    @property
    def is_even(self) -> bool:
        """Whether the interval is narrow: then it is not a start that settles down."""
        return (self.high_bytes_per_s - self.low_bytes_per_s) / 2 <= EVEN * self.bytes_per_s


def growth_of(t_s: Floats, used_bytes: Floats) -> Growth | None:
    """Return the growth at the end of a series; None where it does not grow steadily.

    The last ten minutes are cut into blocks of one length, whose medians are fitted by a line (least squares). Medians
    of blocks vary more independently than readings, of which each is much like the one before. Use that rises and
    falls grows where it rises by more than twice its deepest fall. Where it falls as deep in most blocks (a saw-tooth
    that is shorter than a block) the medians are above one another all the same: there it has to rise by three
    quarters of that.

    Args:
        t_s: f8[n], seconds, ascending.
        used_bytes: f8[n], what was in use then.
    """
    if not len(t_s):
        return None
    recent = t_s >= t_s[-1] - LONGEST_S
    t_s, used_bytes = t_s[recent], used_bytes[recent]
    fall_bytes, span_s = _deepest_fall(used_bytes), float(t_s[-1] - t_s[0])
    steady = None
    for share in _SPANS:
        if share * span_s >= SHORTEST_S:
            later = t_s >= t_s[-1] - share * span_s
            growth = _steady_growth(t_s[later], used_bytes[later], fall_bytes)
            if growth is not None and growth.is_even:
                return growth
            steady = steady or growth
    return steady


def _deepest_fall(used_bytes: Floats) -> float:
    return float((np.maximum.accumulate(used_bytes) - used_bytes).max())


def _steady_growth(t_s: Floats, used_bytes: Floats, fall_bytes: float) -> Growth | None:
    block = np.minimum(((t_s - t_s[0]) / (t_s[-1] - t_s[0]) * _BLOCKS).astype(np.int64), _BLOCKS - 1)
    if np.bincount(block).min() < 2:
        return None
    times, levels = (
        np.array([median(values[block == number]) for number in range(_BLOCKS)]) for values in (t_s, used_bytes)
    )
    from_mean_s = times - times.mean()
    squares = float((from_mean_s**2).sum())
    slope = float((from_mean_s * levels).sum()) / squares
    residuals = levels - levels.mean() - slope * from_mean_s
    error = _STUDENT * float(np.sqrt((residuals**2).sum() / (_BLOCKS - 2) / squares))
    rise_bytes = float(levels[-1] - levels[0])
    usual_bytes = median(np.array([_deepest_fall(used_bytes[block == number]) for number in range(_BLOCKS)]))
    if fall_bytes - usual_bytes > _MOST_FALL * rise_bytes or _LEAST_RISE * usual_bytes > rise_bytes:
        return None
    if slope <= 0 or error > _MOST_ERROR * slope:
        return None
    last = float((levels[-1] - levels[-3]) / (times[-1] - times[-3]))
    if last < _STEADY * slope:
        return None
    return Growth(slope, slope - error, slope + error, float(t_s[-1] - t_s[0]))
