"""Variables for the route of an item: its pool in the ops that access it, and the moves between two of these ops.

Moves are useful at few moments. Without overlap an item leaves right after an op that accesses it and comes back right
before the next such op: any other moment costs the same and occupies fast memory for longer. With overlap an item
leaves or comes back once between two such ops, so one 0/1 variable for each copy is enough: the item has room in fast
memory up to the op during which it leaves, and from the op during which it comes back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from memtui.placement.solvers.milp import Linear
from memtui.placement.solvers.problem import Item
from memtui.placement.solvers.schedule import B, F, Path, S, State, after, without_unused_copies


@dataclass(frozen=True, slots=True)
class Gap:
    """Variables of an item from one op that accesses it to the next such op; each is 1 where its statement is true.

    Attributes:
        stays: the item is in fast memory all the time.
        leaves: by op: it is copied out during that op, and leaves fast memory at the end of the op.
        comes: by op: it is copied in during that op, and takes room in fast memory from the start of the op.
        copied: by op: it is copied out during that op, but stays, so that it can leave later without a copy.
        to_leave: by op of ``leaves``: it is copied out during that op or a later one.
        came: by op of ``comes``: it was copied in during that op or an earlier one.
    """

    stays: int
    leaves: Mapping[int, int]
    comes: Mapping[int, int]
    copied: Mapping[int, int]
    to_leave: Mapping[int, int]
    came: Mapping[int, int]

    def fast_variables(self, k: int) -> tuple[int, ...]:
        """Return the variables of which one is 1 if the item is in fast memory while an op between the two runs."""
        to_leave = min((op for op in self.to_leave if op >= k), default=None)
        came = max((op for op in self.came if op <= k), default=None)
        variables = [self.stays]
        if to_leave is not None:
            variables.append(self.to_leave[to_leave])
        if came is not None:
            variables.append(self.came[came])
        return tuple(variables)


@dataclass(frozen=True, slots=True)
class Route:
    """Variables of an item.

    Attributes:
        item: the item.
        fast: by op that accesses the item: whether the item is in fast memory for that op.
        gaps: by op that accesses the item, except the last one: the gap until the next such op; empty where the item
            never moves.
    """

    item: Item
    fast: Mapping[int, int]
    gaps: Mapping[int, Gap]

    def fast_variables(self, k: int) -> tuple[int, ...]:
        """Return the variables of which one is 1 if the item is in fast memory while an op of its life runs."""
        if k in self.fast:
            return (self.fast[k],)
        before = max(op for op in self.item.accesses if op < k)
        return self.gaps[before].fast_variables(k) if before in self.gaps else (self.fast[before],)

    def overlapped(self) -> Iterator[tuple[int, int, float]]:
        """Yield every copy during an op: the op, the variable, and the time of the copy (ns)."""
        for gap in self.gaps.values():
            for moves, ns in (
                (gap.leaves, self.item.async_out_ns), (gap.copied, self.item.async_out_ns),
                (gap.comes, self.item.async_in_ns),
            ):  # fmt: skip
                yield from ((op, variable, ns or 0.0) for op, variable in moves.items())

    def path(self, values: np.ndarray) -> Path:
        """Return the path that the values of all variables (true or false) describe."""
        path: list[tuple[State, State]] = []
        valid = False  # whether there is a valid copy in slow memory
        accesses = self.item.accesses
        for k, following in zip(accesses, (*accesses[1:], accesses[-1] + 1), strict=True):
            fast = bool(values[self.fast[k]])
            valid = valid or not fast
            start = _state(fast, valid)
            path.append((start, after(self.item, k, start)))
            valid = path[-1][1] != F
            for op in range(k + 1, following):
                path.append(_between(self.gaps.get(k), op, path[-1][1], values))
                valid = path[-1][1] != F
        return without_unused_copies(path)


def staying(linear: Linear, item: Item) -> Route:
    """Return the choice of one pool for all of an item's life."""
    return Route(item, dict.fromkeys(item.accesses, linear.binary()), {})


