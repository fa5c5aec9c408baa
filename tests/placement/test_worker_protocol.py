"""Messages between the process that measures and its parent: each is read as it was written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memtui.core.json_fields import from_json, to_json
from memtui.placement.graph import Configuration
from memtui.placement.plan import PlacementPlan
from memtui.placement.validation import Damaged
from memtui.placement.worker_protocol import (
    Agreement,
    Answer,
    Bandwidth,
    CapturedStep,
    CaptureStep,
    CreatedPool,
    CreatedPools,
    CreatePools,
    Environment,
    ExecutedPlan,
    ExecutedPlans,
    ExecutePlans,
    Failed,
    InGraphTimes,
    IsolatedTimes,
    MeasureBandwidths,
    MeasuredBandwidths,
    Ready,
    Request,
    TimeInGraph,
    TimeIsolated,
    request_of,
)
from tests.support.placements import graph_of

PLAN = PlacementPlan("static", "dram", "slow", False, "single", 1, (), (), 2.0, 1, 1, "optimal")
SLOW = Bandwidth(1.0, 2.0, 3.0, 4.0, meanwhile_start_ns=5.0)


def line(message: Any) -> Any:
    return json.loads(json.dumps(message))


@pytest.mark.parametrize(
    "request_",
    [
        CaptureStep("mlp", 8, 3),
        CreatePools(("dram", "emulated:2,1")),
        MeasureBandwidths(),
        TimeIsolated("mm", (Configuration(("dram", "slow"), ("dram",)),), 0.5),
        TimeInGraph(({"t": "slow"}, {}), 0.5),
        ExecutePlans((PLAN,), 30),
    ],
)
def test_a_request_is_read_as_it_was_written(request_: Request) -> None:
    assert request_of(line(to_json(request_))) == request_


def test_what_is_not_a_request_is_refused() -> None:
    with pytest.raises(ValueError, match="do is not capture"):
        request_of({"do": "_check_room"})


@pytest.mark.parametrize(
    ("answer", "kind", "outcome"),
    [
        (Ready(41.0, Environment("2.8", 3, "cpu", "AVX2")), Ready, "ready"),
        (Failed("NoMemory", "there is none"), Failed, "failed"),
        (CapturedStep(graph_of({"n": ("x", "t")}, {"t": 8}), "f1", ("n",)), CapturedStep, "done"),
        (
            CreatedPools((CreatedPool("dram", False, ""), CreatedPool("emulated:2,1", True, "x"))),
            CreatedPools,
            "done",
        ),
        (
            MeasuredBandwidths((SLOW, Bandwidth(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11))),
            MeasuredBandwidths,
            "done",
        ),
        (IsolatedTimes([[1.0, 2.0], [3.0]]), IsolatedTimes, "done"),
        (InGraphTimes([[[1.0], [2.0]]]), InGraphTimes, "done"),
        (
            ExecutedPlans(
                (ExecutedPlan((3.0,), (1.0, 2.0), 0.5, Agreement(False, True, None), 8, 0, {"dram": {"0": 1}}),)
            ),
            ExecutedPlans,
            "done",
        ),
    ],
)
def test_an_answer_is_read_as_it_was_written(answer: Answer, kind: type[Answer], outcome: str) -> None:
    message = line(to_json(answer))
    assert message["at"] == outcome
    assert from_json(kind, message) == answer


@pytest.mark.parametrize("change", [{"read": None}, {"written": "fast"}, {"meanwhile_start_ns": -1}])
def test_bandwidths_that_somebody_put_into_a_cache_are_checked(change: dict[str, Any]) -> None:
    with pytest.raises(Damaged):
        Bandwidth.from_dict(to_json(SLOW) | change)
