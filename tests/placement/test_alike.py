"""Which ops share their times."""

from __future__ import annotations

from dataclasses import replace

from memtui.placement.graph import Graph
from memtui.placement.profile import ISOLATED, SIMULTANEOUS, SINGLE
from memtui.placement.profiling.alike import alike_ops, configurations_of, measured_count
from tests.support.placements import graph_of

POOLS = ("dram", "slow")


def recurrent(steps: int) -> Graph:
    """Return equal steps, each of which reads what the one before wrote, behind a first op of another key."""
    ops = {"first": ("x", "h0")}
    for step in range(steps):
        ops[f"multiply{step}"] = (f"h{step}", f"m{step}")
        ops[f"add{step}"] = (f"m{step}", f"h{step + 1}")
    ops["last"] = (f"h{steps}", "y")
    sizes = {f"h{step}": 1 for step in range(steps + 1)} | {f"m{step}": 1 for step in range(steps)}
    graph = graph_of(ops, sizes)
    return replace(graph, ops=tuple(replace(op, key=op.name.rstrip("0123456789")) for op in graph.ops))


def groups(graph: Graph, mode: str) -> list[list[str]]:
    return alike_ops(graph, configurations_of(graph, POOLS), mode)


def test_by_itself_an_op_is_like_every_other_of_its_kind_and_key() -> None:
    steps = [f"multiply{number}" for number in range(4)], [f"add{number}" for number in range(4)]
    assert groups(recurrent(4), ISOLATED) == [["first"], *steps, ["last"]]


def test_in_the_graph_the_first_and_the_last_step_have_other_neighbours() -> None:
    inner = ["multiply1", "multiply2", "multiply3"], ["add0", "add1", "add2"]
    for mode in (SINGLE, SIMULTANEOUS):
        assert groups(recurrent(4), mode) == [["first"], ["multiply0"], inner[1], inner[0], ["add3"], ["last"]]


def test_more_steps_are_no_more_to_measure() -> None:
    for mode in (ISOLATED, SINGLE, SIMULTANEOUS):
        assert measured_count(recurrent(4), POOLS, mode) == measured_count(recurrent(40), POOLS, mode)
    assert measured_count(recurrent(4), POOLS, ISOLATED) == 2 + 4 + 4 + 2


def test_an_op_with_other_configurations_is_measured_by_itself_in_the_graph() -> None:
    graph = recurrent(6)
    pinned = replace(graph, tensors=tuple(replace(t, pools=("dram",)) if t.name == "m2" else t for t in graph.tensors))
    assert ["multiply2"] in groups(pinned, SINGLE)
    assert ["add2"] in groups(pinned, SINGLE)
    assert sum(map(len, groups(pinned, SINGLE))) == len(graph.ops)
