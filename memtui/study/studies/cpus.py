"""``cpus``: working set, reuse and speed by the number of cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from memtui.analysis.reuse_cdf import cdf, quantiles
from memtui.analysis.statistics import median
from memtui.core.errors import UserError
from memtui.core.json_fields import to_json
from memtui.core.units import size
from memtui.reports.charts.model import Chart, ChartLine, Findings, Table
from memtui.study.charts import MIB, reuse_lines, wss_lines
from memtui.study.plan import Run
from memtui.study.recorded_run import Trace
from memtui.study.studies.base import FinishedRun, Setting, by_group, mean, of_threads, require_pages, training

INTERVAL_S = 0.5
REPEATS = 3
ORIGINAL_MOST = 12  # threads of the published experiment
PAYS = 1.1  # speed-up: less is not worth more cores


@dataclass(frozen=True, slots=True)
class CpusPoint:
    """The numbers of one number of threads; medians over the repeats.

    Attributes:
        threads: number of threads.
        wss_bytes: mean over the windows of training.
        steps_per_s: speed of training.
        run_s: length of a run.
        median_reuse_bytes: (lower, upper) median of the reuse distances, in the first repeat.
        speed_up: speed over that with the first number of threads; None where steps were not seen.
    """

    threads: int
    wss_bytes: float | None
    steps_per_s: float | None
    run_s: float | None
    median_reuse_bytes: tuple[int, int] | None
    speed_up: float | None = None


class Cpus:
    name = "cpus"
    title = "What do more cores cost in memory, and what do they give?"
    original = (
        "MemSnoop's published notebook, windows of 0.5 s, batch 128: mean WSS 113, 179, 277, 375 and 569 MiB with 1, "
        "2, 4, 6 and 12 threads, speed-up 1, 1.58, 2.37, 2.73 and 2.76: five times the memory for less than three "
        "times the speed.",
        "Half of the touches within 143, 181, 289, 396 and 646 MiB.",
    )
    method = (
        "The same training with 1, 2, 4 ... threads, each on as many CPUs, windows of 0.5 s. Speed is steps a second "
        "between the first and the last step that were seen, while it is observed.",
    )

    def runs(self, setting: Setting) -> list[list[Run]]:
        if setting.cpus < 2:
            raise UserError("cpus compares numbers of CPUs, and this machine, or --cpus, has one")
        by_repeat = []
        for repeat in range(2 if setting.quick else REPEATS):
            runs = []
            for threads in counts(setting.cpus):
                fields = training(setting, setting.seed + repeat, threads=threads, quick_s=10.0)
                runs.append(Run(of_threads(threads), **fields, repeat=repeat, interval_s=INTERVAL_S))
            by_repeat.append(runs)
        return by_repeat

    def find(self, setting: Setting, observed: Sequence[FinishedRun]) -> Findings:
        groups = by_group(observed)
        traces: dict[int, list[Trace]] = {
            threads: [item.trace() for item in groups[of_threads(threads)]]
            for threads in counts(setting.cpus)
            if of_threads(threads) in groups
        }
        for of_count in traces.values():
            require_pages(of_count[0])
        points = [_point(threads, of_count) for threads, of_count in traces.items()]
        points = [replace(point, speed_up=speed_up(points[0], point)) for point in points]
        window = f"windows of {INTERVAL_S:g} s"
        firsts = {of_threads(threads): of_count[0] for threads, of_count in traces.items()}
        curves = {
            name: curve for name, trace in firsts.items() if (curve := cdf(trace.reuse(training=True))) is not None
        }
        x = [point.threads for point in points]
        charts = [
            wss_lines("wss", f"WSS by threads, {window}", firsts),
            Chart(
                "mean",
                f"Mean WSS by threads, {window}",
                "threads",
                "WSS (MiB)",
                [ChartLine("WSS", x, [(p.wss_bytes or float("nan")) / MIB for p in points], points=True)],
                x_ticks=x,
                from_zero=True,
            ),
            Chart(
                "speed-up",
                "Speed-up by threads",
                "threads",
                "times as fast as one",
                [
                    ChartLine("speed-up", x, [p.speed_up or float("nan") for p in points], points=True),
                    ChartLine("ideal", x, x),
                ],
                x_ticks=x,
                from_zero=True,
            ),
        ]
        if curves:
            charts += [
                reuse_lines("reuse", f"Reuse distances by threads, {window}", curves),
                reuse_lines("reuse-zoom", f"Reuse distances up to 1000 MiB, {window}", curves, limit_mib=1000.0),
            ]
        rows = [
            (
                str(p.threads),
                size(p.wss_bytes),
                "n/a" if p.steps_per_s is None else f"{p.steps_per_s:.2f}",
                "n/a" if p.speed_up is None else f"{p.speed_up:.2f}",
                "n/a" if p.median_reuse_bytes is None else " to ".join(map(size, p.median_reuse_bytes)),
                "n/a" if p.run_s is None else f"{p.run_s:.1f} s",
            )
            for p in points
        ]
        heads = ("threads", "WSS", "steps/s", "speed-up", "half of touches within", "run time")
        doubts = [
            f"{of_threads(n)}: {text}"
            for n, of_count in traces.items()
            for trace in of_count
            for text in trace.doubts()
        ]
        doubts.append("sampler and recorder run on the same CPUs: with all of them busy, they take from the program")
        for of_count in traces.values():
            for trace in of_count:
                trace.close()
        numbers = {"interval_s": INTERVAL_S, "points": to_json(points)}
        return Findings(numbers, conclude(points), charts, [Table(f"By threads, {window}", heads, rows)], doubts)


def counts(most: int) -> list[int]:
    """Return 1, 2, 4 ... and ``most``."""
    powers = [1 << power for power in range(most.bit_length()) if 1 << power <= most]
    return powers if powers[-1] == most else [*powers, most]


def _point(threads: int, traces: Sequence[Trace]) -> CpusPoint:
    return CpusPoint(
        threads=threads,
        wss_bytes=median([mean(trace.wss()) for trace in traces]),
        steps_per_s=median([trace.result.steps_per_s for trace in traces]),
        run_s=median([trace.result.seconds for trace in traces]),
        median_reuse_bytes=quantiles(traces[0].reuse(training=True))[0.5],
    )


def speed_up(first: CpusPoint, other: CpusPoint) -> float | None:
    """Return the speed of the other over that of the first; None where steps were not seen."""
    if not first.steps_per_s or not other.steps_per_s:
        return None
    return other.steps_per_s / first.steps_per_s


def conclude(points: Sequence[CpusPoint]) -> list[str]:
    """Return the conclusions from the points, and the limits of this machine, in sentences."""
    first, last = points[0], points[-1]
    sentences = []
    if first.wss_bytes and last.wss_bytes:
        sentences.append(
            f"From 1 to {of_threads(last.threads)} the mean WSS at {INTERVAL_S:g} s goes from "
            f"{size(first.wss_bytes)} to {size(last.wss_bytes)}, {last.wss_bytes / first.wss_bytes:.2f} "
            "times."
        )
    if last.speed_up is not None:
        pays = "more cores pay" if last.speed_up >= PAYS else "more cores do not pay"
        sentences.append(f"{of_threads(last.threads)} are {last.speed_up:.2f} times as fast as one: {pays}.")
    else:
        sentences.append("The program reported no steps, so nothing is known of its speed.")
    if last.threads < ORIGINAL_MOST:
        sentences.append(
            f"This machine was asked for {last.threads} CPUs; what happens up to {ORIGINAL_MOST}, where the "
            "published experiment found that more cores gain nothing, it cannot show."
        )
    return sentences
