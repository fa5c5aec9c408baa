"""The error of ``sample-time``'s method, from runs whose windows are fine and coarse in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from memtui.analysis.statistics import MedianInterval, mean
from memtui.core.json_fields import to_json
from memtui.core.units import percent, size
from memtui.reports.charts.model import Table
from memtui.study.plan import ALTERNATE, Run
from memtui.study.studies.base import (
    FinishedRun,
    Setting,
    interval_text,
    of_threads,
    require_pages,
    training,
    without_end,
)
from memtui.study.studies.sample_time.merge_error import MergeError, is_as_long, merge_error, stretches_of

COARSE_S = (0.5, 1.0, 2.0)
QUICK_S = (0.5,)
PAIRS, QUICK_PAIRS = 20, 9  # of 9 the second smallest and the second largest are the bounds, of 6 to 8 the extremes
BLOCK_WINDOWS = 3.2  # coarse windows that fit into a block: two are whole, as the first starts anywhere
START_S = 7.0  # of a run, before its blocks
SWITCH_S = 0.2  # between blocks; see ``memtui.study.runs.worker``
KEEPING_S = 1.0  # coarse interval of the run in which malloc releases no memory
KEEPS = (("MALLOC_TRIM_THRESHOLD_", "4000000000"), ("MALLOC_MMAP_THRESHOLD_", "4000000000"))  # glibc's; mallopt(3)
ENOUGH = 0.05  # largest error that is called small


@dataclass(frozen=True, slots=True)
class TurnPoint:
    """The error of merged windows at a coarse interval.

    Attributes:
        interval_s: length of the coarse windows.
        finest_s: length of the fine windows.
        malloc_keeps: whether the program's malloc released nothing to the kernel.
        error: error of the method; None where no pair of blocks has windows of both lengths.
        left_out: number of windows that do not count.
        given_back_bytes: mean of the memory that was released in a coarse window; None where it is unknown.
    """

    interval_s: float
    finest_s: float
    malloc_keeps: bool
    error: MergeError | None
    left_out: int = 0
    given_back_bytes: float | None = None

    @property
    def text(self) -> str:
        """The error as text."""
        return interval_text(self.error.beyond if self.error else None, sign=True)

    def to_dict(self) -> dict[str, Any]:
        error = self.error
        return {
            "interval_s": self.interval_s,
            "finest_s": self.finest_s,
            "malloc_keeps": self.malloc_keeps,
            "beyond": to_json(error.beyond) if error else None,
            "words": self.text,
            "coarse_bytes": error.coarse_bytes if error else None,
            "merged_bytes": error.merged_bytes if error else None,
            "coarse_windows": error.coarse_windows if error else 0,
            "merged_windows": error.merged_windows if error else 0,
            "left_out": self.left_out,
            "given_back_bytes": self.given_back_bytes,
        }


def turns(setting: Setting, threads: int, fine_s: float) -> list[Run]:
    """Return a run for each coarse interval, and one with a malloc that releases nothing (quick: on one thread only).

    The bundled network is ended after the last block.
    """
    coarse, keeping_s, pairs = (QUICK_S, QUICK_S[0], QUICK_PAIRS) if setting.quick else (COARSE_S, KEEPING_S, PAIRS)
    runs = [_turn(setting, threads, fine_s, coarse_s, pairs) for coarse_s in coarse]
    if setting.quick and threads > 1:
        return runs
    keeping = _turn(setting, threads, fine_s, keeping_s, pairs)
    return [*runs, replace(keeping, group=f"{keeping.group}, malloc keeps", environment=(*keeping.environment, *KEEPS))]


def _turn(setting: Setting, threads: int, fine_s: float, coarse_s: float, pairs: int) -> Run:
    block_s = BLOCK_WINDOWS * coarse_s
    fields = training(setting, setting.seed, threads=threads)
    fields |= {"limit_s": None, "expected_s": START_S + 2 * pairs * (block_s + SWITCH_S)}
    if not setting.command:
        fields["program"] = without_end(fields["program"])
    return Run(
        f"{fine_s:g} s and {coarse_s:g} s in turn, {of_threads(threads)}",
        **fields,
        interval_s=fine_s,
        other_interval_s=coarse_s,
        kind=ALTERNATE,
        pairs=pairs,
        block_s=block_s,
    )


def keeps(run: Run) -> bool:
    """Return whether a run's malloc releases nothing to the kernel."""
    return set(KEEPS) <= set(map(tuple, run.environment))


