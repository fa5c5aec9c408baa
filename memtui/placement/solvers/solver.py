"""Plans for a profile: chooses the solver, compares with the baseline, and checks the layout in memory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from memtui.core.errors import UserError
from memtui.core.units import size
from memtui.placement.plan import ASYNC, BASELINE, FEASIBLE, FIRST_TOUCH, OPTIMAL, STATIC, SYNC, PlacementPlan
from memtui.placement.profile import ISOLATED, SIMULTANEOUS, SINGLE, Profile
from memtui.placement.solvers.branch_and_bound import TooLarge, exact
from memtui.placement.solvers.first_touch import first_touch
from memtui.placement.solvers.fragmentation import layout_extents, tightened
from memtui.placement.solvers.problem import PAGE_BYTES, Problem, check, problem_of
from memtui.placement.solvers.schedule import Cost, Path, S, cost, fixed_path, spans

if TYPE_CHECKING:
    from memtui.placement.solvers.ilp import Program
    from memtui.placement.solvers.milp import MilpResult

GAP = 1e-4
TIME_LIMIT_S = 60.0
SIMPLER = {SYNC: STATIC, ASYNC: SYNC}  # a formulation whose placements this one allows, too
MANY = 5000  # possible moves during ops; with more of them, moves during the nearest ops are tried first
NEAREST = 8  # ops after an access of a tensor, and before the next access
PREFERRED = (SINGLE, ISOLATED, SIMULTANEOUS)  # ways of timing with equally many configurations
_LAYOUTS = 4  # tries to find a plan without too many holes
_TOLERANCE = 1e-9
_NEEDS = "needs the solver of scipy: pip install 'memtui[place]'"


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A plan as it is requested.

    Attributes:
        limit_bytes: of the fast pool.
        formulation: of ``plan.FORMULATIONS``.
        slow: name of the slow pool; None: the second pool of the profile.
        mode: way of timing whose samples are used; None: that of ``mode_of``.
        time_limit_s: time after which the best plan so far is returned.
        gap: sufficient (predicted - bound) / predicted.
        page_bytes: sizes are rounded up to multiples of this.
    """

    limit_bytes: int
    formulation: str = STATIC
    slow: str | None = None
    mode: str | None = None
    time_limit_s: float = TIME_LIMIT_S
    gap: float = GAP
    page_bytes: int = PAGE_BYTES


@dataclass(frozen=True, slots=True)
class Solved:
    """Result of a solver: paths, a lower bound, whether it finished, its name, and whether the layout has holes."""

    paths: list[Path]
    bound_ns: float | None
    finished: bool
    solver: str
    holes: bool = False


def slow_pool(profile: Profile, name: str | None) -> str:
    """Return the slow pool of this name, or the first one. Raises UserError where the profile does not have it."""
    others = [pool.name for pool in profile.pools[1:]]
    if not others:
        raise UserError(f"the profile has one pool only, {profile.fast.name}: profile it with a slow one, too")
    if name is not None and name not in others:
        raise UserError(f"the profile has no slow pool {name}; it has {' and '.join(others)}")
    return name or others[0]


def mode_of(profile: Profile, slow: str) -> str:
    """Return the way of timing with most configurations, of those that have every op in these pools.

    In doubt that is single: between the ops of a step caches go cold and Python runs. Single times include that, as the
    times of an executed step do, and isolated times do not. Raises UserError where no way of timing has every op.
    """
    pools, best, most = {profile.fast.name, slow}, "", 0
    for mode in PREFERRED:
        timed = [s for s in profile.samples if s.mode == mode and s.time_ns and pools.issuperset(s.configuration.pools)]
        if len({samples.op for samples in timed}) == len(profile.graph.ops) and len(timed) > most:
            best, most = mode, len(timed)
    if not best:
        raise UserError("no way of timing has every op: profile it to its end first")
    return best


def problem_for(profile: Profile, request: PlanRequest) -> Problem:
    """Return the problem of a requested plan. Raises UserError."""
    slow = slow_pool(profile, request.slow)
    return problem_of(profile, slow, request.mode or mode_of(profile, slow), request.limit_bytes, request.page_bytes)


def find(profile: Profile, request: PlanRequest) -> PlacementPlan:
    """Return the requested plan, which is never worse than first touch.

    Raises:
        UserError: the request does not match the profile, is impossible, or needs scipy.
    """
    start_s = time.monotonic()
    problem = problem_for(profile, request)
    baseline = first_touch(problem)
    if request.formulation == FIRST_TOUCH:
        check(problem, STATIC)
        return _plan(problem, request, Solved(baseline, None, True, "best fit in the order of the ops"), start_s)
    check(problem, request.formulation)
    solved = _best_layout(problem, request.formulation, start_s + request.time_limit_s, request.gap)
    best = min((solved.paths, baseline), key=lambda paths: _sort_key(problem, paths))
    return _plan(problem, request, replace(solved, paths=best), start_s)


