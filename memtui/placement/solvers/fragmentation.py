"""Layout of a schedule in memory, and a tighter problem where the layout does not fit.

A limit on bytes leaves no room for holes. The lifetimes of a plan are known in advance, so addresses are chosen for the
whole plan: with best fit in the order of the ops, or the largest first at the lowest address that is free for all of
its time, whichever takes less. As in AutoTM, the limit is cut around the ops where both take too much, and the problem
is solved again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memtui.placement.solvers.first_touch import BestFit
from memtui.placement.solvers.problem import Problem
from memtui.placement.solvers.schedule import Path, S

CUT = 0.1  # the most to cut at one time, as a part of the limit
AROUND = 10  # ops before and after an op above the limit


@dataclass(frozen=True, slots=True)
class Piece:
    """An item's stay in fast memory, from the first op to the last, both included."""

    item: int
    first: int
    last: int
    size_bytes: int


def pieces(problem: Problem, paths: Sequence[Path]) -> Iterator[Piece]:
    """Yield every stay in fast memory; an item that was moved out and in again may get another address."""
    for i, (item, path) in enumerate(zip(problem.items, paths, strict=True)):
        start = -1
        for k, pair in enumerate((*path, (S, S)), item.first):
            if pair != (S, S) and start < 0:
                start = k
            elif pair == (S, S) and start >= 0:
                yield Piece(i, start, k - 1, item.size_bytes)
                start = -1


def layout_extents(problem: Problem, paths: Sequence[Path]) -> tuple[int, ...]:
    """Return, for each op, the bytes of fast memory from address 0 to the end of the last piece."""
    stays = [*pieces(problem, paths)]
    layouts = (_extents(problem, stays, addresses) for addresses in (in_order(stays), largest_first(stays)))
    return min(layouts, key=max)


def in_order(stays: Sequence[Piece]) -> list[int]:
    """Return an address for each piece, allocated with best fit in the order of the ops."""
    room, addresses = BestFit(), [0] * len(stays)
    for n in sorted(range(len(stays)), key=lambda n: stays[n].first):
        for other in [key for key in room.taken if stays[key].last < stays[n].first]:
            room.free(other)
        room.take(n, stays[n].size_bytes)
        addresses[n] = room.address(n)
    return addresses


def largest_first(stays: Sequence[Piece]) -> list[int]:
    """Return an address for each piece: the lowest that is free for its whole stay, the largest piece first."""
    addresses = [0] * len(stays)
    placed: list[int] = []
    for n in sorted(range(len(stays)), key=lambda n: (-stays[n].size_bytes, stays[n].first)):
        piece, address = stays[n], 0
        overlapping = (m for m in placed if stays[m].first <= piece.last and piece.first <= stays[m].last)
        for m in sorted(overlapping, key=lambda m: addresses[m]):
            if addresses[m] - address >= piece.size_bytes:
                break
            address = max(address, addresses[m] + stays[m].size_bytes)
        addresses[n] = address
        placed.append(n)
    return addresses


def _extents(problem: Problem, stays: Sequence[Piece], addresses: Sequence[int]) -> tuple[int, ...]:
    ends = [0] * len(problem.ops)
    for piece, address in zip(stays, addresses, strict=True):
        for k in range(piece.first, piece.last + 1):
            ends[k] = max(ends[k], address + piece.size_bytes)
    return tuple(fixed + end for fixed, end in zip(problem.fixed_bytes, ends, strict=True))


def tightened(problem: Problem, extents: Sequence[int], whole: Sequence[int]) -> Problem:
    """Return the problem with less room around the ops whose extent is above the limit.

    Args:
        problem: the problem, with the limits that led to this layout.
        extents: as ``layout_extents`` returns them.
        whole: the limits that the layout has to keep.
    """
    limits = list(problem.limit_bytes)
    for k, (extent, limit) in enumerate(zip(extents, whole, strict=True)):
        if extent > limit:
            cut = max(1, min(extent - limit, int(CUT * limit)))
            for near in range(max(0, k - AROUND), min(len(limits), k + AROUND + 1)):
                limits[near] = min(limits[near], max(0, problem.limit_bytes[near] - cut))
    return problem.with_limits(tuple(limits))
