"""The baseline: every tensor, in the order of the ops, goes to fast memory while there is room, and stays there.

An operating system does the same when it fills the memory of the near node first. As in AutoTM, fast memory is
allocated with best fit, so that holes count.
"""

from __future__ import annotations

from collections.abc import Iterable

from memtui.placement.solvers.problem import Problem
from memtui.placement.solvers.schedule import F, Path, S, fixed_path


class BestFit:
    """A best-fit allocator of addresses from 0: it takes the smallest hole that fits. Sizes are whole pages."""

    def __init__(self, size_bytes: int | None = None) -> None:
        """``size_bytes``: size of the memory; None: unlimited."""
        self._size = size_bytes
        self._taken: dict[int, tuple[int, int]] = {}

    def take(self, key: int, size_bytes: int) -> bool:
        """Allocate room for an item; return False where there is none."""
        best: tuple[int, int] | None = None
        end = 0
        for start, until in sorted(self._taken.values()):
            if start - end >= size_bytes and (best is None or start - end < best[0]):
                best = start - end, end
            end = max(end, until)
        if best is None:
            if self._size is not None and end + size_bytes > self._size:
                return False
            best = 0, end
        self._taken[key] = best[1], best[1] + size_bytes
        return True

    def free(self, key: int) -> None:
        """Free the room of an item; an item without room is ignored."""
        self._taken.pop(key, None)

    @property
    def taken(self) -> set[int]:
        """The items that have room."""
        return {*self._taken}

    def address(self, key: int) -> int:
        """Return the first address of an item. Raises KeyError for an item without room."""
        return self._taken[key][0]


def first_touch(problem: Problem) -> list[Path]:
    """Return the path of each item. Storages without a choice of pool reduce the limit first."""
    room = BestFit(max(0, min(problem.room_bytes, default=0)))
    paths: dict[int, Path] = {}
    for k in range(len(problem.ops)):
        for i in _born(problem, k):
            item = problem.items[i]
            paths[i] = fixed_path(item, F if room.take(i, item.size_bytes) else S)
        for i in problem.live[k]:
            if problem.items[i].last == k:
                room.free(i)
    return [paths[i] for i in range(len(problem.items))]


def _born(problem: Problem, k: int) -> Iterable[int]:
    return (i for i in problem.live[k] if problem.items[i].first == k)
