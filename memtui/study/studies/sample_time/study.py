"""``sample-time``: how the working set depends on the window, measured and derived from finer windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from memtui.analysis.reuse_cdf import Cdf, apart, cdf
from memtui.analysis.statistics import median
from memtui.core.json_fields import to_json
from memtui.core.units import percent, size
from memtui.reports.charts.model import Chart, ChartLine, Findings, Table
from memtui.study.charts import MIB, reuse_lines, wss_over_run
from memtui.study.plan import RECORD, Run
from memtui.study.recorded_run import CUT, Trace
from memtui.study.studies.base import (
    FinishedRun,
    Setting,
    advice_text,
    by_group,
    mean,
    of_threads,
    require_pages,
    thread_counts,
    training,
)
from memtui.study.studies.sample_time.alternating import conclude_turns, turn_points, turn_table, turns

FINEST_S = 0.1  # all others are multiples of it
INTERVALS_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
QUICK_S = (0.2, 0.5, 1.0, 2.0)
REPEATS = 3
WINDOWS = 4  # of the longest interval, in a quick run
SAME_SPEED = 0.1  # relative difference in steps a second of two runs: a larger one is reported
LEAST_R2 = 0.5  # of a fit that is called a fit


@dataclass(frozen=True, slots=True)
class IntervalPoint:
    """The numbers of one interval, measured and derived from the finest windows; medians over the repeats.

    Attributes:
        interval_s: length of a window.
        steps_per_running_s: steps in a second in which the program was not paused.
        derived_steps_per_running_s: the same in the run with the finest windows.
        wss_bytes: measured working set, mean over the windows of training.
        derived_wss_bytes: derived working set.
        error: relative difference of the measured to the derived value.
        curves_apart: largest distance of the two reuse curves.
        windows: number of measured windows, in all repeats.
        derived_windows: number of derived windows.
    """

    interval_s: float
    steps_per_running_s: float | None
    derived_steps_per_running_s: float | None
    wss_bytes: float | None
    derived_wss_bytes: float | None
    error: float | None
    curves_apart: float | None
    windows: int
    derived_windows: int


@dataclass(frozen=True, slots=True)
class Shape:
    """Coefficients of determination (R²) of WSS over the interval: of a straight line, and over its logarithm."""

    linear_r2: float
    logarithmic_r2: float


class SampleTime:
    name = "sample-time"
    title = "How does the working set depend on the length of a window?"
    original = (
        "MemSnoop's published notebook, batch 128, mean WSS on one CPU: 99, 113, 118, 130, 151 and 192 MiB at 0.2, "
        '0.5, 1, 2, 4 and 8 s ("linear"); with 12 threads 385, 560, 676, 780, 873 and 966 MiB ("logarithmic"). '
        "Figures were read from the plots.",
        "The knee of the reuse curve moves right and its plateau falls with longer windows (fraction at 250 MiB on one "
        "CPU: .97 .95 .91 .83 .72 .55).",
    )
    method = (
        "The network is trained once for each interval and once with windows of 0.1 s. The union of k neighbours of "
        "these is what a window of k times the length would have seen, so the same curve is derived from one run. "
        "Measured and derived come from different runs, which differ in speed and in where memory lies, too.",
        "The error of the method is therefore taken within one run, whose windows are of 0.1 s and longer in turn, in "
        "blocks that come in pairs in random order: the mean size of the longer windows over that of the unions in "
        "the other block of the pair, median over pairs with its 95 % interval (binomial order statistics). The "
        "window in which the length changed is in no block.",
        "There is a part of it that is not chance. A window reports pages that are still there when it ends. What a "
        "program touches and gives back before (munmap, and malloc with large pieces) a long window misses, and the "
        "short ones in it see more of it: then their union is larger. It is tried with a malloc that keeps "
        "everything, too (glibc, MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ of 4 GB).",
        "Compared are windows between the first and the last step, of the process with most pages.",
    )

    def runs(self, setting: Setting) -> list[list[Run]]:
        by_repeat = []
        intervals_s = QUICK_S if setting.quick else INTERVALS_S
        for repeat in range(1 if setting.quick else REPEATS):
            runs = []
            for threads in thread_counts(setting):
                for interval_s in (FINEST_S, *intervals_s):
                    fields = training(
                        setting, setting.seed + repeat, threads=threads, quick_s=WINDOWS * intervals_s[-1]
                    )
                    runs.append(Run(group(interval_s, threads), **fields, repeat=repeat, interval_s=interval_s))
                if not repeat:
                    runs += turns(setting, threads, FINEST_S)
            by_repeat.append(runs)
        return by_repeat

    def find(self, setting: Setting, observed: Sequence[FinishedRun]) -> Findings:
        groups = by_group(observed)
        intervals_s = sorted({item.run.interval_s for item in observed if item.run.kind == RECORD} - {FINEST_S})
        in_turn = {threads: turn_points(observed, threads) for threads in thread_counts(setting)}
        numbers: dict[str, Any] = {"finest_s": FINEST_S, "threads": {}}
        charts: list[Chart] = []
        conclusion, doubts = [], []
        table: list[tuple[str, ...]] = []
        for threads in thread_counts(setting):
            with _Traces(groups, threads, (FINEST_S, *intervals_s)) as traces:
                points = [_point(traces, interval_s) for interval_s in intervals_s]
                numbers["threads"][str(threads)] = {
                    "points": to_json(points),
                    "shape": to_json(shape(points)),
                    "in_turn": to_json(in_turn[threads]),
                }
                charts += _charts(traces, points, threads)
                conclusion += conclude(points, threads) + conclude_turns(in_turn[threads], threads)
                two = [(s, traces.first(s).reuse(training=True)) for s in intervals_s[:2]]
                if len(two) == 2:
                    text, _ = advice_text(two[0], two[1])
                    conclusion.append(f"With {of_threads(threads)}, {text}.")
                doubts += [f"{of_threads(threads)}: {text}" for text in traces.doubts()]
            table += [(of_threads(threads), *row) for row in map(_row, points)]
        heads = ("", "window", "WSS measured", "WSS derived", "measured over derived", "curves apart", "windows")
        tables = [turn_table(in_turn), Table("Mean WSS by length of the window, in runs of their own", heads, table)]
        return Findings(numbers, conclusion, charts, tables, doubts)


class _Traces:
    """The traces of one number of threads, by interval and repeat; closed at the end."""

    def __init__(self, groups: Mapping[str, Sequence[FinishedRun]], threads: int, intervals_s: Sequence[float]) -> None:
        self.by_interval = {s: [item.trace() for item in groups[group(s, threads)]] for s in intervals_s}
        for trace in self.all():
            require_pages(trace)

    def all(self) -> list[Trace]:
        return [trace for traces in self.by_interval.values() for trace in traces]

    def first(self, interval_s: float) -> Trace:
        return self.by_interval[interval_s][0]

    def doubts(self) -> list[str]:
        return [f"{trace.interval_s:g} s: {text}" for trace in self.all() for text in trace.doubts()]

    def __enter__(self) -> _Traces:
        return self

    def __exit__(self, *_: object) -> None:
        for trace in self.all():
            trace.close()


def group(interval_s: float, threads: int) -> str:
    return f"{interval_s:g} s, {of_threads(threads)}"


def _point(traces: _Traces, interval_s: float) -> IntervalPoint:
    """Return the measured and derived numbers of one interval."""
    count = round(interval_s / FINEST_S)
    measured = [trace.merged(1) for trace in traces.by_interval[interval_s]]
    derived = [trace.merged(count) for trace in traces.by_interval[FINEST_S]]
    sizes = [[mean([pages.size_bytes for pages in windows]) for windows in runs] for runs in (measured, derived)]
    of_measured, of_derived = (median(values) for values in sizes)
    fine, coarse = (
        median([trace.steps_per_running_s() for trace in traces.by_interval[s]]) for s in (FINEST_S, interval_s)
    )
    return IntervalPoint(
        interval_s=interval_s,
        steps_per_running_s=coarse,
        derived_steps_per_running_s=fine,
        wss_bytes=of_measured,
        derived_wss_bytes=of_derived,
        error=error(of_measured, of_derived),
        curves_apart=apart(
            traces.first(interval_s).reuse(training=True), traces.first(FINEST_S).reuse(training=True, count=count)
        ),
        windows=sum(map(len, measured)),
        derived_windows=sum(map(len, derived)),
    )


def error(measured: float | None, derived: float | None) -> float | None:
    """Return the relative difference of the measured to the derived value; None where one of them is unknown."""
    if measured is None or not derived:
        return None
    return measured / derived - 1


def shape(points: Sequence[IntervalPoint]) -> Shape | None:
    """Return how well a straight line fits WSS over the interval, and over its logarithm.

    Return None with fewer than three points, or when all are equal: everything fits then.
    """
    measured = [(point.interval_s, point.wss_bytes) for point in points if point.wss_bytes is not None]
    if len(measured) < 3:
        return None
    seconds, sizes = (np.array(values, float) for values in zip(*measured, strict=True))
    whole = float(((sizes - sizes.mean()) ** 2).sum())
    if not whole:
        return None

    def fit(x: np.ndarray) -> float:
        rest = sizes - np.polyval(np.polyfit(x, sizes, 1), x)
        return 1 - float((rest**2).sum()) / whole

    return Shape(fit(seconds), fit(np.log(seconds)))


def conclude(points: Sequence[IntervalPoint], threads: int) -> list[str]:
    """Return the conclusions from the points of one number of threads, in sentences."""
    who = f"With {of_threads(threads)}"
    measured = [point for point in points if point.wss_bytes is not None]
    sizes = [(point.interval_s, point.wss_bytes) for point in points if point.wss_bytes is not None]
    if len(sizes) < 2:
        return [f"{who}, fewer than two intervals have whole windows of training: nothing can be said."]
    (first_s, first_bytes), (last_s, last_bytes) = sizes[0], sizes[-1]
    times = last_bytes / first_bytes
    sentences = [
        f"{who}, the mean WSS goes from {size(first_bytes)} at {first_s:g} s to {size(last_bytes)} at {last_s:g} s, "
        f"{times:.2f} times as much: "
        + ("it grows with the window." if times > 1.01 else "it does not grow with the window.")
    ]
    fit = shape(measured)
    if fit is not None:
        best = max(fit.linear_r2, fit.logarithmic_r2)
        better = "a straight line fits" if fit.linear_r2 == best else "a logarithm fits"
        fit_text = f"{better} better" if best >= LEAST_R2 else "neither a straight line nor a logarithm fits"
        sentences.append(
            f"{who}, {fit_text} (R² {fit.linear_r2:.2f} linear, {fit.logarithmic_r2:.2f} logarithmic, "
            f"of {len(measured)} points)."
        )
    errors = [(abs(point.error), point) for point in measured if point.error is not None]
    if errors:
        worst, point = max(errors, key=lambda each: each[0])
        sentences.append(
            f"{who}, WSS measured in a run of its own and derived from the fine run differ by at most "
            f"{percent(worst)} (at {point.interval_s:g} s, {point.windows} windows): two runs of the program, so "
            f"this is not the method's error alone{_of_speed(measured)}."
        )
    return sentences


def _of_speed(points: Sequence[IntervalPoint]) -> str:
    """Return a clause when runs had different speeds: then their windows differ, by any method; "" otherwise."""
    speeds = [(point.steps_per_running_s, point.derived_steps_per_running_s, point.interval_s) for point in points]
    apart_by = [(abs(coarse / fine - 1), seconds) for coarse, fine, seconds in speeds if coarse and fine]
    if not apart_by or max(apart_by)[0] <= SAME_SPEED:
        return ""
    most, seconds = max(apart_by)
    return (
        f". The program itself was up to {percent(most)} faster or slower than in the fine run (at {seconds:g} s, "
        "pauses not counted)"
    )


def _row(point: IntervalPoint) -> tuple[str, ...]:
    return (
        f"{point.interval_s:g} s",
        size(point.wss_bytes),
        size(point.derived_wss_bytes),
        "n/a" if point.error is None else f"{point.error * 100:+.1f} %",
        "n/a" if point.curves_apart is None else f"{point.curves_apart:.2f}",
        str(point.windows),
    )


def _charts(traces: _Traces, points: Sequence[IntervalPoint], threads: int) -> list[Chart]:
    who, name = of_threads(threads), f"{threads}-thread"
    by_name = {f"{s:g} s": traces.first(s) for s in traces.by_interval if s != FINEST_S}
    x = [point.interval_s for point in points]
    measured, derived = [point.wss_bytes for point in points], [point.derived_wss_bytes for point in points]
    lines = [
        ChartLine(label, x, [np.nan if wss is None else wss / MIB for wss in sizes], points=True)
        for label, sizes in (("measured", measured), (f"derived from {FINEST_S:g} s", derived))
    ]
    curves = {label: cdf(trace.reuse(training=True)) for label, trace in by_name.items()}
    curves_by_label: dict[str, Cdf] = {label: curve for label, curve in curves.items() if curve is not None}
    panels = f"The same in panels, without the first {CUT:.0%}, {who}"
    charts = [
        Chart(f"mean-{name}", f"Mean WSS by window, {who}", "window (s)", "WSS (MiB)", lines, from_zero=True),
        wss_over_run(f"wss-{name}", f"WSS for windows of several lengths, {who}", by_name),
        wss_over_run(f"panels-{name}", panels, by_name, stacked=True, cut=CUT),
    ]
    if curves_by_label:
        charts.append(
            reuse_lines(f"reuse-{name}", f"Reuse distances by window (in the legend), {who}", curves_by_label)
        )
    return charts