def moving(linear: Linear, item: Item, longest_ns: Sequence[float] | None = None, nearest: int | None = None) -> Route:
    """Return a route with moves between ops, and during ops.

    Args:
        linear: gets the variables, the costs of moves between ops, and the rows.
        item: the item.
        longest_ns: the longest time of each op; None: no moves during ops.
        nearest: the item leaves only during one of this number of ops after an access, and comes only during one of
            this number of ops before the next access; None: during any op.
    """
    fast = {k: linear.binary() for k in item.accesses}
    gaps: dict[int, Gap] = {}
    copies: list[int] = []  # of the content that was written last
    written = item.first
    for k, following in pairwise(item.accesses):
        if k in item.writes:
            copies, written = [], k
        gap = gaps[k] = _gap(linear, item, range(k, following + 1), longest_ns, nearest)
        leaves, comes, copied = ([*moves.values()] for moves in (gap.leaves, gap.comes, gap.copied))
        if item.in_ns is not None:
            comes.append(linear.part(item.in_ns))
        if item.out_ns is not None:
            copies.append(linear.part(item.out_ns))
        copies += leaves
        linear.row([(fast[k], 1), (gap.stays, -1), *((move, -1) for move in leaves)], low=0)
        linear.row([(fast[following], 1), (gap.stays, -1), *((move, -1) for move in comes)], low=0, high=0)
        # An item that leaves has a copy: it was written in slow memory, or copied before, or is copied now.
        linear.row([(gap.stays, 1), (fast[written], -1), *((move, 1) for move in copies)], low=0)
        if copied:
            linear.row([(gap.stays, 1), *((move, -1) for move in copied)], low=0)
        copies += copied
    return Route(item, fast, gaps)


def _gap(linear: Linear, item: Item, ops: range, longest_ns: Sequence[float] | None, nearest: int | None) -> Gap:
    """Return the gap from one op that accesses the item to the next one, both included."""
    leaves, comes, copied = {}, {}, {}
    if longest_ns is not None:
        leaving = _paying_ops(item.async_out_ns, item.async_start_ns, item.out_ns, ops, longest_ns)
        coming = _paying_ops(item.async_in_ns, item.async_start_ns, item.in_ns, ops, longest_ns)
        leaves = {op: linear.binary() for op in leaving[:nearest]}
        comes = {op: linear.binary() for op in coming[-nearest if nearest else None :]}
    if ops[-1] not in item.writes and ops[-1] != item.last:
        copied = {op: linear.binary() for op in leaves}
    to_leave = _so_far(linear, dict(reversed(leaves.items())))
    return Gap(linear.binary(), leaves, comes, copied, to_leave, _so_far(linear, comes))


def _paying_ops(
    ns: float | None, start_ns: float, between_ns: float | None, ops: range, longest_ns: Sequence[float]
) -> list[int]:
    """Return the ops between two accesses during which a copy may pay.

    An op takes the longer of its own time and that of its moves, and the time of starting each move. Leaving out a move
    that is longer than the op saves at least the difference and the time of starting it: where the same move between
    ops takes no more than that, it is better, and needs no more room.
    """
    if ns is None:
        return []
    return [op for op in ops[1:-1] if between_ns is None or start_ns + max(0.0, ns - longest_ns[op]) < between_ns]


def _between(gap: Gap | None, op: int, before: State, values: np.ndarray) -> tuple[State, State]:
    """Return the states at the start and the end of an op that does not access the item, from the state before."""
    if gap is None:
        return before, before
    leaves, comes, copied = (
        next((move_op for move_op, variable in moves.items() if values[variable]), math.inf)
        for moves in (gap.leaves, gap.comes, gap.copied)
    )
    if values[gap.stays] or comes <= leaves < math.inf:
        return before, B if op in (leaves, copied) else before
    if op <= leaves < math.inf:
        return before, S if op == leaves else before
    return S if op <= comes else B, B if op >= comes else S


def _so_far(linear: Linear, moves: Mapping[int, int]) -> dict[int, int]:
    """Return by op a variable for whether one of the moves up to that op was made, so that rows stay short."""
    cumulative: dict[int, int] = {}
    before: int | None = None
    for op, move in moves.items():
        cumulative[op] = move
        if before is not None:
            cumulative[op] = linear.part()
            linear.row([(cumulative[op], 1), (before, -1), (move, -1)], low=0, high=0)
        before = cumulative[op]
    return cumulative


def _state(fast: bool, valid: bool) -> State:
    return (B if valid else F) if fast else S
