"""``overhead``: how much slower training gets under observation, by interval, tracker and pause."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from memtui.analysis.slowdown import doubts, slow_down
from memtui.analysis.statistics import MedianInterval
from memtui.core.errors import UserError
from memtui.core.json_fields import fields_to_json, to_json
from memtui.reports.charts.model import Chart, ChartLine, Findings, Table
from memtui.study.plan import BLOCKS, Run
from memtui.study.studies.base import (
    FinishedRun,
    Setting,
    by_group,
    interval_text,
    training,
    without_end,
)

WAYS = (("auto", True), ("auto", False), ("referenced", True))
INTERVALS_S = (0.1, 0.2, 0.5, 1.0, 2.0)
QUICK_S = (0.2, 0.5)
BATCH = 32  # small, so that blocks have many steps
SETTLE_S = 1.0  # between blocks; see ``memtui.study.calibration``
DEAR = 0.05  # a larger slow-down is not called cheap


@dataclass(frozen=True, slots=True)
class OverheadPoint:
    """The cost of observation at an interval, with a tracker and a way of pausing.

    Attributes:
        group: group of the run.
        tracker: name of the tracker.
        pause: whether the program was paused while its pages were read.
        interval_s: length of a window.
        slow_down: slow-down of a step; None where no steps were counted.
    """

    group: str
    tracker: str
    pause: bool
    interval_s: float
    slow_down: MedianInterval | None

    @property
    def way(self) -> str:
        """Tracker and way of pausing."""
        return f"{self.tracker}, {'paused' if self.pause else 'not paused'}"

    @property
    def text(self) -> str:
        """The slow-down as text."""
        return interval_text(self.slow_down, sign=True)

    def to_dict(self) -> dict[str, Any]:
        return fields_to_json(self) | {"words": self.text}


class Overhead:
    name = "overhead"
    title = "How much slower does training get by being watched?"
    original = ("MemSnoop's published code, documents and notebooks state no overhead or slow-down anywhere.",)
    method = (
        f"One training with batches of {BATCH} for each interval, tracker and way of pausing. Blocks of time with "
        "and without sampling come in pairs in random order; the slow-down is the median over pairs of the time a "
        "step takes with, over that without, with its 95 % interval (binomial order statistics). It is what memtui "
        "calibrate does to a process that runs already.",
        "Blocks without sampling have the same idle processes beside them, so what they cost is not in it.",
    )

    def runs(self, setting: Setting) -> list[list[Run]]:
        pairs, block_s = (6, 2.0) if setting.quick else (10, 10.0)
        runs = []
        for tracker, pause in WAYS if not setting.quick else WAYS[:2]:
            for interval_s in QUICK_S if setting.quick else INTERVALS_S:
                length_s = max(block_s, 4 * interval_s)
                fields = training(setting, setting.seed, batch=BATCH)
                fields |= {"limit_s": None, "expected_s": fields["expected_s"] + 2 * pairs * (length_s + SETTLE_S)}
                if not setting.command:
                    fields["program"] = without_end(fields["program"])
                    fields["expected_s"] = 8.0 + 2 * pairs * (length_s + SETTLE_S)
                runs.append(
                    Run(
                        group(tracker, pause, interval_s),
                        **fields,
                        tracker=tracker,
                        pause=pause,
                        interval_s=interval_s,
                        kind=BLOCKS,
                        pairs=pairs,
                        block_s=length_s,
                    )
                )
        return [runs]

    def find(self, setting: Setting, observed: Sequence[FinishedRun]) -> Findings:
        points: list[OverheadPoint] = []
        every_doubt: list[str] = []
        for name, (first, *_) in by_group(observed).items():
            blocks = first.result.blocks or ()
            trace = first.trace()
            tracker = trace.hello.tracker
            trace.close()
            points.append(OverheadPoint(name, tracker, first.run.pause, first.run.interval_s, slow_down(blocks)))
            every_doubt += [
                f"{name}: {text}" for text in map(_without_options, doubts(blocks)) if "windows a block" not in text
            ]
        if all(point.slow_down is None for point in points):
            raise UserError("the program reported no steps (such as: step 120), so nothing can be said of its speed")
        points.sort(key=lambda point: (point.tracker, not point.pause, point.interval_s))
        lines = []
        for name in dict.fromkeys(point.way for point in points):
            costs = _costs(point for point in points if point.way == name)
            lines.append(
                ChartLine(
                    name,
                    [interval_s for interval_s, _ in costs],
                    [cost.median * 100 for _, cost in costs],
                    points=True,
                    bars=[_bar(cost) for _, cost in costs],
                )
            )
        chart = Chart(
            "slow-down",
            "Slow-down by interval: median of the pairs and its 95 % interval",
            "window (s)",
            "more time a step (%)",
            lines,
            x_log=True,
            x_ticks=sorted({point.interval_s for point in points}),
        )
        rows = [(point.way, f"{point.interval_s:g} s", point.text) for point in points]
        table = Table(
            "Time a step takes with sampling over without", ("how", "window", "slow-down [95 % interval]"), rows
        )
        numbers = {"points": to_json(points)}
        return Findings(numbers, conclude(points), [chart], [table], every_doubt)


def group(tracker: str, pause: bool, interval_s: float) -> str:
    return f"{tracker}, {'paused' if pause else 'not paused'}, {interval_s:g} s"


def conclude(points: Sequence[OverheadPoint]) -> list[str]:
    """Return the cost of each way of observation by window, and the shortest window that is cheap, in sentences."""
    sentences = []
    for name in dict.fromkeys(point.way for point in points):
        costs = _costs(point for point in points if point.way == name)
        if not costs:
            sentences.append(f"{name}: no steps were counted.")
            continue
        parts = [f"{interval_text(cost, sign=True)} at windows of {interval_s:g} s" for interval_s, cost in costs]
        from_s = cheap_from(costs)
        verdict = (
            f"it is surely below {DEAR:.0%} from {from_s:g} s on"
            if from_s is not None
            else f"not even at {costs[-1][0]:g} s is it surely below {DEAR:.0%}"
        )
        sentences.append(f"{name}: a step takes longer by {', '.join(parts)}; {verdict}.")
        unproven = [interval_s for interval_s, cost in costs if cost.low is not None and cost.low <= 0]
        if unproven:
            intervals = ", ".join(f"{interval_s:g} s" for interval_s in unproven)
            sentences.append(f"{name}: at {intervals} it cannot be told from nothing.")
    return sentences


def _costs(points: Iterable[OverheadPoint]) -> list[tuple[float, MedianInterval]]:
    """Return (length of a window in s, slow-down) where the slow-down is known."""
    return [(point.interval_s, point.slow_down) for point in points if point.slow_down is not None]


def _bar(cost: MedianInterval) -> tuple[float, float]:
    """Return (low, high) of a slow-down, per cent; nan where there is no interval."""
    if cost.low is None or cost.high is None:
        return math.nan, math.nan
    return cost.low * 100, cost.high * 100


def cheap_from(costs: Sequence[tuple[float, MedianInterval]]) -> float | None:
    """Return the shortest interval from which on the upper bound of every slow-down is small, or None.

    Args:
        costs: (length of a window in s, slow-down).
    """
    shortest_s = None
    for interval_s, cost in sorted(costs, key=lambda each: -each[0]):
        if cost.high is None or cost.high > DEAR:
            break
        shortest_s = interval_s
    return shortest_s


def _without_options(text: str) -> str:
    """Return a doubt without the words of ``memtui calibrate``'s command line."""
    return re.sub(r" \(--[a-z]+( \d+)?\)", "", text)