def turn_points(observed: Sequence[FinishedRun], threads: int) -> list[TurnPoint]:
    """Return the error at each coarse interval."""
    points = []
    mine = [item for item in observed if item.run.kind == ALTERNATE and item.run.cpus == threads]
    for item in sorted(mine, key=lambda item: (keeps(item.run), item.run.other_interval_s)):
        coarse_s = item.run.other_interval_s
        assert coarse_s is not None
        trace = item.trace()
        try:
            require_pages(trace)
            stretches, left_out = stretches_of(trace, item.result.blocks or (), item.run.interval_s, coarse_s)
            given_back = trace.given_back_bytes[trace.training & is_as_long(trace, coarse_s)]
        finally:
            trace.close()
        error = merge_error(stretches, round(coarse_s / item.run.interval_s))
        points.append(
            TurnPoint(
                interval_s=coarse_s,
                finest_s=item.run.interval_s,
                malloc_keeps=keeps(item.run),
                error=error,
                left_out=left_out,
                given_back_bytes=mean(given_back[~np.isnan(given_back)].tolist()),
            )
        )
    return points


def conclude_turns(points: Sequence[TurnPoint], threads: int) -> list[str]:
    """Return sentences on the error of the method, and on whether a fine trace can stand for the others."""
    who = f"With {of_threads(threads)}"
    measured = [point for point in points if point.error is not None and not point.malloc_keeps]
    if not measured:
        return [f"{who}, no pair of blocks has windows of both lengths: the error of merged windows is not known."]
    errors = [point.error.beyond for point in measured if point.error is not None]
    parts = ", ".join(f"{point.text} at {point.interval_s:g} s" for point in measured)
    fine = f"{measured[0].finest_s:g} s"
    return [
        f"{who}, in one run with windows of {fine} and longer ones in turn, the longer ones hold {parts} beyond the "
        f"union of those of {fine} (median over pairs of blocks and its 95 % interval): {_verdict(errors)}.",
        *_with_malloc_keeping(points, who),
    ]


def _with_malloc_keeping(points: Sequence[TurnPoint], who: str) -> list[str]:
    """Return sentences on the error without released memory, compared with the ordinary run of that interval."""
    errors = {(point.interval_s, point.malloc_keeps): (point.text, point.error) for point in points if point.error}
    sentences = []
    for (seconds, malloc_keeps), (text, error) in errors.items():
        other_text, other = errors.get((seconds, False), ("", None))
        if not malloc_keeps or other is None:
            continue
        low, high = error.beyond.low, other.beyond.high
        because = (
            "memory that is given back before a long window ends is seen by the short ones alone"
            if low is not None and high is not None and low > high
            else "that memory is given back is not shown to make a difference"
        )
        sentences.append(
            f"{who}, with a malloc that gives nothing back they hold {text} at {seconds:g} s "
            f"({other_text} with the ordinary one): {because}."
        )
    return sentences


def _verdict(errors: Sequence[MedianInterval]) -> str:
    sure = [(error.low, error.high) for error in errors if error.low is not None and error.high is not None]
    if any(low > ENOUGH or high < -ENOUGH for low, high in sure):
        side = "see more than a long one" if any(high < -ENOUGH for _, high in sure) else "see less than a long one"
        return f"more than {percent(ENOUGH)}, a fine trace cannot stand for the others here; its windows {side}"
    if len(sure) == len(errors) and all(low >= -ENOUGH and high <= ENOUGH for low, high in sure):
        return f"within {percent(ENOUGH)}, a fine trace can stand for the others"
    return f"whether that is within {percent(ENOUGH)} cannot be told from so few or so unlike blocks"


def turn_table(points: Mapping[int, Sequence[TurnPoint]]) -> Table:
    """Return the table by number of threads and interval."""
    rows = [
        (
            of_threads(threads),
            f"{point.interval_s:g} s" + (", malloc keeps" if point.malloc_keeps else ""),
            size(point.error.coarse_bytes if point.error else None),
            size(point.error.merged_bytes if point.error else None),
            size(point.given_back_bytes),
            point.text,
            f"{point.error.coarse_windows} and {point.error.merged_windows}" if point.error else "0 and 0",
            str(point.left_out),
        )
        for threads, of_threads_ in points.items()
        for point in of_threads_
    ]
    heads = ("", "window", "WSS of long ones", "WSS of merged ones", "given back", "beyond [95 % interval]", "windows")
    note = (
        "Given back is what went in a long window, by page faults and RSS: what was touched of it is not in that "
        "window, and may have come and gone several times. "
        "Left out are windows that were disturbed, are not of training, or are more than 10 % off the length that was "
        "asked for."
    )
    return Table("Long windows and merged ones in turn, within one run", (*heads, "left out"), rows, note)
