"""The lines about an executed plan."""

from __future__ import annotations

import pytest

from memtui.placement.plan import PlacementPlan
from memtui.placement.run import PlanRun, lines


def ran(formulation: str, predicted_ns: float, actual_ns: float) -> PlanRun:
    status = "baseline" if formulation == "first-touch" else "optimal"
    plan = PlacementPlan(formulation, "dram", "slow", False, "single", 1, (), (), predicted_ns, 1, 1, status)
    return PlanRun(plan, actual_ns, 0.0, True, True, 0.0, 1, 1, {})


@pytest.mark.parametrize(
    ("plan", "touched", "warned"),
    [
        ((870e3, 3500e3), (1200e3, 2000e3), True),
        ((870e3, 1900e3), (1200e3, 2000e3), False),
        ((1200e3, 3500e3), (1200e3, 2000e3), False),
    ],
)
def test_a_plan_that_was_to_be_faster_than_first_touch_and_is_slower_is_reported(
    plan: tuple[float, float], touched: tuple[float, float], warned: bool
) -> None:
    output = "\n".join(lines(ran("async", *plan), ran("first-touch", *touched)))
    assert (
        "slower than first touch by 75.0 % though predicted faster: here this plan does not pay" in output
    ) == warned
