"""``fast-memory``: the miss-ratio curve checked by experiment, under a memory limit that makes the kernel swap."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from memtui.analysis.statistics import median
from memtui.core.errors import FAILURE, UserError
from memtui.core.json_fields import to_json
from memtui.core.page_sizes import PAGE_BYTES
from memtui.reports.charts.model import Chart, Findings, Table
from memtui.study.plan import Run
from memtui.study.recorded_run import Trace
from memtui.study.runs.messages import MemoryResult
from memtui.study.studies.base import (
    FinishedRun,
    Setting,
    by_group,
    median_of,
    require_pages,
    training,
    without_end,
)
from memtui.study.studies.fast_memory.conclusions import NEAR, conclude, doubts_of, factor
from memtui.study.studies.fast_memory.figures import charts_of, row, slow_down
from memtui.study.studies.fast_memory.miss_curve import MissCurve, working_set
from memtui.study.studies.fast_memory.numbers import Bounds, FastMemoryNumbers, LimitPoint, ProgramNumbers
from memtui.study.studies.fast_memory.runs import SETTLE, StepCounts, step_counts
from memtui.study.workloads.access_orders import ORDERS, ZIPF_EXPONENT, lru_misses, touch_order

INTERVAL_S = 0.1
MERGED = 2  # windows in one: the second interval of a figure of reuse
COUNTED_S = 0.5  # windows of the runs without page sets
QUICK_SHARES, SHARES = (0.75, 0.5), (0.9, 0.75, 0.6, 0.5, 0.35)
QUICK_REPEATS, REPEATS = 1, 6
TRAINING, PROGRAM = "training", "the program"
SWAP_FACTOR, SWAP_MORE_BYTES = 1.25, 64 << 20  # of the largest RSS of the recording
WARM_STEPS = 64  # of an exact LRU memory, and as many counted ones


@dataclass(frozen=True, slots=True)
class _AccessOrder:
    """A program whose order of accesses is known (``memtui.study.workloads.known_accesses``)."""

    order: str
    pages: int

    @property
    def per_step(self) -> int:
        return self.pages // 16

    def fields(self, seed: int, seconds: float) -> dict[str, Any]:
        argv = [
            sys.executable,
            "-P",
            "-m",
            "memtui.study.workloads.known_accesses",
            self.order,
            "--pages",
            str(self.pages),
        ]
        argv += ["--per-step", str(self.per_step), "--seed", str(seed)]
        return {"program": tuple(argv), "limit_s": seconds, "expected_s": 2.0 + seconds, "seed": seed}

    def misses(self, room_bytes: float, seed: int) -> float:
        """Return the misses a step of an exact LRU memory."""
        return _exact(self, max(int(room_bytes) // PAGE_BYTES, 1), seed)


@lru_cache(256)
def _exact(access_order: _AccessOrder, capacity_pages: int, seed: int) -> float:
    order = touch_order(access_order.order, access_order.pages, access_order.per_step, seed)
    steps = list(itertools.islice(order, 2 * WARM_STEPS))
    return float(lru_misses(steps, capacity_pages)[WARM_STEPS:].mean())


class FastMemory:
    name = "fast-memory"
    title = "Does a memory of a given size miss as often as the reuse curve says?"
    original = (
        "MemSnoop's published notebooks say from reuse distances how much memory holds a share of the touches: about "
        "135 MiB half of them, about 150 MiB 95 %. None of their experiments gives a program less memory and looks.",
    )
    method = (
        f"One recording of each program without a limit, windows of {INTERVAL_S:g} s, gives its curve: touches between "
        "the first and the last step by their reuse distance, of pages that can go to swap (anonymous and shared "
        "memory), with what was touched before the first step as their past. Page cache of files is left out: what "
        "another program brought in is not charged to the limit.",
        "Then the program runs in a memory cgroup. At its first step the limit comes down to a share of the working "
        "set, which is all such pages that the recording saw between its first and its last step. Counted are "
        f"pgmajfault and pswpin by step, without the first {SETTLE:.0%} of the time under the limit. These runs are "
        "not tracked, because a tracker clears the bits that the kernel's choice of pages rests on.",
        "The prediction is taken at the room that was there: the limit less page cache and the kernel's own memory in "
        "the cgroup. Touches at a distance above it, a step, are its misses, with both bounds of the distance. Pages "
        "that were never touched before are not misses: the kernel gives an empty page and reads nothing.",
        "Swap readahead brings in neighbours of a page that is missed. So the misses of a memory without it lie "
        "between major faults and pages that came from swap, and a prediction holds where its range meets that one to "
        f"{NEAR:.0%}. The factor is to the nearer bound, and 1 between the bounds.",
        f"Of the bundled programs, two touch pages in a known order: cyclic goes round a ring, zipf draws pages (the "
        f"k-th in proportion to 1/k^{ZIPF_EXPONENT:g}). For them an exact LRU memory of the same room says whether the "
        "curve or the kernel is off.",
    )

    def runs(self, setting: Setting) -> list[list[Run]]:
        if setting.no_limit:
            raise UserError(f"fast-memory needs a memory cgroup and swap: {setting.no_limit}")
        recorded = [
            Run(group(name, None), **fields(setting.seed), interval_s=INTERVAL_S, needs_steps=True)
            for name, fields in _programs(setting).items()
        ]
        by_repeat = [recorded]
        for repeat in range(QUICK_REPEATS if setting.quick else REPEATS):
            by_repeat.append(
                [
                    Run(
                        group(name, share),
                        **fields(setting.seed + repeat),
                        repeat=repeat,
                        tracker="rss",
                        pause=False,
                        interval_s=COUNTED_S,
                        memory_share=share,
                        memory_of=group(name, None),
                        needs_steps=True,
                    )
                    for name, fields in _programs(setting).items()
                    for share in (0.0, *shares(setting))
                ]
            )
        return by_repeat

    def find(self, setting: Setting, observed: Sequence[FinishedRun]) -> Findings:
        groups = by_group(observed)
        programs: dict[str, ProgramNumbers] = {}
        charts: list[Chart] = []
        rows: list[tuple[str, ...]] = []
        doubts: list[str] = []
        for name in _programs(setting):
            trace = groups[group(name, None)][0].trace()
            require_pages(trace)
            doubts += [f"{name}, recorded: {text}" for text in trace.doubts()]
            curves = [MissCurve.of(trace, count) for count in (1, MERGED)]
            programs[name] = program = _program(setting, name, trace, curves, groups)
            charts += charts_of(name, program, curves[0], INTERVAL_S)
            rows += [row(group(name, point.share), point) for point in program.points]
            trace.close()
        limits = [item.result.memory for item in observed if item.result.memory is not None]
        numbers = _numbers(programs, limits)
        charts.append(slow_down(programs))
        windows = f"windows of {INTERVAL_S:g} s and of {MERGED * INTERVAL_S:g} s"
        heads = (
            "",
            "limit",
            "room",
            f"predicted at {INTERVAL_S:g} s",
            f"at {MERGED * INTERVAL_S:g} s",
            "exact LRU",
            "major faults",
            "pages from swap",
            "faults: factor",
            "pages: factor",
            "a step takes",
        )
        tables = [Table(f"Misses a step, predicted from {windows}, and seen (median of the runs)", heads, rows)]
        doubts += doubts_of(numbers, limits)
        again = sum(item.result.attempts > 1 for item in observed)
        if again:
            doubts.append(f"{again} runs were done again, as the kernel had killed the program though swap had room")
        return Findings(to_json(numbers), conclude(numbers), charts, tables, doubts)


def group(name: str, share: float | None) -> str:
    """Return the group of the recording (None), of the runs without a limit (0), or of those under a limit."""
    if share is None:
        return f"{name}, recorded"
    return f"{name}, {share:.0%}" if share else f"{name}, no limit"


def shares(setting: Setting) -> tuple[float, ...]:
    return QUICK_SHARES if setting.quick else SHARES


def sizes(recorded: FinishedRun) -> dict[str, int]:
    """Return the sizes for the runs under a limit, from the recording.

    Returns:
        ``working_set_bytes``, of pages that can be swapped out, and ``swap_bytes``, which is enough for all of them.

    Raises:
        UserError: the recording has no pages, or the program reported no steps.
    """
    trace = recorded.trace()
    try:
        require_pages(trace)
        if not trace.by_steps or not trace.training.any():
            raise UserError(
                f"{recorded.run.group}: fewer than two steps with a whole window between them were seen, and misses "
                "are counted by step: have the program print its steps (step 120), and give it more to do",
                FAILURE,
            )
        largest = float(np.nanmax(trace.samples.rss_bytes, initial=0.0))
        return {
            "working_set_bytes": working_set(trace).size_bytes,
            "swap_bytes": round(SWAP_FACTOR * largest) + SWAP_MORE_BYTES,
        }
    finally:
        trace.close()


def _programs(setting: Setting) -> dict[str, Callable[[int], dict[str, Any]]]:
    """Return, by name of the program, the function from a seed to the fields of a run."""

    def trained(seed: int) -> dict[str, Any]:
        fields = training(setting, seed, quick_s=10.0)
        if setting.command or setting.quick:
            return fields
        fields["program"] = without_end(fields["program"])  # a minute of each is enough, an epoch is a minute or two
        return fields | {"limit_s": 60.0, "expected_s": 70.0}

    if setting.command:
        return {PROGRAM: trained}
    bundled = {name: _fields_of(access_order, setting) for name, access_order in _bundled_orders(setting).items()}
    return bundled | {TRAINING: trained}


def _bundled_orders(setting: Setting) -> dict[str, _AccessOrder]:
    if setting.command:
        return {}
    return {order: _AccessOrder(order, 16384 if setting.quick else 65536) for order in ORDERS}


def _fields_of(access_order: _AccessOrder, setting: Setting) -> Callable[[int], dict[str, Any]]:
    seconds = 5.0 if setting.quick else 30.0
    return lambda seed: access_order.fields(seed, seconds)


def _program(
    setting: Setting, name: str, trace: Trace, curves: Sequence[MissCurve], groups: Mapping[str, list[FinishedRun]]
) -> ProgramNumbers:
    access_order = _bundled_orders(setting).get(name)
    whole = working_set(trace).size_bytes
    rate = trace.result.steps_per_s if trace.by_steps else None
    points = []
    for share in (0.0, *shares(setting)):
        runs = [
            (item, counted) for item in groups.get(group(name, share), []) if (counted := _counts_of(item)) is not None
        ]
        points.append(_point(share, runs, curves, access_order, whole))
    return ProgramNumbers(
        working_set_bytes=whole,
        steps_per_window=None if rate is None else rate * INTERVAL_S,
        touches_per_step=curves[0].touches / curves[0].steps if curves[0].steps else None,
        known_order=access_order is not None,
        points=points,
    )


def _counts_of(item: FinishedRun) -> StepCounts | None:
    return None if item.result.memory is None else step_counts(item.result.memory)


def _point(
    share: float,
    runs: Sequence[tuple[FinishedRun, StepCounts]],
    curves: Sequence[MissCurve],
    access_order: _AccessOrder | None,
    touched: int,
) -> LimitPoint:
    by_run = [_compare(item, each, curves, access_order, touched) for item, each in runs if share]
    return LimitPoint(
        share=share,
        runs=len(runs),
        limit_bytes=median([item.result.memory.limit_bytes for item, _ in runs if item.result.memory is not None]),
        room_bytes=median([each.room_bytes for _, each in runs]),
        steps=sum(each.steps for _, each in runs),
        major_faults=median_of([each.major_faults for _, each in runs]),
        swapped_in=median_of([each.swapped_in for _, each in runs]),
        process_major_faults=median_of([each.process_major_faults for _, each in runs]),
        minor_faults=median_of([each.minor_faults for _, each in runs]),
        step_s=median_of([each.step_s for _, each in runs]),
        predicted=_median_bounds([each.predicted for each in by_run]),
        predicted_merged=_median_bounds([each.predicted_merged for each in by_run]),
        faults_factor=median_of([each.faults_factor for each in by_run]),
        pages_factor=median_of([each.pages_factor for each in by_run]),
        exact_lru=median_of([each.exact_lru for each in by_run]),
        exact_factor=median_of([each.exact_factor for each in by_run]),
    )


def _median_bounds(bounds: Sequence[Bounds]) -> Bounds | None:
    low, high = (median([pair[which] for pair in bounds]) for which in (0, 1))
    return None if low is None or high is None else (low, high)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One run compared with the prediction at its own room; see ``LimitPoint``."""

    predicted: Bounds
    predicted_merged: Bounds
    exact_lru: float | None
    faults_factor: float | None
    pages_factor: float | None
    exact_factor: float | None


