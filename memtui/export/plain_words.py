"""What a report comes to, in sentences, and how its numbers were taken."""

from __future__ import annotations

from typing import Any

from memtui.units import duration, percent, size

METHOD: tuple[str, ...] = (
    "Working set (WSS): the bytes of all pages that were touched in one window, after Denning; a page counts in the "
    "size the hardware maps. Resident set (RSS): what the kernel keeps for the program, touched or not.",
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
    found = [] if report["imported"] is not None else [*_of_memory(report), *_of_cost(report)]
    return found + _of_learning(report) + _of_tensors(report)


def _of_memory(report: dict[str, Any]) -> list[str]:
    wss, rss, reuse = report["wss_bytes"], report["rss_bytes"], report["reuse"]
    found = []
    if wss["median"] is not None:
        share = ""
        if rss["median"]:
            share = f", {percent(wss['median'] / rss['median'])} of the {size(rss['median'])} that are resident"
        found.append(
            f"In a window of {duration(report['true_interval_s'])} the program touches {size(wss['median'])} in the "
            f"median{share}, and {size(wss['max'])} at most."
        )
    if reuse["p95_bytes"] is not None:
        most = reuse["p95_bytes"]["upper"]
        found.append(
            f"An LRU memory of {size(most)} would hold 95 % of the touches of pages that were touched before, as far "
            "as windows of this length tell."
        )
    return found


def _of_cost(report: dict[str, Any]) -> list[str]:
    cost = report["overhead"]
    if cost["paused_fraction"] is None:
        return []
    return [
        f"To see this, it was held for {percent(cost['paused_fraction'])} of the time, and memtui took "
        f"{percent(cost['self_cpu_fraction'])} of one CPU."
    ]


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
