"""``memtui place solve --run``: executes a plan where it was profiled, and compares it with the prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import median
from typing import Any

from memtui.core.errors import FAILURE, UserError
from memtui.core.file_lock import exclusively
from memtui.core.units import duration_ns, percent, size
from memtui.placement.builtin_models import check_model, is_own
from memtui.placement.plan import PlacementPlan
from memtui.placement.profile import Profile
from memtui.placement.worker_client import BUSY, PlacementProcess
from memtui.probes.power.energy_source import lock_path

REPEATS = 30


@dataclass(frozen=True, slots=True)
class PlanRun:
    """Result of executing a plan.

    Attributes:
        plan: the executed plan.
        actual_ns: typical time of its ops and of the moves they wait for.
        move_ns: typical time of these moves.
        equal: whether the results equal those of the unplaced step, bit by bit.
        close: whether they differ at most by the rounding of another order of summation.
        worst: largest difference, relative to the largest number of a result; None: something is not finite.
        fast_bytes: size of the fast pool's memory for the plan.
        slow_bytes: size of the slow pool's memory.
        pages: of each pool's memory by NUMA node, as the kernel reports; empty where it does not.
    """

    plan: PlacementPlan
    actual_ns: float
    move_ns: float
    equal: bool
    close: bool
    worst: float | None
    fast_bytes: int
    slow_bytes: int
    pages: Mapping[str, Mapping[str, int]]

    @property
    def error(self) -> float:
        """(predicted - actual) / actual."""
        return (self.plan.predicted_ns - self.actual_ns) / self.actual_ns

    def to_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return {
            "formulation": self.plan.formulation,
            "predicted_ns": self.plan.predicted_ns,
            "actual_ns": self.actual_ns,
            "error": self.error,
            "move_ns": self.move_ns,
            "equal": self.equal,
            "close": self.close,
            "worst": self.worst,
            "fast_bytes": self.fast_bytes,
            "slow_bytes": self.slow_bytes,
            "pages": {pool: dict(nodes) for pool, nodes in self.pages.items()},
            "emulated": self.plan.emulated,
        }


def run(
    profile: Profile, plans: Sequence[PlacementPlan], model: str | None = None, repeats: int = REPEATS
) -> list[PlanRun]:
    """Execute plans in turns, with the model, pools and threads of their profile.

    Args:
        profile: the profile that the plans are for.
        plans: all with the same two pools.
        model: name of the model, needed where it is a file of the user's: a profile may come from a stranger, so code
            that it names runs only if the user names it, too.
        repeats: timed runs of each.

    Raises:
        UserError: the step cannot be captured, or the step or the machine is not the profiled one.
    """
    about = profile.about
    name = _model(about, model)
    with exclusively(lock_path(None), BUSY), closing(PlacementProcess(_whole(about, "threads"))) as process:
        captured = process.capture(name, _whole(about, "batch"), _whole(about, "seed"))
        if captured.graph.ops != profile.graph.ops or captured.graph.tensors != profile.graph.tensors:
            raise UserError(f"{name}: its step is not the one that was profiled; profile it again")
        first = plans[0]
        process.pools([first.fast, first.slow])
        executed = process.run(plans, repeats)
    return [
        PlanRun(
            plan,
            median(each.times_ns),
            each.move_ns,
            each.agreement.equal,
            each.agreement.close,
            each.agreement.worst,
            each.fast_bytes,
            each.slow_bytes,
            each.pages,
        )
        for plan, each in zip(plans, executed, strict=True)
    ]


def check(runs: Sequence[PlanRun]) -> None:
    """Raise UserError where the results of a plan differ from those of the unplaced step."""
    for ran in runs:
        if not ran.close:
            how = "are not finite" if ran.worst is None else f"differ by {ran.worst:.2g} of their largest number"
            raise UserError(f"the {ran.plan.formulation} plan gives wrong results: they {how}", FAILURE)


def lines(ran: PlanRun, baseline: PlanRun | None) -> list[str]:
    """Return the result as lines of text."""
    plan = ran.plan
    report = [
        f"executed: {duration_ns(ran.actual_ns)}, {against_prediction(ran)}",
        f"  {size(ran.fast_bytes)} taken of {plan.fast}, {size(ran.slow_bytes)} of {plan.slow}",
        "  results are those of the unplaced step, "
        + ("bit by bit" if ran.equal else f"but for {ran.worst or 0:.1g} of their largest number"),
    ]
    for pool, nodes in ran.pages.items():
        where = ", ".join(f"{count} on node {node}" for node, count in nodes.items())
        report.append(f"  pages of {pool}: {where} (move_pages)")
    if baseline is not None:
        actual, predicted = (
            baseline.actual_ns / ran.actual_ns,
            baseline.plan.predicted_ns / plan.predicted_ns,
        )
        report.append(f"  first touch takes {actual:.3f} times as long, predicted {predicted:.3f}")
        if slower := slowdown_warning(ran, baseline):
            report.append(f"  {slower}")
    if plan.emulated:
        report.append(f"  {plan.slow} is emulated: this checks the solver, and tells nothing of a machine")
    return report


def against_prediction(ran: PlanRun) -> str:
    """Return the measured time in relation to the predicted time, in words."""
    predicted = f"predicted {duration_ns(ran.plan.predicted_ns)}"
    if not ran.actual_ns or not ran.plan.predicted_ns:
        return predicted
    times = ran.actual_ns / ran.plan.predicted_ns
    how = f"took {times:.2f} times as long" if times >= 1 else f"was {1 / times:.2f} times as fast"
    return f"{predicted}: it {how} as predicted"


def slowdown_warning(ran: PlanRun, baseline: PlanRun) -> str:
    """Return a warning where a plan is slower than first touch though it was predicted faster; empty otherwise."""
    if ran.plan.predicted_ns >= baseline.plan.predicted_ns or ran.actual_ns <= baseline.actual_ns:
        return ""
    by = ran.actual_ns / baseline.actual_ns - 1
    return f"slower than first touch by {percent(by)} though predicted faster: here this plan does not pay"


def _model(about: Mapping[str, Any], model: str | None) -> str:
    name = str(about.get("model", ""))
    if model is not None and check_model(model) != name:
        raise UserError(f"the profile is of {name}, not of {model}")
    if is_own(name) and model is None:
        raise UserError(f"the profile is of {name}, whose code would be run: say --model {name} to allow that")
    return check_model(name)


def _whole(about: Mapping[str, Any], key: str) -> int:
    value = about.get(key)
    if not isinstance(value, int):
        raise UserError(f"the profile does not say its {key}: it cannot be run")
    return value
