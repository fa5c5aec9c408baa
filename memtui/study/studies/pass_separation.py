"""Whether forward and backward passes can be told apart: do parts of a step touch pages of their own?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from memtui.analysis.statistics import mean
from memtui.analysis.window_merging import similarity, union
from memtui.core.page_set import PageSet

PARTS = 8  # of a step
VISIBLE = 0.1  # by how much the same parts of steps are more alike than opposite ones


@dataclass(frozen=True, slots=True)
class PartSimilarity:
    """How alike the pages are that parts of neighbouring steps touch.

    Attributes:
        same_part: mean Jaccard index of the same parts, 0..1; None, as the others, where it is not known.
        opposite_part: of opposite parts.
        visible: whether the first is notably larger.
        reason: why it is not known.
    """

    same_part: float | None = None
    opposite_part: float | None = None
    visible: bool | None = None
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def alike(
    starts_ns: Sequence[int], ends_ns: Sequence[int], pages: Sequence[PageSet | None], steps_ns: Sequence[int]
) -> PartSimilarity:
    """Compare what the parts of a step touch with the same and with the opposite part of the next step.

    A step is cut into ``PARTS`` of equal length, because one step may take longer than another; a part is the union of
    the windows whose middle lies in it.

    Args:
        starts_ns: begin of each window, rising; as ``ends_ns``.
        ends_ns: end of each window.
        pages: page set of each; None where it is not known.
        steps_ns: when steps ended, rising.

    Returns:
        How alike they are; not known where no two neighbouring steps have a window in every part.
    """
    middles = (np.array(starts_ns, float) + np.array(ends_ns, float)) / 2
    steps: list[list[PageSet] | None] = []
    fewest = None
    for first_ns, last_ns in pairwise(steps_ns):
        inside = np.flatnonzero((middles >= first_ns) & (middles < last_ns)).tolist()
        fewest = len(inside) if fewest is None else min(fewest, len(inside))
        part = ((middles[inside] - first_ns) * PARTS / (last_ns - first_ns)).astype(int).tolist()
        if len(set(part)) < PARTS or any(pages[at] is None for at in inside):
            steps.append(None)
            continue
        by_part: list[list[PageSet]] = [[] for _ in range(PARTS)]
        for at, k in zip(inside, part, strict=True):
            if (touched := pages[at]) is not None:
                by_part[k].append(touched)
        steps.append([union(some) for some in by_part])
    same, opposite = [], []
    for one, other in pairwise(steps):
        if one is not None and other is not None:
            same += [similarity(one[k], other[k]) for k in range(PARTS)]
            opposite += [similarity(one[k], other[(k + PARTS // 2) % PARTS]) for k in range(PARTS)]
    of_same, of_opposite = (mean([v for v in values if v is not None]) for values in (same, opposite))
    if of_same is None or of_opposite is None:
        why = "no two steps follow each other that were seen whole"
        if fewest is not None and fewest < PARTS:
            why += f": a step lasts as little as {fewest} windows, and {PARTS} are needed"
        return PartSimilarity(reason=why)
    return PartSimilarity(of_same, of_opposite, of_same > of_opposite + VISIBLE)
