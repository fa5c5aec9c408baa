"""``memtui place``: compares timings and finds plans. Only a child process of this command imports torch."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from memtui.core import progress_line
from memtui.core.console import Console
from memtui.core.errors import UserError
from memtui.core.json_fields import to_json
from memtui.core.progress_line import above_line
from memtui.core.text import printable
from memtui.placement import text
from memtui.placement.configurations import all_configurations
from memtui.placement.kernel_times import table_lines
from memtui.placement.plan import ASYNC, FIRST_TOUCH, SYNC, PlacementPlan
from memtui.placement.profile import SINGLE, Profile
from memtui.placement.profiling.text import pool_as_json
from memtui.placement.slowdown import Effect, effects
from memtui.placement.solvers.limit import limit_of
from memtui.placement.solvers.pareto import ParetoPoint, curve
from memtui.placement.solvers.problem import Problem
from memtui.placement.solvers.solver import PlanRequest, baselines, find, mode_of, problem_for, slow_pool
from memtui.placement.store import ProfileFile
from memtui.placement.timing_agreement import Comparison, compare, modes_of
from memtui.placement.timing_quality import counted_ns, quality_of

if TYPE_CHECKING:
    from memtui.placement.run import PlanRun


def place(args: argparse.Namespace, console: Console) -> int:
    """Run the command and return the exit status. Raises UserError."""
    if args.what == "profile":
        from memtui.placement.profiling.command import profile

        return profile(args, console)
    file = ProfileFile(args.file)
    if args.what == "show":
        return show(args, file)
    doing = {"compare": f"comparing ways of timing in {args.file}", "solve": f"solving {args.file}"}
    with console.progress(doing[args.what]):
        return {"compare": _compare, "solve": _solve}[args.what](args, file, console)


def _compare(args: argparse.Namespace, file: ProfileFile, console: Console) -> int:
    profile = file.profile()
    results = comparisons(profile)
    if args.json:
        compared = [comparison.to_dict() for comparison in results]
        slow_down = slow_downs(profile)
        console.print_json({"file": str(args.file), **_about(profile), "comparisons": compared, "slow_down": slow_down})
        return 0
    every = _effects(profile)
    lines = [*text.head_lines(profile)]
    for comparison in results:
        lines += ["", *text.comparison_lines(comparison)]
        if args.table:
            lines += ["", *table_lines(profile, comparison)]
    for slow, by in every.items():
        lines += ["", *text.effect_lines(by, profile.fast.name, slow, mode_of(profile, slow))]
    _print(lines)
    return 0


def _effects(profile: Profile) -> dict[str, dict[str, Effect]]:
    """Return the slow-down by a single tensor in each slow pool that was measured wholly."""
    pools = [pool.name for pool in profile.pools[1:]]
    return {slow: effects(profile, slow, mode_of(profile, slow)) for slow in pools if _whole(profile, slow)}


def slow_downs(profile: Profile) -> dict[str, dict[str, dict[str, float]]]:
    """Return the slow-down by a single tensor in each slow pool, for JSON."""
    return {
        slow: {which: {"median": e.median, "worst": e.worst, "measured": e.ops} for which, e in by.items()}
        for slow, by in _effects(profile).items()
    }


def comparisons(profile: Profile) -> list[Comparison]:
    """Compare every way of timing with single runs, or else with the first one. Raises UserError for fewer than two."""
    modes = modes_of(profile)
    if len(modes) < 2:
        available = f"only {modes[0]} times are in it" if modes else "no times are in it"
        raise UserError(f"{available}: to compare, profile with another --mode, too")
    reference = SINGLE if SINGLE in modes else modes[0]
    return [compare(profile, mode, reference) for mode in reversed(modes) if mode != reference]


def _whole(profile: Profile, slow: str) -> bool:
    try:
        return bool(mode_of(profile, slow))
    except UserError:
        return False


@dataclass(frozen=True, slots=True)
class _SolveInputs:
    """A profile, the plan requested of it, and the problem to solve for that."""

    profile: Profile
    request: PlanRequest
    problem: Problem


def _solve(args: argparse.Namespace, file: ProfileFile, console: Console) -> int:
    if args.limit is None and args.ratio is None and not args.pareto:
        raise UserError("say how much fast memory there is: --limit 8GiB, or --ratio 1:1 (slow to fast)")
    profile = file.profile()
    slow = slow_pool(profile, args.slow)
    request = PlanRequest(0, args.formulation, slow, _chosen_mode(args.mode) or mode_of(profile, slow), args.time_limit)
    problem = problem_for(profile, request)
    peak = max(problem.all_bytes)
    limit = limit_of(args.ratio, peak) if args.ratio is not None else args.limit
    inputs = _SolveInputs(profile, replace(request, limit_bytes=limit or 0), problem)
    plan = None if limit is None else find(profile, inputs.request)
    points = _points(inputs) if args.pareto else []
    _store(file, inputs, plan, points, console)
    ran = _ran(args, inputs, plan) if args.execute else []
    if args.json:
        executed = {"run": [each.to_dict() for each in ran]} if ran else {}
        console.print_json(_document(args, inputs, plan, points) | executed)
        return 0
    lines = [*text.head_lines(profile)]
    if plan is not None:
        lines += ["", *text.plan_lines(plan, baselines_for(inputs.problem, inputs.request.limit_bytes))]
        lines += ["", *quality_of(profile, slow, inputs.problem.mode).lines(), *_of_moves(inputs, plan)]
    if ran:
        from memtui.placement import run

        lines += ["", *run.lines(ran[0], ran[1] if len(ran) > 1 else None)]
    if points:
        lines += ["", *text.curve_lines(points, args.formulation, profile.fast.name, inputs.problem.all_fast_ns)]
    _print(lines)
    return 0


def _of_moves(inputs: _SolveInputs, plan: PlacementPlan) -> list[str]:
    """Return warnings: moves during ops are impossible, or the times of moves have no fixed part."""
    lines = []
    slow = inputs.problem.slow
    if plan.formulation == ASYNC and slow.async_read_bytes_per_s is None and slow.async_write_bytes_per_s is None:
        on_gpu = inputs.profile.fast.name == "cuda"
        why = "they are not implemented on a GPU" if on_gpu else "no CPU was free for them when this was profiled"
        lines.append(f"no move is during an op: {why}, so this is a sync plan")
    if plan.formulation in (SYNC, ASYNC) and not slow.knows_fixed:
        lines.append(
            "an older memtui made this profile: its moves have no fixed time, so those of a few KiB seem to be free"
        )
    return lines


def _chosen_mode(modes: tuple[str, ...] | None) -> str | None:
    if modes and len(modes) > 1:
        raise UserError("a plan rests upon one way of timing: name one --mode")
    return modes[0] if modes else None


def _ran(args: argparse.Namespace, inputs: _SolveInputs, plan: PlacementPlan | None) -> list[PlanRun]:
    """Execute the plan and first touch; the plan alone where it is first touch, or first touch is impossible."""
    from memtui.placement import run

    if plan is None:
        raise UserError("--run executes one plan: say how much fast memory there is with --limit or --ratio")
    plans = [plan]
    if plan.formulation != FIRST_TOUCH:
        try:
            plans.append(find(inputs.profile, replace(inputs.request, formulation=FIRST_TOUCH)))
        except UserError:
            pass
    ran = run.run(inputs.profile, plans, args.model)
    run.check(ran)
    return ran


def baselines_for(problem: Problem, limit_bytes: int) -> text.Baselines:
    """Return the baselines that a plan for a limit is compared with."""
    limited = problem.with_limits((limit_bytes,) * len(problem.ops))
    all_fast_ns, first_touch_cost = baselines(limited)
    sizes = {item.name: item.size_bytes for item in problem.items}
    return text.Baselines(
        all_fast_ns,
        first_touch_cost.total_ns if first_touch_cost.fits(limited) else None,
        max(problem.all_bytes),
        sizes,
    )


def _points(inputs: _SolveInputs) -> list[ParetoPoint]:
    """Return the points of the curve, and report progress."""
    points = []
    for point in curve(inputs.profile, inputs.request):
        points.append(point)
        progress_line.update(f"{len(points)} points of the curve")
    return points


def _store(
    file: ProfileFile, inputs: _SolveInputs, plan: PlacementPlan | None, points: list[ParetoPoint], console: Console
) -> None:
    """Store a plan and a curve with their profile, for the screen; notify the user where that fails."""
    try:
        if plan is not None:
            file.store_plan(plan)
        if points:
            file.store_curve(inputs.request.formulation, inputs.problem.slow.name, inputs.problem.mode, points)
    except UserError as error:
        console.notify(f"the plan is not kept for memtui place show: {error}")


def _document(
    args: argparse.Namespace, inputs: _SolveInputs, plan: PlacementPlan | None, points: list[ParetoPoint]
) -> dict[str, Any]:
    baseline = baselines_for(inputs.problem, inputs.request.limit_bytes)
    return {
        "file": str(args.file),
        **_about(inputs.profile),
        "peak_bytes": baseline.peak_bytes,
        "peak_bytes_in_pages": baseline.peak_bytes,
        "all_fast_ns": baseline.all_fast_ns,
        "first_touch_ns": baseline.first_touch_ns if plan is not None else None,
        "plan": to_json(plan),
        "pareto": to_json(points),
        "times_worth": quality_of(inputs.profile, inputs.problem.slow.name, inputs.problem.mode).to_dict(),
        "times": _times(inputs),
    }


def _times(inputs: _SolveInputs) -> list[dict[str, Any]]:
    """Return the times of every op in every configuration: with the moves of a plan they add up to its time."""
    profile, slow, mode = inputs.profile, inputs.problem.slow.name, inputs.problem.mode
    return [
        {
            "op": op.name,
            "configuration": configuration.to_dict(),
            "median_ns": ns,
            "counted_ns": counted_ns(profile, op.name, configuration, slow, mode),
            "samples": len(profile.times[op.name, configuration, mode].time_ns),
        }
        for op, configuration in all_configurations(profile.graph, (profile.fast.name, slow))
        if (ns := profile.typical_ns(op.name, configuration, mode)) is not None
    ]


def _about(profile: Profile) -> dict[str, Any]:
    return {
        "graph": profile.graph.name,
        "ops": len(profile.graph.ops),
        "pools": [pool_as_json(profile, pool) for pool in profile.pools],
        "emulated": list(profile.emulated),
    }


def show(args: argparse.Namespace, file: ProfileFile) -> int:
    """Show a profile, which may still grow, on the screen; ``memtui replay`` calls this for a profile, too."""
    from memtui.placement.profiling.screen import show_profile
    from memtui.tui.arguments import prepare_screen
    from memtui.tui.terminal import require_terminal

    file.profile()  # errors are reported before there is a screen
    require_terminal(instead="use `memtui place compare` or `memtui place solve`, which print what is in a profile")
    prepare_screen(args)
    return show_profile(file)


def _print(lines: Iterable[str]) -> None:
    with above_line():
        print("\n".join(map(printable, lines)), flush=True)
