"""Whether a schedule fits when memory is given out address by address, and a tighter problem where it does not.

A limit on bytes leaves no room for holes. As AutoTM does, the limit is cut around the ops where the layout is too
large, and the problem is solved again.
"""

from __future__ import annotations

from collections.abc import Sequence

from memtui.placement.solve.first_touch import BestFit
from memtui.placement.solve.problem import Problem
from memtui.placement.solve.schedule import Path, S

CUT = 0.1  # of the limit at most, at one time
AROUND = 10  # ops before and after an offender


def laid_out(problem: Problem, paths: Sequence[Path]) -> tuple[int, ...]:
    """While each op runs: bytes of fast memory from address 0 to the end of the last piece, given out with best fit."""
    room = BestFit()
    found = []
    for k in range(len(problem.steps)):
        held = {i for i in problem.live[k] if paths[i][k - problem.items[i].first] != (S, S)}
        for i in room.taken - held:
            room.free(i)
        for i in problem.live[k]:
            if i in held - room.taken:
                room.take(i, problem.items[i].size_bytes)
        found.append(problem.fixed_bytes[k] + room.end_bytes)
    return tuple(found)


def tightened(problem: Problem, extents: Sequence[int], whole: Sequence[int]) -> Problem:
    """The problem with less room around the ops whose extent is above the limit.

    Args:
        problem: with the limits that led to this layout.
        extents: as ``laid_out`` has them.
        whole: the limits that are to be kept.
    """
    limits = list(problem.limit_bytes)
    for k, (extent, limit) in enumerate(zip(extents, whole, strict=True)):
        if extent > limit:
            cut = max(1, min(extent - limit, int(CUT * limit)))
            for near in range(max(0, k - AROUND), min(len(limits), k + AROUND + 1)):
                limits[near] = min(limits[near], max(0, problem.limit_bytes[near] - cut))
    return problem.with_limits(tuple(limits))
