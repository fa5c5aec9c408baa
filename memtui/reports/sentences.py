"""What a report comes to, in sentences, and how its numbers were taken."""

from __future__ import annotations

from typing import Any

from memtui.analysis.memory_sentences import Figures, in_words
from memtui.core.units import percent, size

METHOD: tuple[str, ...] = (
    "Working set (WSS): the bytes of all pages that were touched in one window, after Denning; a page counts in the "
    "size the hardware maps. Resident set (RSS): what the kernel keeps for the program, touched or not. Of several "
    "processes the proportional set (PSS) is told: a page that n processes map counts for 1/n in each of them.",
    "Reuse distance: how many bytes of other pages were touched since a page was touched last. A touch is one page in "
    "one window, and the order inside a window is not known, so a distance lies between two bounds. They belong to the "
    "length of the windows. Miss ratio: the share of touches that an LRU memory of a size would miss.",
    "A value that could not be measured is n/a with its reason, never 0. Times count from the first window.",
)
METHOD_OF_FILES: tuple[str, ...] = (
    "The numbers are those of a file of another tool, as it has them; what it does not know is said and not filled in.",
)
METHOD_OF_TENSORS = (
    "Of tensors, those are known that PyTorch told of from inside of the program: every allocation of the steps that "
    "were recorded, and of others what a cheap view sees in a part of the time."
)


def sentences(report: dict[str, Any]) -> list[str]:
    """In plain words, as far as it is known; ``report`` is that of ``report.report_of``."""
    found = [] if report["imported"] is not None else [forms[0] for forms in in_words(_figures(report))]
    return found + _of_learning(report) + _of_tensors(report)


def _figures(report: dict[str, Any]) -> Figures:
    wss, held = report["wss_bytes"], report["touched_fraction"]
    reuse, cost = report["reuse"], report["overhead"]
    p95 = reuse["p95_bytes"]
    return Figures(
        window_s=report["true_interval_s"],
        wss_median_bytes=wss["median"],
        wss_max_bytes=wss["max"],
        resident_bytes=held["resident_bytes"],
        reuse_bytes=None if p95 is None else (p95["lower"], p95["upper"]),
        paused_fraction=cost["paused_fraction"],
        lost_fraction=cost["lost_fraction"],
        own_cpu=cost["self_cpu_fraction"],
        touched_fraction=held["fraction"],
        resident=held["of"],
    )


def _of_learning(report: dict[str, Any]) -> list[str]:
    found = []
    for one in report["learning"]:
        told = (
            f"{one['network']} by {one['type']} went through {one['iteration']:,} iterations in {one['epoch']} epochs"
        )
        if one["accuracy"] is not None:
            told += f" and is right {one['accuracy']:.1f} % of the time"
        found.append(f"{told}.")
    return found


def _of_tensors(report: dict[str, Any]) -> list[str]:
    everywhere = [report["allocations"], *report["device_allocations"].values()]
    return [text for found in everywhere if found is not None for text in _of_allocations(found)]


def _of_allocations(allocations: dict[str, Any]) -> list[str]:
    held = sorted(allocations["at_peak"]["bytes"].items(), key=lambda part: -part[1])
    most = allocations["peak_bytes"]["max"]
    if not held or not most:
        return []
    (category, part), *_ = held
    return [f"Tensors held {size(most)} at their peak, {percent(part / most)} of it {category}."]
