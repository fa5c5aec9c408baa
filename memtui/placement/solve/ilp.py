"""Placement as an integer linear program, after AutoTM (Hildebrand et al., ASPLOS 2020, section 4).

For every op one configuration is chosen, tied to where its tensors are; the bytes in fast memory stay below the limit
while each op runs. AutoTM has one flow per tensor through a graph of states; here that flow is written as one 0/1
variable for each stretch of ops between two moments at which moving can be of use: before and after an op that touches
the tensor. A copy out of fast memory is paid once, until the tensor is written again; a copy into it each time.

With moves that overlap ops there are two variables for an op that does not touch the tensor, for its begin and its end,
and the op takes as long as the longer of it and its moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memtui.placement.plan import ASYNC, STATIC
from memtui.placement.solve.linear import Found, Linear
from memtui.placement.solve.problem import Item, Problem
from memtui.placement.solve.schedule import B, F, Path, S, State, after, fixed_path, tidied

NEAR = 15  # ops before and after one that touches a tensor, during which it may be moved, as in AutoTM


@dataclass(frozen=True, slots=True)
class _At:
    """Variables of an item while one op runs, each 1 for yes.

    Attributes:
        begin: in fast memory when the op begins.
        end: and when it ends; the same variable as ``begin`` where nothing is moved meanwhile.
        held: takes room in fast memory; ``begin`` where that is the same.
        copied: the copy in slow memory is valid when the op begins; None: follows from ``begin`` and from moves.
        copied_after: the same when it ends.
    """

    begin: int
    end: int
    held: int
    copied: int | None = None
    copied_after: int | None = None


class Program:
    """The program of a problem and formulation."""

    def __init__(self, problem: Problem, formulation: str) -> None:
        self._problem, self._formulation = problem, formulation
        self._linear = Linear()
        self._at: list[list[_At]] = []
        self._meanwhile: list[list[tuple[int, float]]] = [[] for _ in problem.steps]  # variables of moves, and their ns
        for item in problem.items:
            if formulation == ASYNC and item.movable_meanwhile:
                at = self._overlapping(item)
            elif formulation != STATIC and item.movable:
                at = self._moving(item)
            else:
                at = [_same(self._linear.binary())] * (item.last - item.first + 1)
            self._at.append(at)
        for k in range(len(problem.steps)):
            self._op(k)
        self._limits()

    def solve(self, time_limit_s: float, gap: float) -> tuple[list[Path] | None, Found]:
        """The paths that were found, and what the solver says. Raises linear.Infeasible."""
        found = self._linear.solve(time_limit_s, gap)
        if found.values is None:
            return None, found
        values = found.values > 0.5
        return [self._path(item, at, values) for item, at in zip(self._problem.items, self._at, strict=True)], found

    def _moving(self, item: Item) -> list[_At]:
        """A variable for each touching op and for each stretch between two; moves come before ops."""
        linear = self._linear
        at: list[_At] = []
        for k in range(item.first, item.last + 1):
            new = k in item.accesses or k - 1 in item.accesses
            at.append(_same(linear.binary()) if new else at[-1])
        out, written = -1, at[0].begin
        for n in range(1, len(at)):
            before, now = at[n - 1].begin, at[n].begin
            k = item.first + n
            if k - 1 in item.writes:  # what is copied from here on is copied anew
                out, written = linear.part(item.out_ns or 0.0), before
            if before != now:
                moved_in = linear.part(item.in_ns or 0.0)
                linear.row([(moved_in, 1), (now, -1), (before, 1)], low=0)
                linear.row([(out, 1), (written, -1), (now, 1)], low=0)
        return at

    def _overlapping(self, item: Item) -> list[_At]:
        """Begin and end of each op near one that touches it, whether a copy is valid, and what is moved when."""
        linear = self._linear
        at: list[_At] = []
        for k in range(item.first, item.last + 1):
            near = _near(item, k)
            if not near and not _near(item, k - 1):
                at.append(at[-1])
                continue
            begin = linear.binary()
            copied = linear.binary()
            linear.row([(copied, 1), (begin, 1)], low=1)  # what is not in fast memory is in slow memory
            if k in item.writes:
                copied_after = linear.part()  # valid where it was written there, and nowhere else
                linear.row([(copied_after, 1), (begin, 1)], low=1, high=1)
                at.append(_At(begin, begin, begin, copied, copied_after))
            elif k in item.accesses:
                at.append(_At(begin, begin, begin, copied, copied))
            elif near:
                end, held, copied_after = linear.binary(), linear.part(), linear.binary()
                linear.row([(copied_after, 1), (end, 1)], low=1)
                linear.row([(held, 1), (begin, -1)], low=0)
                linear.row([(held, 1), (end, -1)], low=0)
                self._copies(item, k, (begin, copied), (end, copied_after), meanwhile=True)
                at.append(_At(begin, end, held, copied, copied_after))
            else:
                at.append(_At(begin, begin, begin, copied, copied))
        for n in range(1, len(at)):
            before, now = at[n - 1], at[n]
            if before is not now and before.copied_after is not None and now.copied is not None:
                k = item.first + n
                self._copies(item, k, (before.end, before.copied_after), (now.begin, now.copied), meanwhile=False)
        return at

    def _copies(self, item: Item, k: int, before: tuple[int, int], now: tuple[int, int], *, meanwhile: bool) -> None:
        """What a change of state costs. States are (in fast memory, copied to slow)."""
        linear = self._linear
        costs = (item.async_in_ns, item.async_out_ns) if meanwhile else (item.in_ns, item.out_ns)
        for ns, was, becomes in zip(costs, before, now, strict=True):
            if ns is None:
                linear.row([(becomes, 1), (was, -1)], high=0)
                continue
            moved = linear.part(0.0 if meanwhile else ns)
            linear.row([(moved, 1), (becomes, -1), (was, 1)], low=0)
            if meanwhile:
                self._meanwhile[k].append((moved, ns))

    def _op(self, k: int) -> None:
        """The time of an op by where its items are, and what its moves take longer."""
        linear, step = self._linear, self._problem.steps[k]
        where = [self._at[i][k - self._problem.items[i].first].begin for i in step.items]
        times: list[tuple[int, float]] = []  # variables, and what each adds to the constant
        constant = 0.0
        if not where:
            constant = step.time_ns[()]
        elif len(where) == 1 and len(step.time_ns) == 2:
            constant = step.time_ns[False,]
            times.append((where[0], step.time_ns[True,] - constant))
        else:
            chosen = {places: linear.part() for places in step.time_ns}
            linear.row([(variable, 1) for variable in chosen.values()], low=1, high=1)
            for n, variable in enumerate(where):
                terms = [(one, 1.0) for places, one in chosen.items() if places[n]]
                linear.row([*terms, (variable, -1.0)], low=0, high=0)
            times += [(chosen[places], ns) for places, ns in step.time_ns.items()]
        linear.constant += constant
        for variable, ns in times:
            linear.pay(variable, ns)
        if self._meanwhile[k]:
            longer = linear.amount(1.0)
            terms = [(variable, -ns) for variable, ns in self._meanwhile[k]]
            linear.row([(longer, 1), *times, *terms], low=-constant)

    def _limits(self) -> None:
        """The bytes in fast memory while each op runs; ops with the same variables share a row."""
        problem = self._problem
        tightest: dict[tuple[tuple[int, int], ...], int] = {}
        for k, live in enumerate(problem.live):
            terms = tuple((self._at[i][k - problem.items[i].first].held, problem.items[i].size_bytes) for i in live)
            if sum(size for _, size in terms) > problem.room_bytes[k]:
                tightest[terms] = min(problem.room_bytes[k], tightest.get(terms, problem.room_bytes[k]))
        for terms, room in _not_implied(tightest):
            scale = 1.0 / max(1, room)
            self._linear.row([(variable, size * scale) for variable, size in terms], high=room * scale)

    def _path(self, item: Item, at: Sequence[_At], values: np.ndarray) -> Path:
        """States of an item as the variables have them."""
        if self._formulation == STATIC:
            return fixed_path(item, F if values[at[0].begin] else S)
        path: list[tuple[State, State]] = []
        for n, now in enumerate(at):
            k = item.first + n
            before = path[-1][1] if path else ""
            begin = bool(values[now.begin])
            copied = not begin or before in (B, S) or (n > 0 and _yes(values, now.copied))
            state = _state(begin, copied)
            end = bool(values[now.end])
            meanwhile = _state(end, copied or not end or _yes(values, now.copied_after))
            path.append((state, after(item, k, state) if k in item.accesses else meanwhile))
        return tidied(path)


def _same(variable: int) -> _At:
    return _At(variable, variable, variable)


def _near(item: Item, k: int) -> bool:
    return any(abs(k - other) <= NEAR for other in item.accesses)


def _yes(values: np.ndarray, variable: int | None) -> bool:
    return variable is not None and bool(values[variable])


def _state(fast: bool, copied: bool) -> State:
    return (B if copied else F) if fast else S


def _not_implied(rows: dict[tuple[tuple[int, int], ...], int]) -> list[tuple[tuple[tuple[int, int], ...], int]]:
    """Rows without those that a longer neighbour with no more room implies."""
    listed = [(frozenset(terms), terms, room) for terms, room in rows.items()]
    kept = []
    for n, (terms, row, room) in enumerate(listed):
        beside = [listed[m] for m in (n - 1, n + 1) if 0 <= m < len(listed)]
        if not any(terms < other and more <= room for other, _, more in beside):
            kept.append((row, room))
    return kept