def _compare(
    item: FinishedRun, each: StepCounts, curves: Sequence[MissCurve], access_order: _AccessOrder | None, touched: int
) -> _Comparison:
    assert each.room_bytes is not None
    (low, high), (low_merged, high_merged) = (curve.misses(each.room_bytes) for curve in curves)
    predicted, predicted_merged = (float(low), float(high)), (float(low_merged), float(high_merged))
    bounds = None if math.isnan(predicted[0]) else predicted
    exact = None
    if access_order is not None:
        # The other pages of the process, of interpreter and libraries, stay in memory and take part of the room.
        aside = max(touched - access_order.pages * PAGE_BYTES, 0)
        exact = access_order.misses(each.room_bytes - aside, item.run.seed)
    return _Comparison(
        predicted,
        predicted_merged,
        exact,
        factor(each.major_faults, bounds),
        factor(each.swapped_in, bounds),
        factor(exact, bounds),
    )


def _numbers(programs: Mapping[str, ProgramNumbers], limits: Sequence[MemoryResult]) -> FastMemoryNumbers:
    clusters = {limit.page_cluster for limit in limits}
    return FastMemoryNumbers(
        INTERVAL_S,
        MERGED * INTERVAL_S,
        programs,
        cgroup_version=sorted({limit.version for limit in limits}),
        swap=sorted({limit.swap for limit in limits if limit.limit_bytes is not None}),
        page_cluster=clusters.pop() if len(clusters) == 1 else None,
    )
