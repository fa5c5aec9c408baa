"""Figures and table of ``fast-memory``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from memtui.analysis.reuse_cdf import cdf
from memtui.analysis.statistics import MedianInterval
from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.units import duration, size
from memtui.reports.charts.model import Chart, ChartLine
from memtui.study.charts import BOUNDS_NOTE, MIB, reuse_lines
from memtui.study.studies.fast_memory.miss_curve import MissCurve
from memtui.study.studies.fast_memory.numbers import Bounds, LimitPoint, ProgramNumbers


def row(name: str, point: LimitPoint) -> tuple[str, ...]:
    """Return the row of the table."""
    exact = point.exact_lru
    return (
        name,
        size(point.limit_bytes) if point.share else "none",
        size(point.room_bytes) if point.share else "n/a",
        _range(point.predicted),
        _range(point.predicted_merged),
        "n/a" if exact is None else f"{exact.median:.0f}",
        _middle(point.major_faults),
        _middle(point.swapped_in),
        _factor(point.faults_factor),
        _factor(point.pages_factor),
        "n/a" if point.step_s is None else duration(point.step_s.median),
    )


def charts_of(name: str, numbers: ProgramNumbers, curve: MissCurve, interval_s: float) -> list[Chart]:
    """Return predicted and counted misses by memory, and the curve itself."""
    limited = sorted(
        ((p.room_bytes, p) for p in numbers.points if p.share and p.room_bytes is not None), key=lambda each: each[0]
    )
    rooms = [room for room, _ in limited]
    most = max([curve.largest_bytes, *rooms, PAGE_BYTES]) * 1.05
    sizes_bytes = np.linspace(0, most, 300)
    low, high = curve.misses(sizes_bytes)
    lines = [ChartLine("predicted at least", sizes_bytes / MIB, low, until=high)]
    x = [room / MIB for room in rooms]
    for label, intervals in (
        ("major faults", [point.major_faults for _, point in limited]),
        ("pages from swap", [point.swapped_in for _, point in limited]),
        ("exact LRU", [point.exact_lru for _, point in limited]),
    ):
        measured = [interval for interval in intervals if interval is not None]
        if measured and len(measured) == len(intervals):
            bars = [(each.low, each.high) for each in measured if each.low is not None and each.high is not None]
            medians = [interval.median for interval in measured]
            lines.append(ChartLine(label, x, medians, points=True, bars=bars if len(bars) == len(measured) else None))
    window = f"windows of {interval_s:g} s"
    key = name.replace(" ", "-")
    note = f"{BOUNDS_NOTE} Here first touches are left out, because the kernel reads nothing for them."
    drawn = [
        Chart(
            f"misses-{key}",
            f"{name}: misses a step by room in memory, predicted from {window}, and seen",
            "room for pages (MiB)",
            "a step",
            lines,
            from_zero=True,
            note=note,
        )
    ]
    if (share := cdf(curve.reuse)) is not None:
        drawn.append(reuse_lines(f"reuse-{key}", f"{name}: reuse distances without a limit, {window}", {"": share}))
    return drawn


def slow_down(programs: Mapping[str, ProgramNumbers]) -> Chart:
    """Return the time of a step by limit."""
    lines = []
    for name, program in programs.items():
        times = {point.share: point.step_s.median for point in program.points if point.step_s is not None}
        base = times.pop(0.0, None)
        if base and times:
            x = sorted(times)
            lines.append(
                ChartLine(name, [share * 100 for share in x], [times[share] / base for share in x], points=True)
            )
    return Chart(
        "slow-down",
        "How much longer a step takes under a limit",
        "limit (% of the working set)",
        "times as long as without",
        lines or [ChartLine("nothing was seen", [], [])],
        from_zero=bool(lines),
    )


def _middle(interval: MedianInterval | None) -> str:
    return "n/a" if interval is None else f"{interval.median:.0f}"


def _range(bounds: Bounds | None) -> str:
    return "n/a" if bounds is None else f"{bounds[0]:.0f} to {bounds[1]:.0f}"


def _factor(interval: MedianInterval | None) -> str:
    if interval is None:
        return "n/a"
    text = f"{interval.median:.2f}"
    return text if interval.low is None else f"{text} [{interval.low:.2f}, {interval.high:.2f}]"