def _best_layout(problem: Problem, formulation: str, deadline_s: float, gap: float) -> Solved:
    """Return the best placement that can be laid out in fast memory; its bound holds for any layout.

    Where the optimum has holes the limit is cut, which may make the result worse than a placement without moves: so
    that is searched first, in a third of the time. Where no room is left to cut, the placement is returned although its
    layout breaks the limit; the plan has the addresses it takes.
    """
    candidates: list[list[Path]] = []
    if formulation in SIMPLER:
        try:
            candidates.append(_best_layout(problem, SIMPLER[formulation], _part_of(deadline_s, 3), gap).paths)
        except UserError:
            pass  # no placement without moves keeps the limit
    incumbent = candidates[0] if candidates else None
    solved = optimum(problem, formulation, _part_of(deadline_s, 2) - time.monotonic(), gap, incumbent)
    candidates.append(solved.paths)
    tight = problem
    holes = any(map(int.__gt__, layout_extents(problem, solved.paths), problem.limit_bytes))
    for _ in range(_LAYOUTS):
        extents = layout_extents(problem, candidates[-1])
        if all(map(int.__le__, extents, problem.limit_bytes)):
            break
        tight = tightened(tight, extents, problem.limit_bytes)
        try:
            check(tight, formulation)
            left_s = _part_of(deadline_s, 2) - time.monotonic()
            candidates.append(optimum(tight, formulation, left_s, gap, _fallback(tight)).paths)
        except UserError:
            break
    return replace(solved, paths=min(candidates, key=lambda paths: _sort_key(problem, paths)), holes=holes)


def _part_of(deadline_s: float, parts: int) -> float:
    """Return a deadline after one of these parts of the remaining time."""
    now_s = time.monotonic()
    return now_s + max(0.0, deadline_s - now_s) / parts


def _sort_key(problem: Problem, paths: Sequence[Path]) -> tuple[bool, bool, float]:
    """Return a sort key: placements that break the limit, or break it when laid out, come last; faster ones first."""
    impossible, total_ns = _rank(problem, paths)
    return impossible, any(map(int.__gt__, layout_extents(problem, paths), problem.limit_bytes)), total_ns


def optimum(
    problem: Problem, formulation: str, time_limit_s: float, gap: float, incumbent: list[Path] | None = None
) -> Solved:
    """Return the best placement of a formulation, whatever its layout; never worse than the incumbent.

    Raises:
        UserError: no placement exists, none was found in time, or scipy is missing.
    """
    start_s = time.monotonic()
    try:
        from memtui.placement.solvers.ilp import Program
        from memtui.placement.solvers.milp import Infeasible
    except ImportError:
        return _without_scipy(problem, formulation, _fallback(problem))
    try:
        if incumbent is None and formulation in SIMPLER:
            # A placement without moves is also one with moves, and a short search with moves may end with a worse one.
            incumbent = _simpler(problem, SIMPLER[formulation], time_limit_s / 4, gap)
        deadline_s = start_s + time_limit_s
        program = Program(problem, formulation)
        near = None
        if program.overlapped > MANY:
            # With this many moves the solver gets a bound in time, but no good plan: fewer moves give a plan.
            with contextlib.suppress(Infeasible):
                near, _ = _solve_program(Program(problem, formulation, NEAREST), _part_of(deadline_s, 2), gap / 4)
        paths, result = _solve_program(program, deadline_s, gap)
    except Infeasible:
        raise _no_placement_error(problem) from None
    choices = [each for each in (paths, near, incumbent, _fallback(problem)) if each is not None]
    best = min(choices, key=lambda each: _rank(problem, each))
    if _rank(problem, best)[0]:
        raise UserError(f"no placement was found in {time_limit_s:.0f} s; give --time-limit more")
    return Solved(best, result.bound, result.finished, "HiGHS")


def _solve_program(program: Program, deadline_s: float, gap: float) -> tuple[list[Path] | None, MilpResult]:
    """Return paths that keep the limits, and what the solver reports. Raises Infeasible."""
    paths, result = program.solve(deadline_s - time.monotonic(), gap)
    if paths is not None and (over := _excess_bytes(program.problem, paths)):
        # Within the solver's tolerance, the rounded solution can be some bytes above the limit.
        limits = (limit - more for limit, more in zip(program.problem.limit_bytes, over, strict=True))
        paths, _ = program.with_limits(tuple(limits)).solve(deadline_s - time.monotonic(), gap)
    return paths, result


