"""The Pareto curve: the time of a step by the size of fast memory, from which to choose a limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from memtui.placement.plan import STATIC
from memtui.placement.profile import Profile
from memtui.placement.solvers.problem import Problem
from memtui.placement.solvers.solver import PlanRequest, baselines, find, problem_for
from memtui.placement.validation import count, number, optional, required, table

POINTS = 9


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """One limit, with the times it allows.

    Attributes:
        limit_bytes: of fast memory.
        predicted_ns: time of the plan; never more than at a lower limit.
        gap: largest possible distance of the plan from the optimum.
        first_touch_ns: time of the baseline; None where it was not measured, or breaks the limit.
    """

    limit_bytes: int
    predicted_ns: float
    gap: float | None
    first_touch_ns: float | None

    @classmethod
    def from_dict(cls, value: Any, what: str = "point") -> ParetoPoint:
        """Raise Damaged."""
        fields = table(value, what)
        return cls(
            required(fields, "limit_bytes", count),
            required(fields, "predicted_ns", number),
            optional(fields, "gap", number),
            optional(fields, "first_touch_ns", number),
        )


def limits(problem: Problem, formulation: str, points: int = POINTS) -> list[int]:
    """Return evenly spaced limits, from what must stay in fast memory to what holds everything."""
    least, most = max(problem.required_fast_bytes(formulation)), max(problem.all_bytes)
    steps = max(1, points - 1)
    return sorted({least + (most - least) * n // steps for n in range(points)})


def curve(profile: Profile, request: PlanRequest, points: int = POINTS) -> Iterator[ParetoPoint]:
    """Yield a point for each limit, rising; the time limit is for all of them together. Raises UserError."""
    problem = problem_for(profile, replace(request, limit_bytes=0))
    every = limits(problem, request.formulation if request.formulation in ("sync", "async") else STATIC, points)
    best_ns = float("inf")
    for limit in every:
        here = replace(request, limit_bytes=limit, time_limit_s=request.time_limit_s / len(every))
        plan = find(profile, here)
        better = plan.predicted_ns <= best_ns
        best_ns = min(best_ns, plan.predicted_ns)  # a plan that keeps a lower limit keeps this one
        gap = plan.gap if better or plan.bound_ns is None else (best_ns - min(plan.bound_ns, best_ns)) / best_ns
        limited = problem.with_limits((limit,) * len(problem.ops))
        _, first_touch_cost = baselines(limited)
        yield ParetoPoint(limit, best_ns, gap, first_touch_cost.total_ns if first_touch_cost.fits(limited) else None)
