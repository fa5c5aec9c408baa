"""From capture to execution on a clock of the test: a plan takes the time that was predicted."""

from __future__ import annotations

from statistics import median

import pytest

from memtui.placement.configurations import pair_configurations
from memtui.placement.plan import FIRST_TOUCH, STATIC, SYNC
from memtui.placement.profile import ISOLATED, Pool, Profile, Samples
from memtui.placement.solvers.solver import PlanRequest, find

torch = pytest.importorskip("torch")
pytest.importorskip("scipy")
from memtui.placement.pool_specs import parse_pool  # noqa: E402
from memtui.placement.torch import pools  # noqa: E402
from memtui.placement.torch.capture import capture  # noqa: E402
from memtui.placement.torch.execution import execute  # noqa: E402
from memtui.placement.torch.models import build  # noqa: E402
from memtui.placement.torch.placed_step import Machine  # noqa: E402
from memtui.placement.torch.timers import Measuring  # noqa: E402
from tests.support.placement_machine import SEED, ManualClock  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread_of_torch")
FAST, SLOW = "dram", "emulated:29,12"
OP_NS = 2000  # of every op, wherever its tensors lie


class Ticking(ManualClock):
    """A clock on which every second reading ends an op: it is later by the time of the op."""

    def __init__(self) -> None:
        super().__init__()
        self.readings = 0

    def now_ns(self) -> int:
        self.readings += 1
        self.ns += OP_NS * (self.readings % 2 == 0)
        return round(self.ns)


@pytest.mark.parametrize("name", ["conv", "transformer"])
def test_half_in_emulated_memory_beats_first_touch_by_the_factor_that_was_predicted(name: str) -> None:
    captured = capture(build(name, 32, SEED), name)
    graph = captured.graph
    machine = Machine(captured, [pools.Pool(parse_pool(pool)) for pool in (FAST, SLOW)], Ticking())
    measuring = Measuring(machine, SEED, lambda: None)
    wanted: dict[str, list] = {}
    for op, configuration in pair_configurations(graph, (FAST, SLOW)):
        wanted.setdefault(op.name, []).append(configuration)
    samples = [
        Samples(op, configuration, ISOLATED, tuple(times), (*range(len(times)),))
        for op, choices in wanted.items()
        for configuration, times in zip(choices, measuring.isolated(op, choices, 0), strict=True)
    ]
    slow = Pool(SLOW, True, "", 29e9, 12e9)
    profile = Profile(graph, (Pool(FAST), slow), tuple(samples))
    half = graph.peak_bytes // 2
    plans = [
        find(profile, PlanRequest(half, formulation, time_limit_s=10)) for formulation in (STATIC, SYNC, FIRST_TOUCH)
    ]
    ran = execute(machine, plans, 3, SEED, lambda: None)
    times = [median(each.times_ns) for each in ran]
    for plan, each, took in zip(plans, ran, times, strict=True):
        assert each.agreement.equal
        stops = len({move.op for move in plan.moves})  # each of them is two looks at the clock
        assert took - stops * OP_NS == pytest.approx(plan.predicted_ns, rel=1e-3)
        assert each.fast_bytes <= half
    static, _, touched = times
    assert static < touched
    assert touched / static == pytest.approx(plans[2].predicted_ns / plans[0].predicted_ns, rel=1e-3)
    print(name, [(plan.formulation, plan.predicted_ns, took) for plan, took in zip(plans, times, strict=True)])