def _excess_bytes(problem: Problem, paths: Sequence[Path]) -> tuple[int, ...]:
    """Return, for each op, the bytes above the limit; empty where no op is above."""
    fast_bytes = cost(problem, paths).fast_bytes
    over = tuple(max(0, fast - limit) for fast, limit in zip(fast_bytes, problem.limit_bytes, strict=True))
    return over if any(over) else ()


def _simpler(problem: Problem, formulation: str, time_limit_s: float, gap: float) -> list[Path] | None:
    try:
        return optimum(problem, formulation, time_limit_s, gap).paths
    except UserError:
        return None  # only placements with moves keep the limit


def _without_scipy(problem: Problem, formulation: str, incumbent: list[Path]) -> Solved:
    if formulation == ASYNC:
        raise UserError(f"a plan with moves during ops {_NEEDS}")
    try:
        paths = exact(problem, incumbent, moves=formulation == SYNC)
    except TooLarge:
        raise UserError(f"this graph is too large to try everything out and {_NEEDS}") from None
    if paths is None:
        raise _no_placement_error(problem)
    return Solved(paths, cost(problem, paths).total_ns, True, "branch and bound")


def _fallback(problem: Problem) -> list[Path]:
    """Return first touch where it fits, or else everything in slow memory."""
    touched = first_touch(problem)
    slow: list[Path] = [fixed_path(item, S) for item in problem.items]
    return min(touched, slow, key=lambda paths: _rank(problem, paths))


def _rank(problem: Problem, paths: Sequence[Path]) -> tuple[bool, float]:
    costs = cost(problem, paths)
    possible = costs.fits(problem) and costs.total_ns is not None
    return not possible, costs.total_ns if possible and costs.total_ns is not None else float("inf")


def _no_placement_error(problem: Problem) -> UserError:
    limit = size(min(problem.limit_bytes))
    return UserError(f"no placement that was measured keeps the limit of {limit}; ask for more")


def _plan(problem: Problem, request: PlanRequest, solved: Solved, start_s: float) -> PlacementPlan:
    costs = cost(problem, solved.paths)
    if costs.total_ns is None:
        raise UserError(
            f"{request.formulation} needs a placement that was not measured: {_unmeasured(problem, solved)}"
        )
    bound_ns = None if solved.bound_ns is None else max(0.0, min(solved.bound_ns, costs.total_ns))
    gap = None if bound_ns is None or not costs.total_ns else (costs.total_ns - bound_ns) / costs.total_ns
    status = (
        BASELINE if request.formulation == FIRST_TOUCH else OPTIMAL if _is_optimal(solved, gap, request) else FEASIBLE
    )
    return PlacementPlan(
        **_names(problem, request),
        limit_bytes=request.limit_bytes,
        spans=tuple(spans(problem, solved.paths)),
        moves=costs.moves,
        predicted_ns=costs.total_ns,
        fast_peak_bytes=max(costs.fast_bytes),
        slow_peak_bytes=max(costs.slow_bytes),
        status=status,
        bound_ns=bound_ns,
        gap=gap,
        solve_s=time.monotonic() - start_s,
        solver=solved.solver,
        address_bytes=max(layout_extents(problem, solved.paths)),
        why=_why(solved) if status == FEASIBLE else "",
    )


def _why(solved: Solved) -> str:
    """Return the reason why a plan is not as near to the bound as requested."""
    if not solved.finished:
        return "its part of the time limit was over"
    if solved.holes:
        return "laid out in memory the optimum has holes and does not fit, and this is the best found that does"
    return "the rest is what the solver's tolerance rounds away"


def _is_optimal(solved: Solved, gap: float | None, request: PlanRequest) -> bool:
    return solved.finished and gap is not None and gap <= request.gap + _TOLERANCE


def _names(problem: Problem, request: PlanRequest) -> dict[str, Any]:
    return {
        "formulation": request.formulation,
        "fast": problem.fast.name,
        "slow": problem.slow.name,
        "emulated": problem.slow.emulated or problem.fast.emulated,
        "mode": problem.mode,
    }


def _unmeasured(problem: Problem, solved: Solved) -> str:
    for k, op in enumerate(problem.ops):
        where = tuple(solved.paths[i][k - problem.items[i].first][0] != S for i in op.items)
        if where not in op.time_ns:
            return op.name
    return "a move"


def baselines(problem: Problem) -> tuple[float | None, Cost]:
    """Return the time with everything in fast memory (whatever the limit), and the cost of first touch within it."""
    return problem.all_fast_ns, cost(problem, first_touch(problem))
