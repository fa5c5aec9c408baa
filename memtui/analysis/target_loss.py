"""The share of its time that a program loses by being watched: over a whole session, and recently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.core.samples import End

OWN_CPU = 3  # times a budget: what memtui itself may take of a CPU. Where none is free, its time is lost to the target.
OVER = 1.1  # times a budget: an excess below that is chance, and paid back
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LastPart:
    """The time of a recording after its last window, which pays for it: nothing is paused or read in it.

    Attributes:
        length_ns: of that time.
        lost_ns: what the program lost in it, as it set again the accessed bits that the last window cleared.
        cpu_ns: CPU time of sampler and recorder in it; None: not known.
    """

    length_ns: int = 0
    lost_ns: float = 0.0
    cpu_ns: float | None = 0.0

    def cpu_share(self, cpu_ns: float, apart_ns: float) -> float:
        """Return the CPUs that took ``cpu_ns`` from the end of the first window to that of the last, with this part."""
        if self.cpu_ns is None:
            return cpu_ns / apart_ns
        return (cpu_ns + self.cpu_ns) / (apart_ns + self.length_ns)


def last_part(samples: Any, end: End | None, *, alive: bool = False) -> LastPart:
    """Return the time after the last of ``samples`` until the ``end``, or the next interval of what is still recorded.

    The bits that are set again are taken to be as many as in the last window, or a part of them in less time.
    """
    if end is not None:
        length_ns = max(end.t_ns - int(samples.end_ns[-1]), 0)
    else:
        next_ns = float(samples.next_ns[-1])
        length_ns = int(next_ns) if alive and next_ns > 0 else 0
    if not length_ns:
        return LastPart()
    again_ns, whole_ns = float(samples.set_again_ns[-1]), int(samples.end_ns[-1] - samples.start_ns[-1])
    lost_ns = 0.0 if np.isnan(again_ns) or not whole_ns else again_ns * min(length_ns / whole_ns, 1.0)
    cpu_ns = None
    if end is not None and end.sampler_cpu_ns is not None and end.recorder_cpu_ns is not None:
        before_ns = int(samples.sampler_cpu_ns[-1]) + int(samples.recorder_cpu_ns[-1])
        cpu_ns = max(float(end.sampler_cpu_ns + end.recorder_cpu_ns - before_ns), 0.0)
    return LastPart(length_ns, lost_ns, cpu_ns)


def recent_loss(lost_ns: Floats, end_ns: NDArray[np.int64], next_ns: float) -> float | None:
    """Average the cost of windows over the time that follows them: the interval after a window pays for it.

    So an expensive first window, which a budget answers with a long interval, counts with that interval.

    Args:
        lost_ns: f8[n], see ``memtui.recording.sampler.slowdown_estimate``; nan where the loss is not known.
        end_ns: i8[n], when each window ended.
        next_ns: the interval after the last window.

    Returns:
        The share, 0.01 is 1 %; None where the cost of a window is not known, or there is no window.
    """
    if not len(end_ns) or np.isnan(lost_ns).any():
        return None
    paying_ns = float(end_ns[-1] - end_ns[0]) + next_ns
    return float(lost_ns.sum()) / paying_ns if paying_ns > 0 else None


def budget_cost(lost: float | None, cpu: float, paused: float | None) -> float:
    """Return the cost that a budget bounds, from parts in one unit: a time, or shares of it.

    Args:
        lost: by the target.
        cpu: time of memtui itself, of which it may take ``OWN_CPU`` times as much.
        paused: sessions of formats before 10 do not store the loss; their budget bounded the sum of both others.
    """
    return cpu + (paused or 0.0) if lost is None else max(lost, cpu / OWN_CPU)


def lost_fraction(lost_ns: Floats, span_ns: float) -> float | None:
    """Return the share of a span of time that was lost; None where the loss of no window is known.

    Args:
        lost_ns: f8[n], see ``memtui.recording.sampler.slowdown_estimate``; nan where the loss is not known.
        span_ns: from the start of the first window to the end of the last.
    """
    measured_ns = lost_ns[~np.isnan(lost_ns)]
    return float(measured_ns.sum() / span_ns) if len(measured_ns) and span_ns > 0 else None


def lost_in_all(samples: Any, after: LastPart) -> float | None:
    """Return the share of all of the time of ``samples`` and ``after`` that was lost; None where no loss is known."""
    span_ns = float(samples.end_ns[-1] - samples.start_ns[0]) + after.length_ns
    lost = lost_fraction(samples.lost_ns[:], span_ns)
    return None if lost is None else lost + after.lost_ns / span_ns
