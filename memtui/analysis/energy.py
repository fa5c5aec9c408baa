"""Energy and mean power of a stretch of steady load, from the readings of an energy counter or of a power sensor.

An energy counter rises in steps, 20 to 100 ms apart. Read at the start and the end of a window, the counter is wrong by
up to a step at either end, and within less than a step it does not move at all. So the window is moved to the counter's
own edges: from the first step after the window's start to the first step after its end, while the load runs on. The
remaining error is the time between two readings. A power sensor is integrated instead: a second opinion, and the only
opinion without a counter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

NS = 1_000_000_000
AGREE, DIFFER = 0.03, 0.10  # how far two sensors may be apart: less is the same, more is a disagreement
MOST_OF_LIMIT = 1.2  # times the limit that the board enforces on itself: no board draws that much


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy drawn between two moments.

    Attributes:
        start_ns: start of the stretch that was really measured.
        end_ns: end of that stretch.
        energy_j: energy drawn in the stretch; None with a reason.
        reason: why there is no figure.
        steps: steps of the counter, or readings of the sensor, in the stretch.
    """

    start_ns: int
    end_ns: int
    energy_j: float | None
    reason: str = ""
    steps: int = 0

    @property
    def power_w(self) -> float | None:
        """Mean over the stretch."""
        return None if self.energy_j is None else self.energy_j * NS / (self.end_ns - self.start_ns)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Ratio of a power sensor to a counter. ``verdict``: ``ok``, ``note`` or ``sensor_disagreement``."""

    ratio: float
    verdict: str


def edges(t_ns: ArrayLike, energy_j: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the readings at which the counter had another value than at the reading before.

    The first reading is not an edge.

    Args:
        t_ns: i8[n], rising; time at which each reading came back.
        energy_j: f8[n], the counter; nan where the counter could not be read.
    """
    times, values = np.asarray(t_ns, np.int64), np.asarray(energy_j, np.float64)
    readable = np.isfinite(values)
    times, values = times[readable], values[readable]
    new = np.flatnonzero(np.diff(values)) + 1
    return times[new], values[new]


def tick_ns(t_ns: ArrayLike, energy_j: ArrayLike) -> float | None:
    """Return the median time between two steps of a counter; None with fewer than two of them."""
    times, _ = edges(t_ns, energy_j)
    return float(np.median(np.diff(times))) if len(times) > 1 else None


def from_counter(
    t_ns: ArrayLike, energy_j: ArrayLike, start_ns: int, end_ns: int, limit_w: float | None = None
) -> Energy:
    """Return the energy between the counter's first step after ``start_ns`` and the first one after ``end_ns``.

    Args:
        t_ns: i8[n], rising; readings must go on for a step after ``end_ns``, and the load with them.
        energy_j: f8[n], joules; nan where the counter could not be read.
        start_ns: start of the window.
        end_ns: end of the window.
        limit_w: the power limit that the board enforces, if the board reports a limit.
    """
    times, values = edges(t_ns, energy_j)
    first, last = np.searchsorted(times, (start_ns, end_ns)).tolist()
    if last >= len(times) or last <= first:
        many = "did not change" if last <= first else "was not read until its next step"
        return Energy(start_ns, end_ns, None, f"the energy counter {many}")
    start, end = int(times[first]), int(times[last])
    if (np.diff(values[first : last + 1]) < 0).any():
        return Energy(start, end, None, "the energy counter went back: it was reset")
    return _plausible(Energy(start, end, float(values[last] - values[first]), steps=last - first), limit_w)


def from_power(t_ns: ArrayLike, power_w: ArrayLike, start_ns: int, end_ns: int, limit_w: float | None = None) -> Energy:
    """Return the integral of power readings by trapezoids, the first and last value in the window held to its borders.

    Args:
        t_ns: i8[n], rising.
        power_w: f8[n]; nan where the sensor could not be read.
        start_ns: start of the window.
        end_ns: end of the window.
        limit_w: the power limit that the board enforces, if the board reports a limit.
    """
    times, values = np.asarray(t_ns, np.int64), np.asarray(power_w, np.float64)
    inside = np.isfinite(values) & (times >= start_ns) & (times <= end_ns)
    if not inside.any() or end_ns <= start_ns:
        return Energy(start_ns, end_ns, None, "no reading of the power in this time")
    moments = np.concatenate(([start_ns], times[inside], [end_ns])).astype(np.float64)
    drawn = np.concatenate((values[inside][:1], values[inside], values[inside][-1:]))
    energy_j = float(((drawn[1:] + drawn[:-1]) / 2 * np.diff(moments)).sum() / NS)
    return _plausible(Energy(start_ns, end_ns, energy_j, steps=int(inside.sum())), limit_w)


def agreement(counter: Energy, integral: Energy) -> Agreement | None:
    """Return the sensor's mean power over the counter's; None unless both are known. They are never blended."""
    if not counter.power_w or integral.power_w is None:
        return None
    ratio = integral.power_w / counter.power_w
    apart = abs(ratio - 1)
    return Agreement(ratio, "ok" if apart <= AGREE else "note" if apart <= DIFFER else "sensor_disagreement")


def _plausible(energy: Energy, limit_w: float | None) -> Energy:
    power_w = energy.power_w
    if power_w is None or power_w <= 0:
        return Energy(energy.start_ns, energy.end_ns, None, "no energy was drawn: the sensor does not work")
    if limit_w is not None and power_w > MOST_OF_LIMIT * limit_w:
        return Energy(
            energy.start_ns, energy.end_ns, None, f"{power_w:.0f} W is more than a limit of {limit_w:.0f} W lets"
        )
    return energy
