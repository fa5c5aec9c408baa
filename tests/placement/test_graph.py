"""Graph, profile and plan: what they refuse, what they derive, and their conversion to JSON and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.json_fields import to_json
from memtui.placement.graph import ARGUMENT, INTERMEDIATE, RESULT, Configuration, Graph, Op, Tensor
from memtui.placement.plan import PlacementPlan
from memtui.placement.profile import Pool, Profile, Samples
from memtui.placement.validation import Damaged
from tests.support.placements import graph_of, graphs, plans, profiles


def through_json(fields: Any) -> Any:
    return json.loads(json.dumps(fields, allow_nan=False))


@given(profiles())
def test_profile_comes_back_from_json(profile: Profile) -> None:
    assert Profile.from_dict(through_json(to_json(profile))) == profile


@given(plans())
def test_plan_comes_back_from_json(plan: PlacementPlan) -> None:
    assert PlacementPlan.from_dict(through_json(to_json(plan))) == plan


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) in JSON data."""
    pairs = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [(value, key) for key, _ in pairs] + [place for _, part in pairs for place in _places(part)]


@given(st.one_of(profiles(), plans()), st.data())
def test_damaged_data_is_refused_with_one_error(original: Profile | PlacementPlan, data: st.DataObject) -> None:
    fields = through_json(to_json(original))
    container, key = data.draw(st.sampled_from(_places(fields)))
    odd = st.sampled_from([None, -1, 1 << 70, 1.5, "", "x" * 5000, [], {}, [[]], True, float("nan"), float("inf")])
    container[key] = data.draw(odd)
    try:
        type(original).from_dict(fields)
    except Damaged:
        pass


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda p: p.pop("graph"), "graph is missing"),
        (lambda p: p["graph"]["ops"].reverse(), "reads t before it is written"),
        (lambda p: p["graph"]["ops"].append(p["graph"]["ops"][0]), "two ops have one name"),
        (lambda p: p["graph"]["tensors"].pop(), "has a tensor that the graph has not: y"),
        (lambda p: p["graph"]["tensors"][1].update(role="constant"), "writes t, which was there before"),
        (lambda p: p["graph"]["tensors"].append({"name": "z", "size_bytes": 1, "role": "result"}), "written by no op"),
        (lambda p: p["graph"].update(ops=[]), "has no op"),
        (lambda p: p.update(pools=[]), "no pool"),
        (lambda p: p["samples"].append(p["samples"][0]), "stand in two places"),
        (lambda p: p["samples"][0].update(op="none"), "an op that the graph has not"),
        (lambda p: p["samples"][0].update(mode="often"), "a mode is one of isolated, single, simultaneous"),
        (lambda p: p["samples"][0].update(run=[]), "1 times of 0 runs"),
        (lambda p: p["samples"][0].update(configuration=[["pmem"], ["dram"]]), "a pool that the profile has not: pmem"),
        (lambda p: p["samples"][0].update(configuration=[[], ["dram"]]), "has not its inputs and outputs"),
    ],
)
def test_what_is_wrong_is_reported(change: Callable[[Any], object], why: str) -> None:
    graph = graph_of({"a": ("x", "t"), "b": ("t", "y")}, {"t": 4})
    profile = Profile(
        graph, (Pool("dram"),), (Samples("b", Configuration(("dram",), ("dram",)), "single", (1.0,), (0,)),)
    )
    fields = through_json(to_json(profile))
    change(fields)
    with pytest.raises(Damaged, match=why):
        Profile.from_dict(fields)


def test_repeats_are_merged() -> None:
    assert Op.of("add", "add", ["x", "x"], ["y"]).inputs == ("x",)


def test_live_bytes_of_the_worked_case() -> None:
    ops = {
        "f1": ("x", "t1"), "f2": ("t1", "t2"), "g": ("t2", "u"), "f3": ("t2", "t3"), "b2": ("t3 u", "t4"),
        "b1": ("t1 t4", "y"),
    }  # fmt: skip
    graph = graph_of(ops, {"t1": 4, "t2": 3, "u": 1, "t3": 2, "t4": 1})
    assert graph.live_bytes == (4, 7, 8, 10, 8, 5)
    assert graph.peak_bytes == 10


def test_tensors_of_a_group_share_memory() -> None:
    tensors = (Tensor("x", 4, ARGUMENT), Tensor("t", 4, group="t"), Tensor("t2", 4, group="t"), Tensor("y", 4, RESULT))
    ops = (Op("a", "k", ("x",), ("t",)), Op("b", "k", ("t",), ("t2",)), Op("c", "k", ("t2",), ("y",)))
    graph = Graph("in place", ops, tensors)
    assert graph.live_bytes == (4, 4, 4)
    storage = graph.storages["t"]
    assert (storage.first, storage.last, storage.accesses, storage.writes) == (0, 2, (0, 1, 2), (0, 1))


def test_memory_of_a_parameter_is_not_placed_though_an_op_writes_it() -> None:
    tensors = (Tensor("w", 4, ARGUMENT, "w"), Tensor("w2", 4, INTERMEDIATE, "w"))
    graph = Graph("update", (Op("add_", "k", ("w",), ("w2",)),), tensors)
    assert not graph.storages["w"].counted
    assert graph.live_bytes == (0,)


@given(graphs())
def test_live_bytes_are_the_sum_of_what_is_alive(graph: Graph) -> None:
    for op, live in enumerate(graph.live_bytes):
        alive = [s for s in graph.storages.values() if s.counted and s.first <= op <= s.last]
        assert live == sum(storage.size_bytes for storage in alive)


def test_a_configuration_is_written_as_in_the_notebook() -> None:
    assert str(Configuration(("DRAM", "PMEM"), ("DRAM",))) == "(DRAM, PMEM) -- (DRAM)"
