"""How each tracker clears marks on the bundled training, and how long it holds a large process with little hot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from benchmarks.run import Run
from benchmarks.sample import windows_of
from benchmarks.table import Row, once, row, tail
from benchmarks.targets import PATTERN_PAGES_PER_GIB, lacks_memory, needs_root, pattern, training
from memtui.probes.pages.pagetable.rearm import FULL, WORKING_SET

INTERVAL_S = 0.2
LARGE_GIB, HOT_PARTS, LARGE_PAUSED_MS = 8, 100, 15


def measure(run: Run) -> Iterator[Row]:
    """The training at the interval of the product, then 8 GiB with one hundredth touched."""
    needs_root()
    seconds = 5 if run.quick else 60
    with training() as target:
        for tracker in ("pagetable", "referenced"):
            yield from _training(tracker, _windows(run, target.pid, tracker, seconds))
    gib = 0.5 if run.quick else LARGE_GIB
    if reason := lacks_memory(gib):
        yield Row(f"{gib:g} GiB resident", failed=reason)
        return
    pages = int(gib * PATTERN_PAGES_PER_GIB)
    hot = pages // HOT_PARTS
    for name, words in (
        ("in one piece", ("stairs", "--regions", HOT_PARTS, "--pages", hot, "--step-seconds", 1e6)),
        ("each page by itself", ("random", "--pages", pages, "--touched", hot)),
    ):
        with pattern(*words) as pid:
            found = _windows(run, pid, "pagetable", seconds / 3)
        paused = [window["paused_ns"] / 1e6 for window in found]
        what = f"{gib:g} GiB resident, 1 % of it hot, {name}: paused a window"
        yield row(what, paused, "ms", LARGE_PAUSED_MS)
        yield tail("the longest of them", paused, "ms", LARGE_PAUSED_MS, 1.0)
        yield from _rearmed(found)


def _windows(run: Run, pid: int, tracker: str, seconds: float) -> list[dict[str, Any]]:
    """What was noted of the windows of the target, children left out, but the first and the lost ones."""
    count = max(5, round(seconds / INTERVAL_S))
    path = run.folder / f"{tracker}.json"
    found = windows_of(pid, count, path, "benchmarks.counting_sampler", tracker=tracker, interval_s=INTERVAL_S)
    return [window for window in found if window["wss_bytes"] is not None]


def _training(tracker: str, windows: list[dict[str, Any]]) -> Iterator[Row]:
    yield once(f"{tracker}, training at {INTERVAL_S:g} s: windows", len(windows), "")
    yield from _rearmed(windows)
    unknown = [100 * w["unknown_bytes"] / max(w["wss_bytes"], 1) for w in windows if w["unknown_bytes"] is not None]
    if unknown:
        yield tail("most of a working set that is unknown", unknown, "%", 1, 1.0)
        yield row("... of it in a window", unknown, "%")
    paused = [window["paused_ns"] / 1e6 for window in windows]
    yield row("paused a window", paused, "ms")
    yield tail("the longest pause", paused, "ms", q=1.0)


def _rearmed(windows: list[dict[str, Any]]) -> Iterator[Row]:
    """How often in which way, and why in full."""
    of = f"of {len(windows)}"
    yield once("marks cleared by working set", sum(w["rearm"] == WORKING_SET for w in windows), of)
    yield once("marks cleared in full", sum(w["rearm"] == FULL for w in windows), of)
    for why, count in Counter(w["why"] for w in windows if w["why"]).most_common():
        yield once(f"... because: {why}", count, of)
