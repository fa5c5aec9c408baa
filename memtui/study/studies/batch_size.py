"""``batch-size``: working set and reuse by the number of images in a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memtui.analysis.reuse_cdf import cdf, quantiles
from memtui.analysis.statistics import median
from memtui.core.errors import UserError
from memtui.core.units import size
from memtui.reports.charts.model import Chart, ChartLine, Findings, Table
from memtui.study.charts import MIB, reuse_lines, wss_lines
from memtui.study.plan import Run
from memtui.study.recorded_run import Trace
from memtui.study.studies.base import Observed, Setting, by_group, mean, needs_pages, training

BATCHES = (16, 32, 64, 128, 256, 512, 1024)
INTERVAL_S = 0.5
REPEATS = 3
GROWN = 1.1  # times as much: less is not called growth


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
        found = []
        for repeat in range(1 if setting.quick else REPEATS):
            runs = []
            for batch in BATCHES:
                fields = training(setting, setting.seed + repeat, batch=batch, quick_s=8.0)
                runs.append(Run(group(batch), **fields, repeat=repeat, interval_s=INTERVAL_S))
            found.append(runs)
        return found

    def find(self, setting: Setting, observed: Sequence[Observed]) -> Findings:
        groups = by_group(observed)
        traces: dict[int, list[Trace]] = {
            batch: [one.trace() for one in groups[group(batch)]] for batch in BATCHES if group(batch) in groups
        }
        for of_batch in traces.values():
            needs_pages(of_batch[0])
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
                        [p["batch"] for p in points],
                        [(p["wss_bytes"] or float("nan")) / MIB for p in points],
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
                str(p["batch"]),
                size(p["wss_bytes"]),
                size(p["wss_per_sample_bytes"]),
                size(p["rss_bytes"]),
                "n/a" if p["median_reuse_bytes"] is None else " to ".join(map(size, p["median_reuse_bytes"])),
                "n/a" if p["images_per_s"] is None else f"{p['images_per_s']:.0f}",
            )
            for p in points
        ]
        heads = ("batch", "WSS", "WSS per image", "RSS", "half of touches within", "images/s")
        doubts = [
            f"batch {batch}: {text}" for batch, some in traces.items() for trace in some for text in trace.doubts()
        ]
        for some in traces.values():
            for trace in some:
                trace.close()
        numbers = {"interval_s": INTERVAL_S, "points": points, "slope_bytes_per_image": slope(points)}
        return Findings(numbers, conclude(points), charts, [Table(f"By batch, {window}", heads, rows)], doubts)


def group(batch: int) -> str:
    return f"batch {batch}"


def _point(batch: int, traces: Sequence[Trace]) -> dict[str, Any]:
    wss = median([mean(trace.wss()) for trace in traces])
    rates = [trace.told.get("steps_per_s") for trace in traces]
    rate = median(rates)
    return {
        "batch": batch,
        "wss_bytes": wss,
        "wss_per_sample_bytes": None if wss is None else wss / batch,
        "rss_bytes": median([mean(trace.samples.rss_bytes[trace.training]) for trace in traces]),
        "median_reuse_bytes": quantiles(traces[0].reuse(training=True))[0.5],
        "images_per_s": None if rate is None else rate * batch,
        "windows": sum(int(trace.training.sum()) for trace in traces),
    }


def slope(points: Sequence[Mapping[str, Any]]) -> float | None:
    """Bytes of WSS that one more image adds, from the smallest batch to the largest; None with fewer than two."""
    known = [point for point in points if point["wss_bytes"] is not None]
    if len(known) < 2:
        return None
    first, last = known[0], known[-1]
    return (last["wss_bytes"] - first["wss_bytes"]) / (last["batch"] - first["batch"])


def conclude(points: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what the batches say."""
    known = [point for point in points if point["wss_bytes"] is not None]
    if len(known) < 2:
        return ["Fewer than two batches have whole windows of training: nothing can be said."]
    first, last = known[0], known[-1]
    times = last["wss_bytes"] / first["wss_bytes"]
    if times >= GROWN:
        way = f"grows {times:.2f} times"
    elif times > 1 / GROWN:
        way = f"stays nearly the same ({times:.2f} times)"
    else:
        way = f"falls to {times:.2f} of itself"
    found = [
        f"From batches of {first['batch']} to batches of {last['batch']} the WSS at {INTERVAL_S:g} s {way}, from "
        f"{size(first['wss_bytes'])} to {size(last['wss_bytes'])}, while the batch grows "
        f"{last['batch'] / first['batch']:.0f} times."
    ]
    least = min(known, key=lambda point: point["wss_per_sample_bytes"])
    found.append(
        f"Per image it is least at batches of {least['batch']}: {size(least['wss_per_sample_bytes'])}, against "
        f"{size(first['wss_per_sample_bytes'])} at {first['batch']}."
    )
    found.append(
        "A window has room for many small batches and for part of a large one, so this belongs to the window as much "
        "as to the batch."
    )
    return found
