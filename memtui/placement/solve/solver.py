"""A plan for a profile: which solver, against which baseline, and whether the plan can be laid out in memory."""

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
from memtui.placement.solve.branch_and_bound import TooLarge, exact
from memtui.placement.solve.first_touch import first_touch
from memtui.placement.solve.fragmentation import laid_out, tightened
from memtui.placement.solve.problem import PAGE_BYTES, Problem, check, problem_of
from memtui.placement.solve.schedule import Cost, Path, S, cost, fixed_path, spans

if TYPE_CHECKING:
    from memtui.placement.solve.ilp import Program
    from memtui.placement.solve.milp import MilpResult

GAP = 1e-4
TIME_LIMIT_S = 60.0
SIMPLER = {SYNC: STATIC, ASYNC: SYNC}  # what a formulation can do, too
MANY = 5000  # moves during ops to choose from: then those during the nearest ops are looked at alone first
NEAREST = 8  # ops after one that touches a tensor, and before the next one
PREFERRED = (SINGLE, ISOLATED, SIMULTANEOUS)  # ways of timing, where they have as much
_LAYOUTS = 4  # tries to find a plan without too many holes
_TOLERANCE = 1e-9
_NEEDS = "needs the solver of scipy: pip install 'memtui[place]'"


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a plan is to be.

    Attributes:
        limit_bytes: of the fast pool.
        formulation: of ``plan.FORMULATIONS``.
        slow: name of the slow pool; None: the second of the profile.
        mode: which samples; None: as ``mode_of`` has it.
        time_limit_s: then the best that was found is taken.
        gap: (predicted - bound) / predicted that is good enough.
        page_bytes: sizes are rounded up to multiples of it.
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
    """What a solver made of a problem: paths, a bound, whether that is the end, its name, and whether it has holes."""

    paths: list[Path]
    bound_ns: float | None
    finished: bool
    solver: str
    holes: bool = False


def slow_pool(profile: Profile, name: str | None) -> str:
    """Return the slow pool that is meant. Raises UserError for one that the profile has not."""
    others = [pool.name for pool in profile.pools[1:]]
    if not others:
        raise UserError(f"the profile has one pool only, {profile.fast.name}: profile it with a slow one, too")
    if name is not None and name not in others:
        raise UserError(f"the profile has no slow pool {name}; it has {' and '.join(others)}")
    return name or others[0]


