"""Rows of measurements as lines of text and as JSON-ready data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from memtui.bench.configuration import Configuration, Titles
from memtui.bench.result import UNAVAILABLE, BenchRow
from memtui.core.shorten import shorten
from memtui.core.shorten import width as cell_width
from memtui.core.units import duration_ns as duration
from memtui.core.units import energy_column, power_column, three_digits

NONE = "n/a"
FLAGS = {
    "not_settled": "the load had not settled after the warm-up",
    "disturbed": "the CPU ran at its full speed too rarely: something else worked on its cores",
    "noisy": "its blocks vary: the interquartile range of the time is above 25 %",
    "off_speed": "the CPU was far off its reference speed: 5 % where nothing tells what that does, else 30 %",
    "wide_interval": "half of the interval of its time is above 5 %",
    "launch_bound": "the GPU ended soon after the last call was queued: this tells of Python, not of the operator",
    "stolen_time": "other guests of the machine took more than 2 % of the CPU time",
    "throttled": "heat or the power brake held the clock down",
    "neighbours": "another process computes on the GPU",
    "sensor_disagreement": "counter and sensor differ by more than 10 %",
    "power_drift": "the power drifted",
    "power_two_levels": "the power has two levels",
    "power_outliers": "the power has outliers",
}
NOTABLE_SPEED = 0.02  # off the reference speed
COLUMNS = (("time", 8), ("+-", 6), ("IQR", 6), ("watts", 7), ("J/call", 8), ("TFLOP/s", 7), ("GB/s", 6))
LEAST_NAME = 32  # cells of a configuration; in fewer too little is left of a name, and the terminal may break the line
_FIGURES = sum(width + 2 for _, width in COLUMNS)


def head(common: str = "", columns: int | None = None) -> list[str]:
    """Return the lines above the rows, with the common values of all configurations.

    These have a line of their own where a terminal of ``columns`` columns has no room beside the figures.
    """
    names = "  ".join(f"{name:>{width}}" for name, width in COLUMNS)
    line = f"{names}  {heading(common)}"
    if columns is None or cell_width(line) <= columns or not common:
        return [line]
    return [f"all: {common}", f"{names}  {heading('')}"]


def heading(common: str) -> str:
    """Return the heading of the column of configurations."""
    return f"configuration (all: {common})" if common else "configuration"


def names(titles: Titles, columns: int | None) -> dict[Configuration, str]:
    """Return the titles shortened for a terminal of ``columns`` columns; None: as long as they are."""
    return shortened(titles, None if columns is None else columns - _FIGURES)


def shortened(titles: Titles, room: int | None) -> dict[Configuration, str]:
    """Return the titles shortened to ``room`` cells, so that they still differ.

    Titles stay whole where the room is too small.
    """
    every = titles.all()
    if room is None or room < LEAST_NAME:
        return dict(every)
    short = shorten([title for _, title in every], room)
    return {configuration: text for (configuration, _), text in zip(every, short, strict=True)}


@dataclass(frozen=True)
class BenchLine:
    """A row as a table prints it.

    Attributes:
        cells: figures, in the order of ``COLUMNS``.
        title: the whole title of the configuration.
        reason: why there are no figures; empty where there are.
        flags: flags of the row.
        energy_reason: why the energy is not known; empty where it is.
        estimated: whether its energy is that of assumed watts.
        reference: whether it was measured to see drift.
    """

    cells: tuple[str, ...]
    title: str
    reason: str = ""
    flags: tuple[str, ...] = ()
    energy_reason: str = ""
    estimated: bool = False
    reference: bool = False

    @classmethod
    def of(cls, row: BenchRow) -> BenchLine:
        """Describe a measured or failed row."""
        no_energy = row.energy_reason if row.status == "ok" and row.energy_status == UNAVAILABLE else ""
        reason = "" if row.status == "ok" else row.reason
        estimated = row.estimate_j is not None
        return cls(cells(row), row.configuration.title, reason, row.flags, no_energy, estimated, row.reference)


def line(row: BenchLine, name: str = "") -> str:
    """Return one row under the name of its configuration. Unknown figures are ``n/a``; an estimate has a ``~``."""
    title = name or row.title
    if row.reason:
        return f"{title}: {row.reason}"
    text = "  ".join(f"{cell:>{width}}" for cell, (_, width) in zip(row.cells, COLUMNS, strict=True))
    flags = f"  [{', '.join(row.flags)}]" if row.flags else ""
    return f"{text}  {title}{flags}{'  (reference)' if row.reference else ''}"


def lines(rows: Sequence[BenchLine], titles: Titles, columns: int | None) -> list[str]:
    """Return a whole table with its head, for a terminal of ``columns`` columns; None: any width."""
    short = {configuration.title: name for configuration, name in names(titles, columns).items()}
    return [*head(titles.common, columns), *(line(row, short.get(row.title, "")) for row in rows)]


def cells(row: BenchRow) -> tuple[str, ...]:
    """Return the figures of a row, in the order of ``COLUMNS``."""
    if row.status != "ok":
        return (NONE,) * len(COLUMNS)
    joules = energy_column(row.energy_j)
    if row.energy_j is None and row.estimate_j is not None:
        joules = f"~{energy_column(row.estimate_j).lstrip()}"
    spread = row.iqr_ns / row.call_ns if row.iqr_ns is not None and row.call_ns else None
    return (
        duration(row.call_ns),
        _percent(row.half_width),
        _percent(spread),
        power_column(row.power_w),
        joules,
        _number(row.tflops),
        _number(row.gb_per_s),
    )


def remarks(row: BenchRow) -> list[str]:
    """Return the remarks about a row besides its figures: its flags, then its energy."""
    if row.status != "ok":
        return [row.reason]
    sentences = ["; ".join(FLAGS.get(flag, flag) for flag in row.flags)] if row.flags else []
    if row.speed is not None and row.follows is not None and abs(row.speed - 1) > NOTABLE_SPEED:
        sentences.append(
            f"measured {duration(row.measured_ns)} while the CPU ran at {row.speed:.0%} of its reference speed, which "
            f"{row.follows:.0%} of this time follows"
        )
    if row.energy_status == UNAVAILABLE and row.energy_reason:
        sentences.append(f"energy is {UNAVAILABLE}: {row.energy_reason}")
    return sentences


def rows_measured(count: int) -> str:
    """Return ``1 row was measured``, ``3 rows were measured``."""
    return f"{count} row was measured" if count == 1 else f"{count} rows were measured"


def foot(rows: Iterable[BenchLine]) -> list[str]:
    """Return the remarks about all rows together: missing energy, and each flag spelled out."""
    listed = list(rows)
    reasons = {row.energy_reason for row in listed if row.energy_reason}
    sentences = [f"energy is {UNAVAILABLE}: {reason}" for reason in sorted(reasons)]
    if any(row.estimated for row in listed):
        sentences.append("~ is an estimate: the watts you assumed, times the time; it is not a measurement")
    if any(row.flags for row in listed):
        measured = [row for row in listed if not row.reference] or listed
        sentences.append(f"{sum(bool(row.flags) for row in measured)} of {len(measured)} rows are flagged")
        counts = Counter(flag for row in listed for flag in row.flags)
        sentences += [f"  {flag} ({count}): {FLAGS[flag]}" for flag, count in counts.most_common() if flag in FLAGS]
    return sentences


def to_dict(row: BenchRow) -> dict[str, Any]:
    """Return a JSON-ready object; names and units are those of the database."""
    return {
        **row.configuration.to_dict(),
        **row.columns(),
        "tflops": row.tflops,
        "gb_per_s": row.gb_per_s,
        "flags": list(row.flags),
        "window_ns": [window.call_ns for window in row.windows],
    }


def _number(value: float | None) -> str:
    if value is None:
        return NONE
    return three_digits(value) if value >= 0.1 else f"{value:.3g}"


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{value:.1%}"


def window(number: int, least: int) -> str:
    """Return the number of a window; more of them than ``least`` are taken where the first ones vary."""
    return f"{number} of {least}" if number <= least else f"{number}, as the first {least} vary"
