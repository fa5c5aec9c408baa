"""Whether forward and backward passes can be separated: do parts of a step access pages of their own?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from memtui.analysis.statistics import mean
from memtui.analysis.window_merging import similarity, union
from memtui.core.page_set import PageSet

PARTS = 8  # of a step
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
            why += f": a step lasts as little as {fewest} windows, and {PARTS} are needed"
        return PartSimilarity(reason=why)
    return PartSimilarity(of_same, of_opposite, of_same > of_opposite + VISIBLE)
