"""Schedules: the state of every item at every op, and the cost of that. No other module adds up costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from memtui.placement.plan import Move, Span
from memtui.placement.solvers.problem import Item, Problem

F, B, S = "FBS"  # in fast memory only; there, with a copy in slow memory that holds the same; in slow memory only
State = str
Path = tuple[tuple[State, State], ...]
"""The state of an item at the start and at the end of each op of its life. The two differ where a copy was made while
the op ran, or where the op wrote the item, so that the copy in slow memory is stale."""


def fixed_path(item: Item, state: State) -> Path:
    """Return the path of an item that lies in one pool for all its life."""
    return ((state, state),) * (item.last - item.first + 1)


def path_of(item: Item, starts: Sequence[State]) -> Path:
    """Return a path without copies while ops run, from the states at the start of each op."""
    return tuple((state, after(item, item.first + n, state)) for n, state in enumerate(starts))


def after(item: Item, k: int, state: State) -> State:
    """Return the state of an item after an op, from the state at the start of the op."""
    return F if state == B and k in item.writes else state


def without_unused_copies(path: Sequence[tuple[State, State]]) -> Path:
    """Return the path without copies in slow memory that are not used again."""
    states: list[State] = []
    wanted = False
    for state in reversed([state for pair in path for state in pair]):
        wanted = state == S or (state == B and wanted)
        states.append(F if state == B and not wanted else state)
    states.reverse()
    return tuple(zip(states[::2], states[1::2], strict=True))


def needs(before: State, now: State) -> str:
    """Return ``out`` or ``in`` where a change of state takes a copy; empty otherwise."""
    if before == S and now != S:
        return "in"
    return "out" if before == F and now != F else ""


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of a schedule.

    Attributes:
        total_ns: time of ops and moves; None where an op was not measured so, or a move is impossible.
        moves: all moves.
        fast_bytes: for each op: bytes in fast memory, including those without a choice of pool.
        slow_bytes: for each op: bytes in slow memory, copies included.
    """

    total_ns: float | None
    moves: tuple[Move, ...]
    fast_bytes: tuple[int, ...]
    slow_bytes: tuple[int, ...]

    def fits(self, problem: Problem) -> bool:
        return all(used <= limit for used, limit in zip(self.fast_bytes, problem.limit_bytes, strict=True))


def cost(problem: Problem, paths: Sequence[Path]) -> Cost:
    """Add up a schedule: a path for each item."""
    possible = True
    fast, slow = list(problem.fixed_bytes), [0] * len(problem.ops)
    moves: list[Move] = []
    meanwhile_ns = [0.0] * len(problem.ops)
    for item, path in zip(problem.items, paths, strict=True):
        for k, pair in enumerate(path, item.first):
            fast[k] += item.size_bytes if pair != (S, S) else 0
            slow[k] += item.size_bytes if pair != (F, F) else 0
        for move in _moves(problem, item, path):
            possible = possible and move.time_ns >= 0
            moves.append(move)
            if move.overlapped:
                meanwhile_ns[move.op] += move.time_ns
    total_ns = sum(move.start_ns if move.overlapped else move.time_ns for move in moves)
    for k, op in enumerate(problem.ops):
        where = tuple(paths[i][k - problem.items[i].first][0] != S for i in op.items)
        ns = op.time_ns.get(where)
        possible = possible and ns is not None
        total_ns += max(ns or 0.0, meanwhile_ns[k])
    moves.sort(key=lambda move: (move.op, move.overlapped))
    return Cost(total_ns if possible else None, tuple(moves), tuple(fast), tuple(slow))


def spans(problem: Problem, paths: Sequence[Path]) -> Iterator[Span]:
    """Yield the spans of each item. An item that is moved while an op runs is in its old pool for that op."""
    for item, path in zip(problem.items, paths, strict=True):
        where = [state != S for state, _ in path]
        start = 0
        for n in range(1, len(where) + 1):
            if n == len(where) or where[n] != where[start]:
                pool = problem.fast.name if where[start] else problem.slow.name
                yield Span(item.name, pool, item.first + start, item.first + n - 1)
                start = n


def _moves(problem: Problem, item: Item, path: Path) -> Iterator[Move]:
    """Yield the moves of an item; an impossible move takes -1 ns."""
    times: Mapping[tuple[str, bool], float | None] = {
        ("out", False): item.out_ns, ("in", False): item.in_ns,
        ("out", True): item.async_out_ns, ("in", True): item.async_in_ns,
    }  # fmt: skip
    before = path[0][0]
    for k, (start, end) in enumerate(path, item.first):
        for was, now, meanwhile in ((before, start, False), (start, end, True)):
            if way := needs(was, now):
                source, target = problem.fast.name, problem.slow.name
                if way == "in":
                    source, target = target, source
                # The op itself uses the item then.
                ns = None if meanwhile and k in item.accesses else times[way, meanwhile]
                ns, start_ns = -1.0 if ns is None else ns, item.async_start_ns if meanwhile else 0.0
                yield Move(item.name, source, target, k, item.copied_bytes, ns, meanwhile, start_ns)
        before = end
