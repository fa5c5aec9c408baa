"""The main numbers of a report, in sentences, and how they were measured."""

from __future__ import annotations

from memtui.analysis.memory_sentences import Figures, sentences_of
from memtui.core.units import percent, size
from memtui.reports.allocation_summary import LITTLE, AllocationSummary, by_device
from memtui.reports.report import Report
from memtui.reports.training_summary import LearningSummary

METHOD: tuple[str, ...] = (
    "Working set (WSS): the bytes of all pages that were touched in one window, after Denning; a page counts in the "
    "size the hardware maps. Resident set (RSS): what the kernel keeps for the program, touched or not. Of several "
    "processes the proportional set (PSS) is told: a page that n processes map counts for 1/n in each of them.",
    "Reuse distance: how many bytes of other pages were touched since a page was touched last. A touch is one page in "
    "one window, and the order inside a window is not known, so a distance lies between two bounds. They belong to the "
    "length of the windows. An estimate between them is for touches in random order inside each window; the distances "
    "of a loop in a fixed order are near the upper bound. Miss ratio: the share of touches that an LRU memory of a "
    "size would miss.",
    "A value that could not be measured is n/a with its reason, never 0. Times count from the first window.",
)
METHOD_OF_FILES: tuple[str, ...] = (
    "The numbers are those of a file of another tool, as it has them; what it does not know is said and not filled in.",
)
METHOD_OF_TENSORS = (
    "Of tensors, those are known that PyTorch told of from inside of the program: every allocation of the steps that "
    "were recorded, and of others what a cheap view sees in a part of the time."
)


def sentences(report: Report) -> list[str]:
    """Return the known figures as sentences."""
    figures = [] if report.imported is not None else [forms[0] for forms in sentences_of(_figures(report))]
    everywhere = [summary for _, summary in by_device(report.allocations, report.device_allocations)]
    tensors = [
        _of_allocations(summary)
        for summary in everywhere
        if summary.peak_bytes.max >= LITTLE * everywhere[0].peak_bytes.max
    ]
    return [*figures, *map(_of_learning, report.learning), *filter(None, tensors)]


def _figures(report: Report) -> Figures:
    p95, cost = report.reuse.p95_bytes, report.overhead
    return Figures(
        window_s=report.true_interval_s,
        wss_median_bytes=report.wss_bytes.median,
        wss_max_bytes=report.wss_bytes.max,
        resident_bytes=report.touched_fraction.resident_bytes,
        reuse_bytes=None if p95 is None else (p95.lower, p95.upper),
        reuse_estimate_bytes=None if p95 is None else p95.estimate,
        paused_fraction=cost.paused_fraction,
        lost_fraction=cost.lost_fraction,
        own_cpu=cost.self_cpu_fraction,
        traced_fraction=cost.traced_fraction,
        touched_fraction=report.touched_fraction.fraction,
        resident=report.touched_fraction.of,
        may_lack_pages=report.wss_bytes.lower_bound,
        windows=report.windows[0].windows if report.windows else None,
        is_estimated=report.wss_bytes.estimated,
    )


def _of_learning(learning: LearningSummary) -> str:
    rule = f"{learning.network} by {learning.type}"
    progress = f"{rule} went through {learning.iteration:,} iterations in {learning.epoch} epochs"
    right = f" and is right {learning.accuracy:.1f} % of the time" if learning.accuracy is not None else ""
    return f"{progress}{right}."


def _of_allocations(allocations: AllocationSummary) -> str:
    by_size = sorted(allocations.at_peak.bytes.items(), key=lambda part: -part[1])
    most = allocations.peak_bytes.max
    if not by_size or not most:
        return ""
    category, part = by_size[0]
    return f"Tensors held {size(most)} at their peak, {percent(part / most)} of it {category}."
