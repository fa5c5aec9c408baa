"""``basic``: the pages that a training accesses, and the part of a container or the interpreter in them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.reuse_cdf import Knee, cdf, knee, quantiles
from memtui.analysis.reuse_histogram import ExactReuse
from memtui.analysis.statistics import MedianInterval, ratio_of_pairs
from memtui.core.json_fields import to_json
from memtui.core.units import duration, percent, size
from memtui.reports.charts.model import Chart, Findings, HeatChart, Table
from memtui.study.charts import REGIONS_NOTE, first_samples, heat, locality, memory_lines, reuse_lines
from memtui.study.plan import CONTAINER, Run
from memtui.study.recorded_run import Trace
from memtui.study.studies.base import (
    START_S,
    FinishedRun,
    Setting,
    advice_text,
    by_group,
    interval_text,
    mean,
    median_of,
    require_pages,
    training,
)
from memtui.study.studies.pass_separation import PartSimilarity, passes

BARE, BOXED, IMPORT, EMPTY, PASSES = "bare", "in a container", "import only", "container only", "passes of a step"
INTERVAL_S, PASSES_S = 0.2, 0.05
PASSES_BATCH = 512
REPEATS = 6  # the smallest number with a 95 % interval
MERGED = (1, 2, 5, 10)  # windows: 0.2, 0.4, 1 and 2 s
IDLE_S = 5.0  # as the published experiment slept after its imports
FIRST_SAMPLES = 20  # the figure of the published notebook
SLEEPS = 0.02  # of a CPU: less is called sleep; the kernel counts in hundredths of a second
NOTICEABLE = 0.05  # a share of the working set; below that a difference is called small


@dataclass(frozen=True, slots=True)
class AsleepNumbers:
    """The working set of a program that only sleeps.

    Attributes:
        asleep_wss_bytes: mean over the windows in which it slept.
        largest_wss_bytes: maximum over all windows.
    """

    asleep_wss_bytes: float | None
    largest_wss_bytes: float


@dataclass(frozen=True, slots=True)
class ReuseNumbers:
    """Reuse distances of a run.

    Attributes:
        touches: number of accesses, one a page and window.
        first_touches: number of them to pages that were not accessed before.
        quantiles_bytes: (lower, upper) distance of a share of the returning accesses, by that share.
        knee: point where the curve bends most.
    """

    touches: int
    first_touches: int
    quantiles_bytes: Mapping[str, tuple[int, int] | None]
    knee: Knee | None

    def to_dict(self) -> dict[str, Any]:
        knee = self.knee
        return {
            "touches": self.touches,
            "first_touches": self.first_touches,
            "quantiles_bytes": dict(self.quantiles_bytes),
            "knee": None if knee is None else asdict(knee) | {"clear": knee.clear},
        }


@dataclass(frozen=True, slots=True)
class BasicNumbers:
    """The numbers of the study.

    Attributes:
        bundled: whether the bundled network was trained.
        wss_bytes: mean over the windows of training, of each repeat, by group.
        rss_bytes: mean over the windows of training, of the first repeat; as ``mapped_bytes``.
        mapped_bytes: size of the address space.
        wss_by_interval_bytes: mean WSS by the length of merged windows in s.
        reuse: reuse distances of the first repeat.
        container_ratio: WSS in a container over WSS outside.
        asleep: numbers of the programs that only sleep, by group.
        passes: similarity of parts of steps; None where no step was divided.
        advice_bytes: (lower, upper) size of a memory that is enough.
    """

    bundled: bool
    wss_bytes: Mapping[str, Sequence[float | None]]
    rss_bytes: float | None
    mapped_bytes: float | None
    wss_by_interval_bytes: Mapping[str, float | None]
    reuse: ReuseNumbers
    container_ratio: MedianInterval | None = None
    asleep: Mapping[str, AsleepNumbers] = field(default_factory=dict)
    passes: PartSimilarity | None = None
    advice_bytes: tuple[float, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "interval_s": INTERVAL_S,
            "bundled": self.bundled,
            "wss_bytes": to_json(self.wss_bytes),
            "rss_bytes": self.rss_bytes,
            "mapped_bytes": self.mapped_bytes,
            "wss_by_interval_bytes": dict(self.wss_by_interval_bytes),
            "reuse": to_json(self.reuse),
            "container_ratio": to_json(self.container_ratio),
            **{group.replace(" ", "_"): to_json(numbers) for group, numbers in self.asleep.items()},
            **({} if self.passes is None else {"passes": to_json(self.passes)}),
            "advice_bytes": to_json(self.advice_bytes),
        }


class Basic:
    name = "basic"
    title = "What does training touch, and what of it is the training's own?"
    original = (
        "MemSnoop's published notebook trained the same layers with Keras on TensorFlow, batch 128, on one CPU, for "
        "two epochs of CIFAR-10, with windows of 0.2 s: mean WSS 98.77 MiB of an RSS of 1000 to 1050 MiB and about "
        "2500 MiB of address space; WSS swings between about 60 and 130 MiB, and is a flat 50 MiB in validation.",
        "Half of the touches came back within about 135 MiB, 95 % within about 150 MiB; the last 2 to 3 % need 740 to "
        '1500 MiB. Container and imports: "pretty insignificant".',
        "Reasons for a difference: another framework (PyTorch, or numpy) with other buffers, another machine, which "
        "gets through more or fewer batches in a window, and a first window that here holds no page that was not "
        "touched.",
    )
    method = (
        "The network is trained on one CPU with batches of 128 and observed with windows of 0.2 s, nothing filtered, "
        "bare and in a container in turn. WSS of a run is the mean over windows between its first and its last step.",
        "Import only loads the framework and sleeps; container only sleeps in the container.",
        f"Passes: batches of {PASSES_BATCH} and windows of 0.05 s, so that a step lasts many windows. Windows one "
        "step apart should touch the same pages, windows half a step apart others, if forward and backward passes "
        "can be told apart.",
        "The two bounds of a reuse distance follow from the unknown order inside a window; the notebook's single value "
        "lies between them.",
    )

    def runs(self, setting: Setting) -> list[list[Run]]:
        by_repeat = []
        for repeat in range(REPEATS):
            fields = training(setting, setting.seed + repeat, quick_s=5.0)
            runs = [Run(BARE, **fields, repeat=repeat, interval_s=INTERVAL_S)]
            if setting.container:
                runs.append(Run(BOXED, **fields, repeat=repeat, interval_s=INTERVAL_S, place=CONTAINER))
            by_repeat.append(runs)
        by_repeat[0] += self._once(setting)
        return by_repeat

    def _once(self, setting: Setting) -> list[Run]:
        fields = training(setting, setting.seed, batch=PASSES_BATCH, quick_s=12.0)
        runs = [Run(PASSES, **(fields | {"limit_s": fields["limit_s"] or 60.0}), interval_s=PASSES_S)]
        if not setting.command:
            imports = "import torch" if setting.network == "cnn" else "import memtui.study.workloads.numpy_network"
            argv = (sys.executable, "-P", "-c", f"{imports}, time; time.sleep({IDLE_S})")
            runs.append(Run(IMPORT, argv, START_S + IDLE_S, interval_s=INTERVAL_S))
        if setting.container:
            asleep = ("sleep", str(IDLE_S if setting.quick else 8.0))
            runs.append(Run(EMPTY, asleep, START_S + IDLE_S, interval_s=INTERVAL_S, place=CONTAINER))
        return runs

    def find(self, setting: Setting, observed: Sequence[FinishedRun]) -> Findings:
        groups = by_group(observed)
        trace = groups[BARE][0].trace()
        require_pages(trace)
        exact = trace.reuse()
        merged = trace.reuse(training=True, count=2)
        wss_bytes = {group: [_wss(item) for item in groups.get(group, [])] for group in (BARE, BOXED)}
        charts = _charts(trace, exact)
        asleep_by_group = {}
        for group in (IMPORT, EMPTY):
            if group in groups:
                other = groups[group][0].trace()
                asleep_by_group[group] = AsleepNumbers(
                    mean(other.samples.wss_bytes[asleep(other)]),
                    float(np.nanmax(other.samples.wss_bytes, initial=0.0)),
                )
                charts.append(memory_lines(other, group, f"{group}: VM, RSS and WSS, windows of {INTERVAL_S:g} s"))
                other.close()
        parts = None
        if PASSES in groups:
            title = f"some steps of {PASSES_BATCH} images, windows of {PASSES_S:g} s"
            with closing(groups[PASSES][0].trace()) as of_passes:
                parts, chart = passes(of_passes, "passes", f"Forward and backward passes: {title}")
            charts += [chart] if chart is not None else []
        text, advised = advice_text((INTERVAL_S, trace.reuse(training=True)), (2 * INTERVAL_S, merged))
        numbers = BasicNumbers(
            bundled=not setting.command,
            wss_bytes=wss_bytes,
            rss_bytes=mean(trace.samples.rss_bytes[trace.training]),
            mapped_bytes=mean(trace.mapped_bytes[trace.training]),
            wss_by_interval_bytes={
                f"{INTERVAL_S * count:g}": mean([pages.size_bytes for pages in trace.merged(count)]) for count in MERGED
            },
            reuse=_reuse_numbers(exact),
            container_ratio=ratio_of_pairs(wss_bytes[BOXED], wss_bytes[BARE]) if BOXED in groups else None,
            asleep=asleep_by_group,
            passes=parts,
            advice_bytes=advised.bytes_ if advised else None,
        )
        doubts = trace.doubts()
        if not trace.by_steps:
            doubts.append("the program reported no steps, so all windows but the first tenth count as training")
        if not setting.container:
            doubts.append("no container could be made here, so nothing is known of what one changes")
        trace.close()
        conclusion = [*conclude(numbers), text[0].upper() + text[1:] + "."]
        return Findings(numbers.to_dict(), conclusion, charts, [_table(numbers)], doubts)


def asleep(trace: Trace) -> NDArray[np.bool_]:
    """Return bool[n]: the windows of the last seconds in which a program that sleeps did nothing.

    The durations of its imports and of the end of its interpreter are unknown, so CPU time separates them from sleep.
    """
    windows = (trace.seconds[-1] - trace.seconds < IDLE_S) & (trace.cpu_shares < SLEEPS)
    windows[-1:] = False  # accesses after it are in no window
    return windows


def conclude(numbers: BasicNumbers) -> list[str]:
    """Return the conclusions from the numbers, in sentences."""
    wss = median_of(numbers.wss_bytes[BARE])
    if wss is None:
        return ["No window lies between the first and the last step, so nothing can be said: longer runs help."]
    rss = numbers.rss_bytes
    sentences = [
        f"In a window of {INTERVAL_S:g} s training touches {size(wss.median)}"
        + (f", {percent(wss.median / rss)} of the {size(rss)} that are resident" if rss else "")
        + "."
        + (" The published figure is 98.77 MiB." if numbers.bundled else "")
    ]
    if numbers.container_ratio is not None:
        sentences.append(_of_container(numbers.container_ratio))
    for group, what in ((IMPORT, "Once imported and asleep, the framework"), (EMPTY, "The container by itself")):
        if group in numbers.asleep and (asleep_bytes := numbers.asleep[group].asleep_wss_bytes) is not None:
            share = asleep_bytes / wss.median if wss.median else 0.0
            verdict = "small beside the training" if share < NOTICEABLE else "no small part of it"
            sentences.append(
                f"{what} touches {size(asleep_bytes)} a window, {percent(share)} of what training does: {verdict}."
            )
    grown = [(interval, value) for interval, value in numbers.wss_by_interval_bytes.items() if value is not None]
    if len(grown) > 1:
        (first, least), (last, most) = grown[0], grown[-1]
        way = "grows" if most > least * 1.01 else "hardly grows"
        sentences.append(
            f"The working set {way} with the window: {size(least)} at {first} s, {size(most)} at {last} s."
        )
    if (bend := numbers.reuse.knee) is not None:
        sentences.append(
            f"At windows of {INTERVAL_S:g} s the reuse curve "
            + (
                f"has a clear knee: a memory of {size(bend.size_bytes)} certainly holds {percent(bend.share)} "
                "of all touches."
                if bend.clear
                else f"has no clear knee (it bends by {bend.bend:.2f} of 1)."
            )
        )
    if numbers.passes is not None:
        sentences.append(numbers.passes.sentence())
    return sentences


def _of_container(pairs: MedianInterval) -> str:
    low, high = (None if bound is None else bound - 1 for bound in (pairs.low, pairs.high))
    change = MedianInterval(pairs.median - 1, low, high, pairs.confidence, pairs.count)
    sentence = f"In a container the working set differs from that outside by {interval_text(change, sign=True)}"
    if change.low is None or change.high is None:
        return f"{sentence}: too few pairs to say whether that is more than chance."
    if change.low <= 0 <= change.high:
        return f"{sentence}: no difference can be told from chance."
    kind = "a small one" if abs(change.median) < NOTICEABLE else "not a small one"
    return f"{sentence}: a difference, and {kind}."


def _charts(trace: Trace, exact: ExactReuse) -> list[Chart | HeatChart]:
    window = f"windows of {INTERVAL_S:g} s"
    charts: list[Chart | HeatChart] = [
        memory_lines(trace, "memory", f"VM, RSS and WSS, {window}"),
        memory_lines(trace, "wss", f"WSS alone, {window}", only_wss=True),
        first_samples(trace, "first-samples", f"The first {FIRST_SAMPLES} samples, {window}", FIRST_SAMPLES),
    ]
    curve = cdf(exact)
    if curve is not None:
        charts += [
            reuse_lines("reuse", f"Reuse distances, {window}", {"": curve}),
            reuse_lines("reuse-zoom", f"Reuse distances up to 200 MiB, {window}", {"": curve}, limit_mib=200.0),
            locality("locality", f"Locality: the same, transposed, {window}", curve),
        ]
    heap = trace.picture(lambda row: row.name == "[heap]")
    charts += [heat("heat-heap", f"The heap over one run, {window}", heap)] if heap is not None else []
    if (whole := trace.picture()) is not None:
        title = f"The whole process over one run, {window}"
        charts.append(heat("heat-process", title, whole, note=REGIONS_NOTE, regions=trace.regions(whole)))
    return charts


def _reuse_numbers(exact: ExactReuse) -> ReuseNumbers:
    curve = cdf(exact)
    by_share = {f"{share:g}": bounds for share, bounds in quantiles(exact).items()}
    return ReuseNumbers(exact.touches, exact.first_touches, by_share, None if curve is None else knee(curve))


def _wss(item: FinishedRun) -> float | None:
    trace = item.trace()
    try:
        return mean(trace.wss())
    finally:
        trace.close()


def _table(numbers: BasicNumbers) -> Table:
    wss = numbers.wss_bytes
    rows = [(f"WSS, {group}", *(size(value) for value in wss[group])) for group in wss if wss[group]]
    widest = max((len(row) for row in rows), default=1)
    heads = ("", *(f"repeat {number}" for number in range(1, widest)))
    return Table(f"Mean WSS of each run, windows of {duration(INTERVAL_S)}", heads, rows)
