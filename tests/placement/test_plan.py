"""A plan: where a storage lies while an op runs, what its moves cost, and a file that holds it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from memtui.placement.plan import Move, PlacementPlan, Span
from memtui.placement.validation import Damaged

PLAN = PlacementPlan(
    formulation="async",
    fast="dram",
    slow="cxl",
    emulated=True,
    mode="isolated",
    limit_bytes=4096,
    spans=(Span("w", "cxl", 0, 1), Span("x", "dram", 0, 3), Span("w", "dram", 2, 3)),
    moves=(
        Move("w", "cxl", "dram", 1, 4096, 700.0, overlapped=True, start_ns=50.0),
        Move("x", "dram", "cxl", 3, 8, 9.0),
    ),
    predicted_ns=2000.0,
    fast_peak_bytes=8192,
    slow_peak_bytes=4096,
    status="feasible",
    bound_ns=1500.0,
    gap=0.25,
    solve_s=1.5,
    solver="HiGHS",
    address_bytes=12288,
    why="time is up",
)


def test_a_storage_lies_where_the_span_of_the_op_says():
    assert [PLAN.pool_of("w", op) for op in range(4)] == ["cxl", "cxl", "dram", "dram"]
    assert [PLAN.pool_of("x", op) for op in range(4)] == ["dram"] * 4
    for storage, op in (("w", 4), ("y", 0)):
        with pytest.raises(KeyError):
            PLAN.pool_of(storage, op)


def test_ops_wait_for_a_whole_move_or_for_the_start_of_an_overlapped_one():
    assert PLAN.move_ns == 50 + 9
    assert replace(PLAN, moves=()).move_ns == 0


def test_a_plan_comes_back_out_of_a_file():
    assert PlacementPlan.from_dict(json.loads(json.dumps(asdict(PLAN)))) == PLAN
    short = replace(PLAN, moves=PLAN.moves[1:], bound_ns=None, gap=None, address_bytes=None, why="")
    values = asdict(short)
    del values["moves"][0]["start_ns"], values["why"]
    assert PlacementPlan.from_dict(json.loads(json.dumps(values))) == short


@pytest.mark.parametrize(
    ("changes", "trouble"),
    [
        ({"formulation": "best"}, "a plan has one of static, .*, not best"),
        ({"status": "good"}, "a plan has one of optimal, feasible, baseline, not good"),
        ({"slow": "nvm"}, "a plan has a pool that it does not name: cxl"),
        ({"spans": [asdict(Span("w", "hbm", 0, 3))]}, "does not name: hbm"),
        ({"moves": [asdict(replace(PLAN.moves[0], source="hbm"))]}, "does not name: hbm"),
        ({"moves": [asdict(replace(PLAN.moves[0], target="hbm"))]}, "does not name: hbm"),
        ({"spans": [asdict(Span("w", "dram", 3, 2))]}, "a span ends before it begins"),
        ({"limit_bytes": -1}, "limit_bytes"),
        ({"emulated": 1}, "emulated"),
    ],
)
def test_a_damaged_plan_is_refused(changes, trouble):
    with pytest.raises(Damaged, match=trouble):
        PlacementPlan.from_dict(asdict(PLAN) | changes)


def test_a_span_of_one_op_is_one():
    assert Span.from_dict(asdict(Span("w", "dram", 3, 3))) == Span("w", "dram", 3, 3)