def mode_of(profile: Profile, slow: str) -> str:
    """Return the way of timing to rely upon: of those with every op in these pools, the one with most configurations.

    In doubt that is single: between the ops of a step caches go cold and Python runs, which is in its times and in
    those of a step that is executed, but not in those of an op that is repeated. Raises UserError where none has.
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
    """Raise UserError."""
    slow = slow_pool(profile, request.slow)
    return problem_of(profile, slow, request.mode or mode_of(profile, slow), request.limit_bytes, request.page_bytes)


def find(profile: Profile, request: PlanRequest) -> PlacementPlan:
    """Return the plan that is asked for, never worse than first touch.

    Raises:
        UserError: what is asked for is not in the profile, cannot be, or needs scipy.
    """
    start_s = time.monotonic()
    problem = problem_for(profile, request)
    baseline = first_touch(problem)
    if request.formulation == FIRST_TOUCH:
        check(problem, STATIC)
        return _plan(problem, request, Solved(baseline, None, True, "best fit in the order of the ops"), start_s)
    check(problem, request.formulation)
    solved = _laid_out(problem, request.formulation, start_s + request.time_limit_s, request.gap)
    best = min((solved.paths, baseline), key=lambda paths: _order(problem, paths))
    return _plan(problem, request, replace(solved, paths=best), start_s)


def _laid_out(problem: Problem, formulation: str, deadline_s: float, gap: float) -> Solved:
    """Return the best placement that can be laid out in fast memory; its bound is that of any.

    Where the optimum has holes the limit is cut, which may make it worse than one without moves: so that is looked for
    first, in a third of the time. Where no room is left to cut, what was found stays, and is told with the addresses
    it takes.
    """
    candidates: list[list[Path]] = []
    if formulation in SIMPLER:
        try:
            candidates.append(_laid_out(problem, SIMPLER[formulation], _part_of(deadline_s, 3), gap).paths)
        except UserError:
            pass  # without moves there is none
    incumbent = candidates[0] if candidates else None
    solved = optimum(problem, formulation, _part_of(deadline_s, 2) - time.monotonic(), gap, incumbent)
    candidates.append(solved.paths)
    tight = problem
    holes = any(map(int.__gt__, laid_out(problem, solved.paths), problem.limit_bytes))
    for _ in range(_LAYOUTS):
        extents = laid_out(problem, candidates[-1])
        if all(map(int.__le__, extents, problem.limit_bytes)):
            break
        tight = tightened(tight, extents, problem.limit_bytes)
        try:
            check(tight, formulation)
            left_s = _part_of(deadline_s, 2) - time.monotonic()
            candidates.append(optimum(tight, formulation, left_s, gap, _fallback(tight)).paths)
        except UserError:
            break
    return replace(solved, paths=min(candidates, key=lambda paths: _order(problem, paths)), holes=holes)


def _part_of(deadline_s: float, parts: int) -> float:
    """Return a deadline that leaves the other parts of the time for what comes after."""
    now_s = time.monotonic()
    return now_s + max(0.0, deadline_s - now_s) / parts


def _order(problem: Problem, paths: Sequence[Path]) -> tuple[bool, bool, float]:
    """Return what is faster comes first, but for what breaks the limit, or breaks it when it is laid out."""
    impossible, total_ns = _rank(problem, paths)
    return impossible, any(map(int.__gt__, laid_out(problem, paths), problem.limit_bytes)), total_ns


def optimum(
    problem: Problem, formulation: str, time_limit_s: float, gap: float, incumbent: list[Path] | None = None
) -> Solved:
    """Return the best placement of a formulation, whatever addresses it takes; never worse than the one that is known.

    Raises:
        UserError: there is none, none was found in time, or scipy is missing.
    """
    start_s = time.monotonic()
    try:
        from memtui.placement.solve.ilp import Program
        from memtui.placement.solve.milp import Infeasible
    except ImportError:
        return _without_scipy(problem, formulation, _fallback(problem))
    try:
        if incumbent is None and formulation in SIMPLER:
            # What can be done without moves can be done with them, and a short search with them may end at worse.
            incumbent = _simpler(problem, SIMPLER[formulation], time_limit_s / 4, gap)
        deadline_s = start_s + time_limit_s
        program = Program(problem, formulation)
        near = None
        if program.overlapped > MANY:
            # Of so many moves the solver has a bound in time, but no good plan: that is from fewer.
            with contextlib.suppress(Infeasible):
                near, _ = _within(Program(problem, formulation, NEAREST), _part_of(deadline_s, 2), gap / 4)
        paths, result = _within(program, deadline_s, gap)
    except Infeasible:
        raise _none(problem) from None
    choices = [each for each in (paths, near, incumbent, _fallback(problem)) if each is not None]
    best = min(choices, key=lambda each: _rank(problem, each))
    if _rank(problem, best)[0]:
        raise UserError(f"no placement was found in {time_limit_s:.0f} s; give --time-limit more")
    return Solved(best, result.bound, result.finished, "HiGHS")


def _within(program: Program, deadline_s: float, gap: float) -> tuple[list[Path] | None, MilpResult]:
    """Return paths that keep the limits, and what the solver reports. Raises Infeasible."""
    paths, result = program.solve(deadline_s - time.monotonic(), gap)
    if paths is not None and (over := _over(program.problem, paths)):
        # Rounded to whole tensors, what the solver's tolerance allowed is some bytes too much.
        limits = (limit - more for limit, more in zip(program.problem.limit_bytes, over, strict=True))
        paths, _ = program.with_limits(tuple(limits)).solve(deadline_s - time.monotonic(), gap)
    return paths, result


def _over(problem: Problem, paths: Sequence[Path]) -> tuple[int, ...]:
    """Return the bytes above the limit while each op runs; empty where there are none."""
    fast_bytes = cost(problem, paths).fast_bytes
    over = tuple(max(0, fast - limit) for fast, limit in zip(fast_bytes, problem.limit_bytes, strict=True))
    return over if any(over) else ()


def _simpler(problem: Problem, formulation: str, time_limit_s: float, gap: float) -> list[Path] | None:
    try:
        return optimum(problem, formulation, time_limit_s, gap).paths
    except UserError:
        return None  # it needs moves


def _without_scipy(problem: Problem, formulation: str, incumbent: list[Path]) -> Solved:
    if formulation == ASYNC:
        raise UserError(f"a plan with moves during ops {_NEEDS}")
    try:
        paths = exact(problem, incumbent, moves=formulation == SYNC)
    except TooLarge:
        raise UserError(f"this graph is too large to try everything out and {_NEEDS}") from None
    if paths is None:
        raise _none(problem)
    return Solved(paths, cost(problem, paths).total_ns, True, "branch and bound")


def _fallback(problem: Problem) -> list[Path]:
    """First touch where it fits, or else everything in slow memory."""
    touched = first_touch(problem)
    slow: list[Path] = [fixed_path(item, S) for item in problem.items]
    return min(touched, slow, key=lambda paths: _rank(problem, paths))


def _rank(problem: Problem, paths: Sequence[Path]) -> tuple[bool, float]:
    costs = cost(problem, paths)
    possible = costs.fits(problem) and costs.total_ns is not None
    return not possible, costs.total_ns if possible and costs.total_ns is not None else float("inf")


def _none(problem: Problem) -> UserError:
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
        address_bytes=max(laid_out(problem, solved.paths)),
        why=_why(solved) if status == FEASIBLE else "",
    )


def _why(solved: Solved) -> str:
    """Return what kept a plan from being as near to the bound as was asked for."""
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
    for k, step in enumerate(problem.steps):
        where = tuple(solved.paths[i][k - problem.items[i].first][0] != S for i in step.items)
        if where not in step.time_ns:
            return step.name
    return "a move"


def baselines(problem: Problem) -> tuple[float | None, Cost]:
    """Return what everything in fast memory takes (whatever the limit), and first touch within it."""
    return problem.all_fast_ns, cost(problem, first_touch(problem))
