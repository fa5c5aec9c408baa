"""The averaging window of a power sensor, from its answers to a load that is switched on and off.

A sensor that averages over ``w`` and reports with a delay ``d`` reads, at time t, the mean power of [t - d - w, t - d].
With a load of two known levels that is ``off + (on - off) * share(t)``, where ``share`` is the part of this interval in
which the load was on. The window and the delay with the smallest error of the two levels are the sensor's (after Yang,
Adamek and Armour, "Part-time Power Measurements: nvidia-smi's Lack of Attention", 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SensorFit:
    """How a sensor averages.

    Attributes:
        every_ns: median time between two new values.
        window_ns: length of the interval whose mean a value is.
        delay_ns: age of the end of this interval when the value appears.
        on_w, off_w: power with and without load.
        error_w: root mean square of what the fit leaves.
        values: number of new values.
    """

    every_ns: float
    window_ns: float
    delay_ns: float
    on_w: float
    off_w: float
    error_w: float
    values: int


def updates(t_ns: NDArray[np.int64], values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return when a polled value (i8[n], f8[n]) first differs from the one before, and the new values."""
    new = np.flatnonzero(np.diff(values)) + 1
    return t_ns[new], values[new]


def fit(
    on_ns: Sequence[tuple[int, int]],
    t_ns: NDArray[np.int64],
    values_w: NDArray[np.float64],
    windows_ms: Sequence[float],
    delays_ms: Sequence[float],
) -> SensorFit:
    """Return the window and delay that explain a sensor's new values best.

    Args:
        on_ns: begin and end of each stretch of load, in order.
        t_ns: i8[n], when each new value appeared.
        values_w: f8[n], the values.
        windows_ms: lengths of the window to try.
        delays_ms: delays to try.

    Raises:
        ValueError: there are fewer than eight values.
    """
    if len(t_ns) < 8:
        raise ValueError(f"the sensor gave {len(t_ns)} new values: too few for a fit")
    edges = np.array(on_ns, np.float64).ravel()
    busy = np.concatenate(([0.0], np.cumsum(np.diff(edges) * (np.arange(len(edges) - 1) % 2 == 0))))

    def load_before(t: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.interp(t, edges, busy)

    best: tuple[float, float, float, float, float] | None = None
    for window_ms in windows_ms:
        for delay_ms in delays_ms:
            end = t_ns - delay_ms * 1e6
            share = (load_before(end) - load_before(end - window_ms * 1e6)) / (window_ms * 1e6)
            known = np.column_stack((1 - share, share))
            levels, *_ = np.linalg.lstsq(known, values_w, rcond=None)
            error = float(np.sqrt(np.mean((known @ levels - values_w) ** 2)))
            if best is None or error < best[0]:
                best = error, window_ms, delay_ms, float(levels[1]), float(levels[0])
    assert best is not None
    error, window_ms, delay_ms, on_w, off_w = best
    every = float(np.median(np.diff(t_ns)))
    return SensorFit(every, window_ms * 1e6, delay_ms * 1e6, on_w, off_w, error, len(t_ns))
