"""Rows of measurements as lines of text and as plain data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from memtui.bench.result import UNAVAILABLE, Row
from memtui.units import duration_ns as duration
from memtui.units import energy_column, power_column, three_digits

NONE = "n/a"
FLAGS = {
    "not_settled": "the load had not settled after the warm-up",
    "disturbed": "the CPU ran at its full speed too rarely: something else worked on its cores",
    "noisy": "its blocks vary: the interquartile range of the time is above 25 %",
    "off_speed": "the CPU was far off its reference speed: 5 % where nothing tells what that does, else 30 %",
    "wide_interval": "half of the interval of its time is above 5 %",
    "launch_bound": "the GPU waited for more than 5 % of the time: this tells of Python, not of the operator",
    "stolen_time": "other guests of the machine took more than 2 % of the CPU time",
    "throttled": "heat or the power brake held the clock down",
    "neighbours": "another process computes on the GPU",
    "sensor_disagreement": "counter and sensor differ by more than 10 %",
    "power_drift": "the power drifted",
    "power_two_levels": "the power has two levels",
    "power_outliers": "the power has outliers",
}
WORTH_A_WORD = 0.02  # off the reference speed
COLUMNS = (("time", 10), ("+-", 7), ("IQR", 7), ("watts", 8), ("J/call", 10), ("TFLOP/s", 9), ("GB/s", 8))


def head() -> str:
    """The line above the rows."""
    return "  ".join(f"{name:>{width}}" for name, width in COLUMNS) + "  configuration"


def line(row: Row) -> str:
    """One row. What is not known is ``n/a``; an estimate has a ``~``."""
    title = row.configuration.title
    if row.status != "ok":
        return f"{title}: {row.reason}"
    text = "  ".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells(row), COLUMNS, strict=True))
    return f"{text}  {title}" + (f"  [{', '.join(row.flags)}]" if row.flags else "")


def cells(row: Row) -> tuple[str, ...]:
    """The figures of a row, in the order of ``COLUMNS``."""
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


def words(row: Row) -> list[str]:
    """What there is to say of a row beside its figures: its flags, then its energy."""
    if row.status != "ok":
        return [row.reason]
    said = ["; ".join(FLAGS.get(flag, flag) for flag in row.flags)] if row.flags else []
    if row.speed is not None and row.follows is not None and abs(row.speed - 1) > WORTH_A_WORD:
        said.append(
            f"measured {duration(row.measured_ns)} while the CPU ran at {row.speed:.0%} of its reference speed, which "
            f"{row.follows:.0%} of this time follows"
        )
    if row.energy_status == UNAVAILABLE and row.energy_reason:
        said.append(f"energy is {UNAVAILABLE}: {row.energy_reason}")
    return said


def foot(rows: Iterable[Row]) -> list[str]:
    """What has to be said of the rows together."""
    found = list(rows)
    reasons = {row.energy_reason for row in found if row.status == "ok" and row.energy_status == UNAVAILABLE}
    said = [f"energy is {UNAVAILABLE}: {reason}" for reason in sorted(reasons) if reason]
    if any(row.estimate_j is not None for row in found):
        said.append("~ is an estimate: the watts you assumed, times the time; it is no measurement")
    flagged = sum(bool(row.flags) for row in found)
    if flagged:
        said.append(f"{flagged} of {len(found)} rows are flagged")
    return said


def to_plain(row: Row) -> dict[str, Any]:
    """JSON-ready; names and units are those of the database."""
    return {
        **row.configuration.to_plain(),
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
