"""The length that a window needs: error and interval of time and energy against its length.

A sensor with a reading every 20 to 100 ms tells little about 50 ms. Do long windows make up for it? The same
configuration is measured with windows of many lengths; the longest windows are the truth for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from memtui.analysis.robust_mean import mean_interval
from memtui.bench.result import MEASURED, BenchRow
from memtui.bench.text import NONE
from memtui.core.json_fields import to_json

LENGTHS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
QUICK_LENGTHS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
ENOUGH = 0.01  # of the value: a window is long enough when error and half interval are below this share


@dataclass(frozen=True)
class Precision:
    """Precision of one quantity at one length.

    Attributes:
        spread: standard deviation over windows by their mean.
        half_width: half of the 95 % interval by the mean.
        error: signed error of the mean against that of the longest windows.
    """

    spread: float
    half_width: float
    error: float

    @property
    def enough(self) -> bool:
        return max(self.half_width, abs(self.error)) <= ENOUGH


@dataclass(frozen=True)
class LengthPoint:
    """One length of window; None where a quantity was not measured in every window."""

    seconds: float
    windows: int
    time: Precision | None
    energy: Precision | None


def study(rows: Sequence[BenchRow]) -> list[LengthPoint]:
    """Return the points by length, rising; failed rows are left out."""
    measured = sorted((row for row in rows if row.status == "ok"), key=lambda row: row.plan.seconds)
    if not measured:
        return []
    times, watts = _times(measured[-1]), _watts(measured[-1])
    return [
        LengthPoint(row.plan.seconds, len(row.windows), _precision(_times(row), times), _precision(_watts(row), watts))
        for row in measured
    ]


def _times(row: BenchRow) -> list[float]:
    return [window.call_ns for window in row.windows]


def _watts(row: BenchRow) -> list[float]:
    """Return the watts of each window by the counter or, without it, by the sensor; empty where a window lacks both."""
    if row.energy_j is None:
        return []
    some = [e.counter if row.energy_status == MEASURED else e.integral for e in row.energies]
    return [e.power_w for e in some if e.power_w is not None]


def _precision(values: Sequence[float], truth: Sequence[float]) -> Precision | None:
    interval = mean_interval(values)
    if interval is None or len(truth) < 2:
        return None
    mean, _, high = interval
    return Precision(stdev(values) / mean, (high - mean) / mean, mean / fmean(truth) - 1)


def shortest(points: Sequence[LengthPoint], what: str) -> float | None:
    """Return the shortest length from which on all are precise, for ``time`` or ``energy``; None: no length is."""
    seconds = None
    for point in reversed(points):
        precision: Precision | None = getattr(point, what)
        if precision is None or not precision.enough:
            break
        seconds = point.seconds
    return seconds


def to_dict(points: Sequence[LengthPoint]) -> dict[str, Any]:
    """Return a JSON-ready object."""
    return {
        "points": to_json(points),
        "shortest_s": {what: shortest(points, what) for what in ("time", "energy")},
        "enough": ENOUGH,
    }


def lines(points: Sequence[LengthPoint]) -> list[str]:
    """Return the lines for people."""
    if not points:
        return ["nothing was measured"]
    head = ("time: spread", 12), ("+-", 7), ("error", 8), (" power: spread", 14), ("+-", 7), ("error", 8)
    text = [f"{'window':>8}  {'n':>3}  " + " ".join(f"{name:>{width}}" for name, width in head)]
    for p in points:
        text.append(f"{p.seconds:>6g} s  {p.windows:>3}  {_cells(p.time, 12)}  {_cells(p.energy, 13)}")
    for what in ("time", "energy"):
        if any(getattr(p, what) is not None for p in points):
            best = shortest(points, what)
            answer = "none of these windows reaches 1 %" if best is None else f"1 % is reached from {best:g} s on"
            text.append(f"{what}: {answer}")
    return text


def _cells(precision: Precision | None, width: int) -> str:
    if precision is None:
        return f"{NONE:>{width}} {NONE:>7} {NONE:>8}"
    return f"{precision.spread:>{width}.2%} {precision.half_width:>7.2%} {precision.error:>+8.2%}"
