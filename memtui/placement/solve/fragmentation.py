"""Whether a schedule fits when memory is given out address by address, and a tighter problem where it does not.

A limit on bytes leaves no room for holes. What a plan needs when is known before, so addresses are chosen for all of
it: with best fit in the order of the ops, or the largest first at the lowest address that is free for all of its time,
whichever takes less. As AutoTM does, the limit is cut around the ops where both take too much, and the problem is
solved again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memtui.placement.solve.first_touch import BestFit
from memtui.placement.solve.problem import Problem
from memtui.placement.solve.schedule import Path, S

CUT = 0.1  # of the limit at most, at one time
AROUND = 10  # ops before and after an offender


@dataclass(frozen=True, slots=True)
class Piece:
    """An item's stay in fast memory: from the first op to the last, included, of a number of bytes."""

    item: int
    first: int
    last: int
    size_bytes: int


def pieces(problem: Problem, paths: Sequence[Path]) -> Iterator[Piece]:
    """Return every stay in fast memory; what was moved out and in again may lie elsewhere."""
    for i, (item, path) in enumerate(zip(problem.items, paths, strict=True)):
        start = -1
        for k, pair in enumerate((*path, (S, S)), item.first):
            if pair != (S, S) and start < 0:
                start = k
            elif pair == (S, S) and start >= 0:
                yield Piece(i, start, k - 1, item.size_bytes)
                start = -1


def laid_out(problem: Problem, paths: Sequence[Path]) -> tuple[int, ...]:
    """While each op runs: bytes of fast memory from address 0 to the end of the last piece."""
    stays = [*pieces(problem, paths)]
    layouts = (_extents(problem, stays, addresses) for addresses in (in_order(stays), largest_first(stays)))
    return min(layouts, key=max)


def in_order(stays: Sequence[Piece]) -> list[int]:
    """Return an address for each piece, given out with best fit as the ops come."""
    room, addresses = BestFit(), [0] * len(stays)
    for n in sorted(range(len(stays)), key=lambda n: stays[n].first):
        for other in [key for key in room.taken if stays[key].last < stays[n].first]:
            room.free(other)
        room.take(n, stays[n].size_bytes)
        addresses[n] = room.address(n)
    return addresses


def largest_first(stays: Sequence[Piece]) -> list[int]:
    """Return an address for each piece: the lowest that is free for all of its time, the largest piece first."""
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
    ends = [0] * len(problem.steps)
    for piece, address in zip(stays, addresses, strict=True):
        for k in range(piece.first, piece.last + 1):
            ends[k] = max(ends[k], address + piece.size_bytes)
    return tuple(fixed + end for fixed, end in zip(problem.fixed_bytes, ends, strict=True))


def tightened(problem: Problem, extents: Sequence[int], whole: Sequence[int]) -> Problem:
    """Return the problem with less room around the ops whose extent is above the limit.

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
