"""``network``: what a deep network touches beside what the small one does, with the same images in a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from typing import Any

from memtui.analysis.reuse_cdf import Knee, cdf, knee, quantiles
from memtui.analysis.statistics import MedianInterval, median, ratio_of_pairs
from memtui.core.errors import UserError
from memtui.core.json_fields import to_json
from memtui.core.units import duration, percent, size
from memtui.reports.charts.model import Chart, Findings, HeatChart, Table
from memtui.study.charts import REGIONS_NOTE, heat, memory_lines, reuse_lines, wss_over_run
from memtui.study.plan import Run
from memtui.study.recorded_run import Trace
from memtui.study.studies.base import (
    START_S,
    FinishedRun,
    Setting,
    by_group,
    interval_text,
    mean,
    require_pages,
    training,
    without_end,
)
from memtui.study.studies.pass_separation import PartSimilarity, passes

SMALL, DEEP, OWN = "CNN", "ResNet-50", "Your program"
BATCH = 128
INTERVAL_S = 0.1  # as the published heat map of ResNet-50
REPEATS = 6  # the smallest number with a 95 % interval
LENGTH_S, QUICK_S = 60.0, 20.0  # from the first step on
TORCH = "cnn"  # the network of a setting with PyTorch


@dataclass(frozen=True, slots=True)
class NetworkNumbers:
    """The numbers of one network; of the first repeat, but for ``wss_bytes``.

    Attributes:
        wss_bytes: mean over the windows of training, of each repeat.
        rss_bytes: mean over the windows of training.
        step_s: mean time of a step; None with fewer than two steps.
        step_windows: number of windows in that time; None as ``step_s``.
        step_bytes: mean size of the union of so many windows; None as ``step_s``, or without so many.
        median_reuse_bytes: (lower, upper) median of the reuse distances.
        knee: point where the reuse curve bends most.
        passes: similarity of parts of steps.
    """

    wss_bytes: Sequence[float | None]
    rss_bytes: float | None
    step_s: float | None
    step_windows: int | None
    step_bytes: float | None
    median_reuse_bytes: tuple[int, int] | None
    knee: Knee | None
    passes: PartSimilarity

    def to_dict(self) -> dict[str, Any]:
        bend = None if self.knee is None else asdict(self.knee) | {"clear": self.knee.clear}
        return {
            "wss_bytes": to_json(self.wss_bytes),
            "rss_bytes": self.rss_bytes,
            "step_s": self.step_s,
            "step_windows": self.step_windows,
            "step_bytes": self.step_bytes,
            "median_reuse_bytes": to_json(self.median_reuse_bytes),
            "knee": bend,
            "passes": to_json(self.passes),
        }


class Networks:
    name = "network"
    title = "What does a deep network touch, beside the small one?"
    original = (
        "A later notebook of MemSnoop trained ResNet-50 on ImageNet with Keras on TensorFlow, on one CPU, with windows "
        "of 0.1 s. It shows a heat map in which forward and backward passes are visible, and no number.",
        "Reasons for a difference: images of 32 x 32 here, so that a step takes seconds and not minutes; the weights, "
        "their gradients and RMSprop's squares are as large as with images of any size, what lies between the layers "
        "is much smaller.",
    )
    method = (
        f"The CNN of the other studies and ResNet-50 (its first convolution and pooling are those for ImageNet) learn "
        f"from the same images, {BATCH} in a step, by the same rule, on one CPU, bare and in turn, with windows of "
        f"{INTERVAL_S:g} s and nothing filtered. WSS of a run is the mean over windows between its first and its last "
        "step. What a step touches is the union of as many windows as it lasts. "
        "With a program of yours, that takes the place of ResNet-50.",
        "A step of the CNN lasts few windows, so whether its passes can be told apart is better seen in the study "
        "basic, which has larger steps for that.",
    )

    def runs(self, setting: Setting) -> list[list[Run]]:
        if setting.network != TORCH:
            what = "compares your program with the CNN" if setting.command else "trains the CNN and ResNet-50"
            raise UserError(f"network {what}, for which PyTorch is needed: pip install 'memtui[torch]'")
        limit_s = QUICK_S if setting.quick else LENGTH_S
        by_repeat = []
        for repeat in range(1 if setting.quick else REPEATS):
            runs = []
            for group, module in ((SMALL, "cnn"), (DEEP, "resnet")):
                bundled = group == SMALL or not setting.command
                of_run = replace(setting, command=()) if bundled else setting
                fields = training(of_run, setting.seed + repeat, batch=BATCH, network=module)
                if bundled:
                    program = without_end(fields["program"])
                    fields |= {"program": program, "limit_s": limit_s, "expected_s": START_S + limit_s}
                    fields |= {"needs_steps": True}
                runs.append(Run(group if bundled else OWN, **fields, repeat=repeat, interval_s=INTERVAL_S))
            by_repeat.append(runs)
        return by_repeat

    def find(self, setting: Setting, observed: Sequence[FinishedRun]) -> Findings:
        groups = dict(sorted(by_group(observed).items(), key=lambda group: group[0] != SMALL))
        numbers: dict[str, NetworkNumbers] = {}
        charts: list[Chart | HeatChart] = []
        doubts: list[str] = []
        window = f"windows of {INTERVAL_S:g} s"
        with ExitStack() as stack:
            traces = {group: stack.enter_context(closing(items[0].trace())) for group, items in groups.items()}
            for trace in traces.values():
                require_pages(trace)
            charts.append(wss_over_run("wss", f"WSS over the run, {window}", traces, stacked=True))
            curves = {g: curve for g, trace in traces.items() if (curve := cdf(trace.reuse(training=True))) is not None}
            if curves:
                charts.append(reuse_lines("reuse", f"Reuse distances, {window}", curves))
            for group, trace in traces.items():
                label = group.lower().replace(" ", "-")
                parts, of_steps = passes(trace, f"steps-{label}", f"{group}: some steps, {window}")
                numbers[group] = _numbers(groups[group], trace, parts)
                charts.append(memory_lines(trace, f"memory-{label}", f"{group}: VM, RSS and WSS, {window}"))
                if (whole := trace.picture()) is not None:
                    title, names = f"{group}: the whole process over one run, {window}", trace.regions(whole)
                    charts.append(heat(f"heat-{label}", title, whole, note=REGIONS_NOTE, regions=names))
                charts += [of_steps] if of_steps is not None else []
                doubts += [f"{group}: {text}" for text in trace.doubts()]
                if not trace.by_steps:
                    doubts.append(
                        f"{group}: it reported no steps, so all windows but the first tenth count as training"
                    )
        document = {"interval_s": INTERVAL_S, "batch": BATCH, "networks": to_json(numbers)}
        ratio = _ratio(numbers)
        document["wss_ratio"] = to_json(ratio)
        return Findings(document, conclude(numbers, ratio), charts, [_table(numbers)], doubts)


def _numbers(items: Sequence[FinishedRun], trace: Trace, parts: PartSimilarity) -> NetworkNumbers:
    """Return the numbers of a network; ``trace``: the open first repeat."""
    wss = [mean(trace.wss())]
    for item in items[1:]:
        with closing(item.trace()) as other:
            wss.append(mean(other.wss()))
    exact, rate = trace.reuse(training=True), trace.result.steps_per_s
    curve = cdf(exact)
    windows = None if not rate else max(round(1 / (rate * trace.interval_s)), 1)
    return NetworkNumbers(
        wss_bytes=wss,
        rss_bytes=mean(trace.samples.rss_bytes[trace.training]),
        step_s=None if not rate else 1 / rate,
        step_windows=windows,
        step_bytes=None if windows is None else mean([pages.size_bytes for pages in trace.merged(windows)]),
        median_reuse_bytes=quantiles(exact)[0.5],
        knee=None if curve is None else knee(curve),
        passes=parts,
    )


def _second(numbers: Mapping[str, NetworkNumbers]) -> str:
    """Return the name of what stands beside the small network."""
    return next((group for group in numbers if group != SMALL), DEEP)


def _ratio(numbers: Mapping[str, NetworkNumbers]) -> MedianInterval | None:
    """Return the working set of the second network by that of the small one, over repeats."""
    second = _second(numbers)
    if second not in numbers or SMALL not in numbers:
        return None
    return ratio_of_pairs(numbers[second].wss_bytes, numbers[SMALL].wss_bytes)


def conclude(numbers: Mapping[str, NetworkNumbers], ratio: MedianInterval | None) -> list[str]:
    """Return the conclusions from the numbers, in sentences."""
    second = _second(numbers)
    if ratio is None:
        return ["Not both networks have a window between their first and their last step: longer runs help."]
    sizes = {group: median(numbers[group].wss_bytes) for group in (SMALL, second)}
    sentences = [
        f"In a window of {INTERVAL_S:g} s {second} touches {size(sizes[second])} and the CNN {size(sizes[SMALL])}: "
        f"{interval_text(ratio)} of the CNN's."
    ]
    for group in (SMALL, second):
        of_group = numbers[group]
        wss, rss = sizes[group], of_group.rss_bytes
        step = f"a step lasts {duration(of_group.step_s)}; " if of_group.step_s is not None else ""
        if of_group.step_bytes is not None:
            step = f"a step lasts {duration(of_group.step_s)} and touches {size(of_group.step_bytes)}; "
        share = f"a window touches {percent(wss / rss)} of the {size(rss)} that are resident" if wss and rss else ""
        if step or share:
            sentences.append(f"{group}: {step}{share}.")
        if (bend := of_group.knee) is not None:
            has = (
                f"has a clear knee: a memory of {size(bend.size_bytes)} certainly holds {percent(bend.share)} of all "
                "touches"
                if bend.clear
                else f"has no clear knee (it bends by {bend.bend:.2f} of 1)"
            )
            sentences.append(f"{group}: the reuse curve {has}.")
        sentences.append(f"{group}: {of_group.passes.sentence()}")
    return sentences


def _table(numbers: Mapping[str, NetworkNumbers]) -> Table:
    rows = [
        (
            group,
            size(median(of_group.wss_bytes)),
            size(of_group.rss_bytes),
            duration(of_group.step_s),
            size(of_group.step_bytes),
            "n/a" if of_group.median_reuse_bytes is None else " to ".join(map(size, of_group.median_reuse_bytes)),
        )
        for group, of_group in numbers.items()
    ]
    heads = ("network", "WSS", "RSS", "step", "in a step", "half of touches within")
    return Table(f"By network, windows of {INTERVAL_S:g} s", heads, rows)
