"""The share of its time that a program loses by being watched: of a whole session, and of late."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def recent_loss(lost_ns: Floats, end_ns: NDArray[np.int64], next_ns: float) -> float | None:
    """Average what windows cost over the time that follows them: a window is paid for by the interval after it.

    So a first dear window, which a budget answers with a long interval, is told as what it comes to.

    Args:
        lost_ns: f8[n], see ``memtui.recording.sampler.slowdown_estimate``; nan where it is not known.
        end_ns: i8[n], when each window ended.
        next_ns: the interval after the last one.

    Returns:
        The share, 0.01 is 1 %; None where the cost of a window is not known, or there is none.
    """
    if not len(end_ns) or np.isnan(lost_ns).any():
        return None
    paying_ns = float(end_ns[-1] - end_ns[0]) + next_ns
    return float(lost_ns.sum()) / paying_ns if paying_ns > 0 else None


def budget_cost(lost: float | None, cpu: float, paused: float | None) -> float:
    """Return what a budget bounds, of parts in one unit: a time, or shares of it.

    Sessions of formats before 10 do not know what was lost, and kept the sum of pauses and own CPU below their budget.
    """
    return cpu + (paused or 0.0) if lost is None else max(lost, cpu)


def lost_fraction(lost_ns: Floats, span_ns: float) -> float | None:
    """Return the share of a span of time that was lost; None where no window says.

    Args:
        lost_ns: f8[n], see ``memtui.recording.sampler.slowdown_estimate``; nan where it is not known.
        span_ns: from the begin of the first window to the end of the last.
    """
    known_ns = lost_ns[~np.isnan(lost_ns)]
    return float(known_ns.sum() / span_ns) if len(known_ns) and span_ns > 0 else None
