"""Whether forward and backward passes can be separated: do parts of a step access pages of their own?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from memtui.analysis.statistics import mean
from memtui.analysis.window_merging import similarity, union
from memtui.core.page_set import PageSet
from memtui.core.units import percent
from memtui.reports.charts.model import HeatChart
from memtui.study.charts import REGIONS_NOTE, heat
from memtui.study.recorded_run import Trace

PARTS = 8  # of a step
SHOWN_STEPS = 4
VISIBLE = 0.1  # least difference between the similarity of the same parts and that of opposite parts


@dataclass(frozen=True, slots=True)
class PartSimilarity:
    """Similarity of the pages that parts of neighbouring steps access.

    Attributes:
        same_part: mean Jaccard index of the same parts, 0..1; None, as the others, where it is unknown.
        opposite_part: mean Jaccard index of opposite parts.
        visible: whether the first is notably larger.
        reason: why the similarity is unknown.
    """

    same_part: float | None = None
    opposite_part: float | None = None
    visible: bool | None = None
    reason: str = ""

    def sentence(self) -> str:
        """Return whether the passes can be told apart, as a sentence."""
        if self.same_part is None:
            return f"Whether forward and backward passes can be told apart is not known: {self.reason}."
        sentence = (
            f"The same eighths of neighbouring steps share {percent(self.same_part)} of their pages, opposite eighths "
            f"{percent(self.opposite_part)}"
        )
        if self.visible:
            return f"{sentence}: forward and backward passes are visible."
        return f"{sentence}: forward and backward passes cannot be told apart in this way."


def passes(trace: Trace, name: str, title: str) -> tuple[PartSimilarity, HeatChart | None]:
    """Return the similarity of parts of neighbouring steps, and a picture of some steps; None where there is none."""
    samples, times_ns = trace.samples, trace.result.step_times_ns
    parts = part_similarity(samples.start_ns.tolist(), samples.end_ns.tolist(), trace.pages, times_ns)
    if len(times_ns) < 2:
        return parts, None
    shown = times_ns[: SHOWN_STEPS + 1]
    first, last = (int(np.searchsorted(samples.end_ns, time_ns)) for time_ns in (shown[0], shown[-1]))
    picture = trace.picture(span=slice(first, last + 1))
    if picture is None:
        return parts, None
    vlines = [float(np.searchsorted(samples.end_ns, time_ns)) - first for time_ns in shown]
    note = f"A line stands at the end of each step. {REGIONS_NOTE}"
    return parts, heat(name, title, picture, vlines=vlines, note=note, regions=trace.regions(picture))


def part_similarity(
    starts_ns: Sequence[int], ends_ns: Sequence[int], pages: Sequence[PageSet | None], steps_ns: Sequence[int]
) -> PartSimilarity:
    """Compare the pages of the parts of a step with those of the same and the opposite part of the next step.

    A step is divided into ``PARTS`` of equal length, because one step may take longer than another; the pages of a part
    are the union of the windows whose middle lies in it.

    Args:
        starts_ns: start of each window, rising.
        ends_ns: end of each window, rising.
        pages: page set of each window; None where it is unknown.
        steps_ns: when steps ended, rising.

    Returns:
        The similarities; unknown where no two neighbouring steps have a window in every part.
    """
    middles = (np.array(starts_ns, float) + np.array(ends_ns, float)) / 2
    steps: list[list[PageSet] | None] = []
    fewest = None
    for first_ns, last_ns in pairwise(steps_ns):
        inside = np.flatnonzero((middles >= first_ns) & (middles < last_ns)).tolist()
        fewest = len(inside) if fewest is None else min(fewest, len(inside))
        part = ((middles[inside] - first_ns) * PARTS / (last_ns - first_ns)).astype(int).tolist()
        if len(set(part)) < PARTS or any(pages[window] is None for window in inside):
            steps.append(None)
            continue
        by_part: list[list[PageSet]] = [[] for _ in range(PARTS)]
        for window, k in zip(inside, part, strict=True):
            if (touched := pages[window]) is not None:
                by_part[k].append(touched)
        steps.append([union(page_sets) for page_sets in by_part])
    same, opposite = [], []
    for first, second in pairwise(steps):
        if first is not None and second is not None:
            same += [similarity(first[k], second[k]) for k in range(PARTS)]
            opposite += [similarity(first[k], second[(k + PARTS // 2) % PARTS]) for k in range(PARTS)]
    of_same, of_opposite = (mean([v for v in values if v is not None]) for values in (same, opposite))
    if of_same is None or of_opposite is None:
        why = "no two steps follow each other that were seen whole"
        if fewest is not None and fewest < PARTS:
            why += f": a step lasts as little as {fewest} window{'s' * (fewest != 1)}, and {PARTS} are needed"
        return PartSimilarity(reason=why)
    return PartSimilarity(of_same, of_opposite, of_same > of_opposite + VISIBLE)
