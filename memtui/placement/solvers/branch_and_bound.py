"""The optimum without an external solver: branch and bound over the ops, for graphs with few tensors alive at a time.

A state is a placement of the items that are alive at an op. Of all paths that lead to one state only the cheapest is
continued, and a path that cannot beat the incumbent is pruned. The search is exact for placements that stay and for
those with moves between ops; the number of states limits it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from memtui.placement.solvers.problem import Item, Problem
from memtui.placement.solvers.schedule import B, F, Path, S, State, after, cost, path_of, without_unused_copies

MOST_STATES = 200_000  # of one op; these take some seconds
_Where = tuple[State, ...]  # states of the items that are alive, in the order of ``Problem.live``
_SLACK = 1e-9  # relative; sums in another order differ in their last digits


class TooLarge(Exception):
    """The graph has more states than can be searched."""


def exact(problem: Problem, incumbent: Sequence[Path], *, moves: bool, most: int = MOST_STATES) -> list[Path] | None:
    """Return the cheapest placement within the limits; None where there is none.

    Args:
        problem: the problem to solve.
        incumbent: a placement to beat; it need not fit.
        moves: whether items may be moved between ops.
        most: the most states to search, for one op.

    Raises:
        TooLarge: an op has more states.
    """
    start = cost(problem, incumbent)
    best_ns = start.total_ns if start.total_ns is not None and start.fits(problem) else math.inf
    left_ns = [0.0]
    for op in reversed(problem.ops):
        left_ns.append(left_ns[-1] + op.least_ns)
    left_ns.reverse()
    # For each op: state at its start -> (cost up to its end, state at the end of the op before).
    history: list[dict[_Where, tuple[float, _Where]]] = []
    ends: dict[_Where, float] = {(): 0.0}
    alive: tuple[int, ...] = ()
    for k in range(len(problem.ops)):
        starts = _start_states(problem, k, alive, ends, moves)
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


def _start_states(
    problem: Problem, k: int, alive: tuple[int, ...], ends: dict[_Where, float], moves: bool
) -> dict[_Where, tuple[float, _Where]]:
    """Return every state at the start of an op: its cost, and the state before. Moves come before the op.

    An item leaves right after an access, or stays until the next access; it comes in right before an access. Any other
    moment costs the same and occupies fast memory for longer.
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
    """Return the possible states of an item at the start of an op, with the cost of reaching each."""
    options = [(was, 0.0)]
    if moves and item.movable and was != S and k - 1 in item.accesses:
        options.append((S, item.out_ns or 0.0 if was == F else 0.0))
    if moves and item.movable and was == S and k in item.accesses:
        options.append((B, item.in_ns or 0.0))
    return options


def _time_ns(problem: Problem, k: int, where: _Where) -> float:
    op, live = problem.ops[k], problem.live[k]
    return op.time_ns.get(tuple(where[live.index(i)] != S for i in op.items), math.inf)


def _walk_back(problem: Problem, history: list[dict[_Where, tuple[float, _Where]]]) -> list[Path]:
    """Return the cheapest paths, followed from the last op to the first."""
    states: list[list[State]] = [[] for _ in problem.items]
    end: _Where = ()
    for k in range(len(problem.ops) - 1, -1, -1):
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
    return [without_unused_copies(path_of(item, states[i][::-1])) for i, item in enumerate(problem.items)]
