"""The optimum without a solver's help: branch and bound over the ops, for graphs with little alive at a time.

Op by op, every way to place what is alive is a state; of all ways that lead to one state the cheapest is kept, and one
that cannot become better than a placement that is known is left out. Exact for placements that stay and for those with
moves between ops; the number of states is what limits it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from memtui.placement.solve.problem import Item, Problem
from memtui.placement.solve.schedule import B, F, Path, S, State, after, cost, path_of, tidied

MOST_STATES = 200_000  # of one op: some seconds
_Where = tuple[State, ...]  # of what is alive, in the order of ``Problem.live``
_SLACK = 1e-9  # sums in another order differ in their last digits


class TooLarge(Exception):
    """The graph has more states than can be looked at."""


def exact(problem: Problem, incumbent: Sequence[Path], *, moves: bool, most: int = MOST_STATES) -> list[Path] | None:
    """Return the cheapest placement within the limits; None where there is none.

    Args:
        problem: what is placed.
        incumbent: some placement, to be better than; it need not fit.
        moves: whether items may be moved between ops.
        most: states that are looked at.

    Raises:
        TooLarge: that is not enough.
    """
    start = cost(problem, incumbent)
    best_ns = start.total_ns if start.total_ns is not None and start.fits(problem) else math.inf
    left_ns = [0.0]
    for step in reversed(problem.steps):
        left_ns.append(left_ns[-1] + step.least_ns)
    left_ns.reverse()
    # For each op: state at its begin -> (cost up to its end, state at the end of the one before).
    history: list[dict[_Where, tuple[float, _Where]]] = []
    ends: dict[_Where, float] = {(): 0.0}
    alive: tuple[int, ...] = ()
    for k in range(len(problem.steps)):
        starts = _starts(problem, k, alive, ends, moves)
        most_ns = best_ns * (1 + _SLACK) - left_ns[k + 1]
        history.append({})
        ends, alive = {}, tuple(i for i in problem.live[k] if problem.items[i].last > k)
        keep = [n for n, i in enumerate(problem.live[k]) if problem.items[i].last > k]
        for where, (so_far_ns, before) in starts.items():
            total_ns = so_far_ns + _time_ns(problem, k, where)
            if total_ns > most_ns or total_ns == math.inf:
                continue
            history[k][where] = total_ns, before
            end = tuple(after(problem.items[problem.live[k][n]], k, where[n]) for n in keep)
            if total_ns < ends.get(end, math.inf):
                ends[end] = total_ns
        if len(history[k]) > most:
            raise TooLarge
        if not ends:
            return None
    return _walk_back(problem, history)


def _starts(
    problem: Problem, k: int, alive: tuple[int, ...], ends: dict[_Where, float], moves: bool
) -> dict[_Where, tuple[float, _Where]]:
    """Return every state that an op can begin with: its cost, and the state before. Moves come before the op.

    An item leaves right after it was touched, or stays until it is touched again; it comes in right before. Any other
    moment costs the same and holds fast memory for longer.
    """
    items, live = problem.items, problem.live[k]
    room = problem.room_bytes[k]
    parts: list[tuple[_Where, int, float, _Where]] = [((), 0, so_far, where) for where, so_far in ends.items()]
    for i in live:
        item, grown = items[i], []
        position = alive.index(i) if i in alive else -1
        for where, fast_bytes, so_far, before in parts:
            options = [(F, 0.0), (S, 0.0)] if position < 0 else _options(item, k, before[position], moves)
            for state, ns in options:
                more = fast_bytes + (item.size_bytes if state != S else 0)
                if more <= room:
                    grown.append(((*where, state), more, so_far + ns, before))
        parts = grown
        if len(parts) > 4 * MOST_STATES:
            raise TooLarge
    cheapest: dict[_Where, tuple[float, _Where]] = {}
    for where, _, so_far, before in parts:
        if room >= 0 and (where not in cheapest or so_far < cheapest[where][0]):
            cheapest[where] = so_far, before
    return cheapest


def _options(item: Item, k: int, was: State, moves: bool) -> list[tuple[State, float]]:
    """Return the states that an item can be in when an op begins, with what it costs to come there."""
    options = [(was, 0.0)]
    if moves and item.movable and was != S and k - 1 in item.accesses:
        options.append((S, item.out_ns or 0.0 if was == F else 0.0))
    if moves and item.movable and was == S and k in item.accesses:
        options.append((B, item.in_ns or 0.0))
    return options


def _time_ns(problem: Problem, k: int, where: _Where) -> float:
    step, live = problem.steps[k], problem.live[k]
    return step.time_ns.get(tuple(where[live.index(i)] != S for i in step.items), math.inf)


def _walk_back(problem: Problem, history: list[dict[_Where, tuple[float, _Where]]]) -> list[Path]:
    """Return the cheapest way, from its last op to its first."""
    states: list[list[State]] = [[] for _ in problem.items]
    end: _Where = ()
    for k in range(len(problem.steps) - 1, -1, -1):
        live = problem.live[k]
        keep = [n for n, i in enumerate(live) if problem.items[i].last > k]
        fitting = (
            (entry, where)
            for where, entry in history[k].items()
            if tuple(after(problem.items[live[n]], k, where[n]) for n in keep) == end
        )
        (_, end), where = min(fitting, key=lambda pair: pair[0][0])
        for n, i in enumerate(live):
            states[i].append(where[n])
    return [tidied(path_of(item, states[i][::-1])) for i, item in enumerate(problem.items)]
