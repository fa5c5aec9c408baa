"""``batch-size``: working set and reuse by the number of images in a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memtui.analysis.reuse_cdf import cdf, quantiles
from memtui.analysis.statistics import median
from memtui.core.errors import UserError
from memtui.core.json_fields import to_json
from memtui.core.units import size
from memtui.reports.charts.model import Chart, ChartLine, Findings, Table
from memtui.study.charts import MIB, reuse_lines, wss_lines
from memtui.study.plan import Run
from memtui.study.recorded_run import Trace
from memtui.study.studies.base import FinishedRun, Setting, by_group, mean, require_pages, training

BATCHES = (16, 32, 64, 128, 256, 512, 1024)
INTERVAL_S = 0.5
REPEATS = 3
GROWN = 1.1  # factor: less is not called growth


@dataclass(frozen=True, slots=True)
class BatchPoint:
    """The numbers of one batch size; medians over the repeats.

    Attributes:
        batch: images in a step.
        wss_bytes: mean over the windows of training; as ``rss_bytes``.
        rss_bytes: resident memory.
        median_reuse_bytes: (lower, upper) median of the reuse distances, in the first repeat.
        images_per_s: speed of training.
        windows: number of windows of training, in all repeats.
    """

    batch: int
    wss_bytes: float | None
    rss_bytes: float | None = None
    median_reuse_bytes: tuple[int, int] | None = None
    images_per_s: float | None = None
    windows: int = 0

    @property
    def wss_per_sample_bytes(self) -> float | None:
        return None if self.wss_bytes is None else self.wss_bytes / self.batch

    def to_dict(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "wss_bytes": self.wss_bytes,
            "wss_per_sample_bytes": self.wss_per_sample_bytes,
            "rss_bytes": self.rss_bytes,
            "median_reuse_bytes": self.median_reuse_bytes,
            "images_per_s": self.images_per_s,
            "windows": self.windows,
        }


class BatchSize:
    name = "batch-size"
    title = "How does the working set depend on the batch?"
    original = (
        "MemSnoop's published notebook, windows of 0.5 s, mean WSS read from the plot (levels are those of several "
        "threads): 330, 490, 500, 560, about 480, about 500 and about 580 MiB for batches of 16 to 1024, the last "
        'with spikes to 1360 MiB. Its author wrote: "I\'m not entirely sure what that data means yet".',
    )
    method = (
        "One thread on one CPU, windows of 0.5 s. Memory per sample is the mean WSS of training divided by the "
        "batch, and the slope of WSS over the batch, from the smallest batch to the largest: what one more image "
        "adds.",
    )

    def runs(self, setting: Setting) -> list[list[Run]]:
        if setting.command and not any("{batch}" in word for word in setting.command):
            raise UserError(
                "batch-size needs to set the batch of your program: write {batch} where it goes, as in "
                "memtui study batch-size -- python train.py --batch-size {batch}"
            )
        by_repeat = []
        for repeat in range(1 if setting.quick else REPEATS):
            runs = []
            for batch in BATCHES:
                fields = training(setting, setting.seed + repeat, batch=batch, quick_s=8.0)
                runs.append(Run(group(batch), **fields, repeat=repeat, interval_s=INTERVAL_S))
            by_repeat.append(runs)
        return by_repeat

    def find(self, setting: Setting, observed: Sequence[FinishedRun]) -> Findings:
        groups = by_group(observed)
        traces: dict[int, list[Trace]] = {
            batch: [item.trace() for item in groups[group(batch)]] for batch in BATCHES if group(batch) in groups
        }
        for of_batch in traces.values():
            require_pages(of_batch[0])
        points = [_point(batch, of_batch) for batch, of_batch in traces.items()]
        firsts = {f"batch {batch}": of_batch[0] for batch, of_batch in traces.items()}
        curves = {
            label: curve for label, trace in firsts.items() if (curve := cdf(trace.reuse(training=True))) is not None
        }
        window = f"windows of {INTERVAL_S:g} s"
        charts = [
            Chart(
                "mean",
                f"Mean WSS by batch, {window}",
                "batch (images)",
                "WSS (MiB)",
                [
                    ChartLine(
                        "WSS",
                        [p.batch for p in points],
                        [(p.wss_bytes or float("nan")) / MIB for p in points],
                        points=True,
                    )
                ],
                x_log=True,
                x_ticks=BATCHES,
                from_zero=True,
            ),
            wss_lines("wss", f"WSS by batch, {window}", firsts),
        ]
        if curves:
            charts.append(reuse_lines("reuse", f"Reuse distances by batch, {window}", curves))
        rows = [
            (
                str(p.batch),
                size(p.wss_bytes),
                size(p.wss_per_sample_bytes),
                size(p.rss_bytes),
                "n/a" if p.median_reuse_bytes is None else " to ".join(map(size, p.median_reuse_bytes)),
                "n/a" if p.images_per_s is None else f"{p.images_per_s:.0f}",
            )
            for p in points
        ]
        heads = ("batch", "WSS", "WSS per image", "RSS", "half of touches within", "images/s")
        doubts = [
            f"batch {batch}: {text}"
            for batch, of_batch in traces.items()
            for trace in of_batch
            for text in trace.doubts()
        ]
        for of_batch in traces.values():
            for trace in of_batch:
                trace.close()
        numbers = {
            "interval_s": INTERVAL_S,
            "points": to_json(points),
            "slope_bytes_per_image": slope(points),
        }
        return Findings(numbers, conclude(points), charts, [Table(f"By batch, {window}", heads, rows)], doubts)


def group(batch: int) -> str:
    return f"batch {batch}"


def _point(batch: int, traces: Sequence[Trace]) -> BatchPoint:
    wss = median([mean(trace.wss()) for trace in traces])
    rates = [trace.result.steps_per_s for trace in traces]
    rate = median(rates)
    return BatchPoint(
        batch=batch,
        wss_bytes=wss,
        rss_bytes=median([mean(trace.samples.rss_bytes[trace.training]) for trace in traces]),
        median_reuse_bytes=quantiles(traces[0].reuse(training=True))[0.5],
        images_per_s=None if rate is None else rate * batch,
        windows=sum(int(trace.training.sum()) for trace in traces),
    )


def _sizes(points: Sequence[BatchPoint]) -> list[tuple[int, float]]:
    """Return (batch, mean WSS in bytes) where the WSS is known."""
    return [(point.batch, point.wss_bytes) for point in points if point.wss_bytes is not None]


def slope(points: Sequence[BatchPoint]) -> float | None:
    """Return the bytes of WSS that one more image adds, from the smallest batch to the largest.

    Return None with fewer than two.
    """
    sizes = _sizes(points)
    if len(sizes) < 2:
        return None
    (first, least), (last, most) = sizes[0], sizes[-1]
    return (most - least) / (last - first)


def conclude(points: Sequence[BatchPoint]) -> list[str]:
    """Return the conclusions from the batches, in sentences."""
    sizes = _sizes(points)
    if len(sizes) < 2:
        return ["Fewer than two batches have whole windows of training: nothing can be said."]
    (first, first_bytes), (last, last_bytes) = sizes[0], sizes[-1]
    times = last_bytes / first_bytes
    if times >= GROWN:
        way = f"grows {times:.2f} times"
    elif times > 1 / GROWN:
        way = f"stays nearly the same ({times:.2f} times)"
    else:
        way = f"falls to {times:.2f} of itself"
    least, least_bytes = min(((batch, wss / batch) for batch, wss in sizes), key=lambda each: each[1])
    return [
        f"From batches of {first} to batches of {last} the WSS at {INTERVAL_S:g} s {way}, from "
        f"{size(first_bytes)} to {size(last_bytes)}, while the batch grows {last / first:.0f} times.",
        f"Per image it is least at batches of {least}: {size(least_bytes)}, against "
        f"{size(first_bytes / first)} at {first}.",
        "A window has room for many small batches and for part of a large one, so this belongs to the window as much "
        "as to the batch.",
    ]
