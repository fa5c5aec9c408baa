"""``overhead``: how much slower training gets by being watched, by interval, tracker and pause."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from memtui.analysis.slowdown import Block, doubts, slow_down
from memtui.core.errors import UserError
from memtui.reports.charts.model import Chart, ChartLine, Findings, Table
from memtui.study.plan import BLOCKS, Run
from memtui.study.studies.base import (
    Observed,
    Setting,
    by_group,
    interval_words,
    plain_interval,
    training,
    without_end,
)

WAYS = (("auto", True), ("auto", False), ("referenced", True))
INTERVALS_S = (0.1, 0.2, 0.5, 1.0, 2.0)
QUICK_S = (0.2, 0.5)
BATCH = 32  # small, so that blocks have many steps
SETTLE_S = 1.0  # between blocks; see ``memtui.study.calibration``
DEAR = 0.05  # more than that is no longer called cheap


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

    def find(self, setting: Setting, observed: Sequence[Observed]) -> Findings:
        points: list[dict[str, Any]] = []
        said: list[str] = []
        for name, (one, *_) in by_group(observed).items():
            blocks = [Block(**block) for block in one.told["blocks"]]
            cost = slow_down(blocks)
            trace = one.trace()
            tracker = trace.hello.tracker
            trace.close()
            points.append(
                {
                    "group": name,
                    "tracker": tracker,
                    "pause": one.run.pause,
                    "interval_s": one.run.interval_s,
                    "slow_down": plain_interval(cost),
                    "words": interval_words(cost, sign=True),
                }
            )
            said += [
                f"{name}: {text}" for text in map(_without_options, doubts(blocks)) if "windows a block" not in text
            ]
        if not any(point["slow_down"] for point in points):
            raise UserError("the program told of no steps (such as: step 120), so nothing can be said of its speed")
        points.sort(key=lambda point: (point["tracker"], not point["pause"], point["interval_s"]))
        lines = []
        for name in dict.fromkeys(_way(point) for point in points):
            mine = [p for p in points if _way(p) == name and p["slow_down"]]
            lines.append(
                ChartLine(
                    name,
                    [p["interval_s"] for p in mine],
                    [p["slow_down"]["median"] * 100 for p in mine],
                    points=True,
                    bars=_bars(mine),
                )
            )
        chart = Chart(
            "slow-down",
            "Slow-down by interval: median of the pairs and its 95 % interval",
            "window (s)",
            "more time a step (%)",
            lines,
            x_log=True,
            x_ticks=sorted({p["interval_s"] for p in points}),
        )
        rows = [(_way(p), f"{p['interval_s']:g} s", p["words"]) for p in points]
        table = Table(
            "Time a step takes with sampling over without", ("how", "window", "slow-down [95 % interval]"), rows
        )
        return Findings({"points": points}, conclude(points), [chart], [table], said)


def group(tracker: str, pause: bool, interval_s: float) -> str:
    return f"{tracker}, {'paused' if pause else 'not paused'}, {interval_s:g} s"


def conclude(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each way of watching, what the shortest window costs, and from which one on it is cheap."""
    found = []
    for name in dict.fromkeys(_way(point) for point in points):
        mine = [p for p in points if _way(p) == name and p["slow_down"]]
        if not mine:
            found.append(f"{name}: no steps were counted.")
            continue
        parts = [f"{p['words']} at windows of {p['interval_s']:g} s" for p in mine]
        from_s = cheap_from(mine)
        verdict = (
            f"it is surely below {DEAR:.0%} from {from_s:g} s on"
            if from_s is not None
            else f"not even at {mine[-1]['interval_s']:g} s is it surely below {DEAR:.0%}"
        )
        found.append(f"{name}: a step takes longer by {', '.join(parts)}; {verdict}.")
        chance = [p for p in mine if p["slow_down"]["low"] is not None and p["slow_down"]["low"] <= 0]
        if chance:
            which = ", ".join(f"{point['interval_s']:g} s" for point in chance)
            found.append(f"{name}: at {which} it cannot be told from nothing.")
    return found


def _bars(points: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """(low, high) of each slow-down, per cent; nan where there is no interval."""
    bounds = [(p["slow_down"]["low"], p["slow_down"]["high"]) for p in points]
    return [(math.nan, math.nan) if None in pair else (pair[0] * 100, pair[1] * 100) for pair in bounds]


def _way(point: Mapping[str, Any]) -> str:
    return f"{point['tracker']}, {'paused' if point['pause'] else 'not paused'}"


def cheap_from(points: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the shortest interval from which on the upper end of every slow-down's interval is small.

    Return None without one.
    """
    found = None
    for point in sorted(points, key=lambda point: -point["interval_s"]):
        high = point["slow_down"]["high"]
        if high is None or high > DEAR:
            break
        found = point["interval_s"]
    return found


def _without_options(text: str) -> str:
    """Return a doubt without the words of ``memtui calibrate``'s command line."""
    return re.sub(r" \(--[a-z]+( \d+)?\)", "", text)
