"""Comparison of two databases, configuration by configuration: whether B is slower than A, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memtui.analysis.robust_mean import ratio_interval
from memtui.bench.configuration import Configuration, Titles, from_text
from memtui.bench.store import Database
from memtui.bench.text import NONE, heading, shortened

SAME, SLOWER, FASTER, UNKNOWN = "same", "slower", "faster", "unknown"


@dataclass(frozen=True)
class Comparison:
    """Ratios of B to A for one configuration.

    Attributes:
        configuration: configuration in both databases; the newest row of each counts.
        time: ratio and its 95 % interval, over windows; None where a side has one window only.
        energy: ratio of energy a call; None unless both were measured the same way.
        verdict: verdict on the time.
        devices: names of A's and of B's device.
    """

    configuration: Configuration
    time: tuple[float, float, float] | None
    energy: float | None
    verdict: str
    devices: tuple[str, str]

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.configuration.to_dict(),
            "time_ratio": self.time[0] if self.time else None,
            "time_low": self.time[1] if self.time else None,
            "time_high": self.time[2] if self.time else None,
            "energy_ratio": self.energy, "verdict": self.verdict, "devices": list(self.devices),
        }  # fmt: skip


def compare(a: Database, b: Database) -> tuple[list[Comparison], int]:
    """Return the common configurations, in the order of A, and how many of them another version wrote."""
    comparisons, unknown = [], 0
    newest = [{row.configuration: row for row in side.finished()} for side in (a, b)]
    for key, first in newest[0].items():
        second = newest[1].get(key)
        if second is None:
            continue
        sides = ((b, second.id), (a, first.id))
        # Times of one CPU are compared at one speed; between two CPUs the speed is a part of the difference.
        reference_ns = first.reference_ns if first.device_name == second.device_name else None
        means = [side.quiet_means(number, reference_ns) for side, number in sides]
        if min(map(len, means)) < 2:  # like with like
            means = [side.window_means(number) for side, number in sides]
        time = ratio_interval(means[0], means[1])
        verdict = UNKNOWN if time is None else SLOWER if time[1] > 1 else FASTER if time[2] < 1 else SAME
        energy = None
        if first.energy_source == second.energy_source and first.energy_j and second.energy_j:
            energy = second.energy_j / first.energy_j
        devices = first.device_name, second.device_name
        try:
            comparisons.append(Comparison(from_text(first.text), time, energy, verdict, devices))
        except ValueError:
            unknown += 1
    return comparisons, unknown


def table(comparisons: Sequence[Comparison], columns: int | None) -> list[str]:
    """Return comparisons as lines with a head, for a terminal of ``columns`` columns; None: any width."""
    titles = Titles([comparison.configuration for comparison in comparisons])
    names = shortened(titles, None if columns is None else columns - len(_HEAD))
    lines = [
        _HEAD + heading(titles.common),
        *(line(comparison, names[comparison.configuration]) for comparison in comparisons),
    ]
    if any(comparison.time is None for comparison in comparisons):
        lines.append(
            f"{NONE}: one window only on a side, of which nothing can be said; measure with --windows 2 or more"
        )
    return lines


def line(comparison: Comparison, name: str = "") -> str:
    """Return a comparison as text, under the name of its configuration."""
    time = NONE if comparison.time is None else "{:.3f} [{:.3f}, {:.3f}]".format(*comparison.time)
    energy = NONE if comparison.energy is None else f"{comparison.energy:.3f}"
    return f"{time:>22}  {energy:>6}  {comparison.verdict:7}  {name or comparison.configuration.title}"


_HEAD = f"{'time, B by A':>22}  {'energy':>6}  {'':7}  "
