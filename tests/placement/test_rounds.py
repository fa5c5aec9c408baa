"""The configurations of ops, and the choice of those that are measured together."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.placement.configurations import all_configurations, configurations, pair_configurations
from memtui.placement.graph import ARGUMENT, RESULT, Graph, Op, Tensor
from memtui.placement.profiling.rounds import neighbours, pick, sittings
from tests.support.placements import graph_of, graphs

POOLS = ("DRAM", "PMEM")


def count(graph: Graph, op: str) -> int:
    return len(list(configurations(graph, graph.ops[graph.index[op]], POOLS)))


def test_two_free_inputs_and_one_free_output_have_eight() -> None:
    graph = graph_of({"a": ("x", "s t"), "b": ("s t", "u"), "c": ("u", "y")}, {"s": 1, "t": 1, "u": 1})
    assert count(graph, "b") == 8
    assert [str(c) for c in configurations(graph, graph.ops[1], POOLS)][:3] == [
        "(DRAM, DRAM) -- (DRAM)",
        "(DRAM, DRAM) -- (PMEM)",
        "(DRAM, PMEM) -- (DRAM)",
    ]


def test_a_repeated_input_counts_once() -> None:
    assert count(graph_of({"a": ("x", "t"), "b": ("t t", "u"), "c": ("u", "y")}, {"t": 1, "u": 1}), "b") == 4


def test_a_repeated_input_that_is_also_written_counts_once() -> None:
    tensors = (Tensor("x", 1, ARGUMENT), Tensor("t", 1, group="t"), Tensor("u", 1, group="t"), Tensor("y", 1, RESULT))
    ops = (Op("a", "", ("x",), ("t",)), Op.of("b", "", ["t", "t"], ["u"]), Op("c", "", ("u",), ("y",)))
    assert count(Graph("", ops, tensors), "b") == 2


def test_an_update_has_the_choice_of_its_gradient() -> None:
    graph = graph_of({"backward": ("x", "gradient"), "update": ("w gradient", "new")}, {"gradient": 4})
    assert count(graph, "update") == 2


def test_a_bias_that_is_a_parameter_is_no_choice() -> None:
    graph = graph_of({"a": ("x", "s t"), "conv": ("s t bias", "u"), "c": ("u", "y")}, {"s": 1, "t": 1, "u": 1})
    assert count(graph, "conv") == 8
    assert str(list(configurations(graph, graph.ops[1], POOLS))[-1]) == "(PMEM, PMEM, DRAM) -- (PMEM)"


def test_what_feeds_a_result_stays() -> None:
    assert count(graph_of({"a": ("x", "t"), "b": ("t", "y")}, {"t": 1}), "b") == 2


def test_a_tensor_may_be_excluded_from_a_pool() -> None:
    tensors = (Tensor("x", 1, ARGUMENT), Tensor("t", 1, pools=("DRAM",)), Tensor("y", 1, RESULT))
    graph = Graph("", (Op("a", "", ("x",), ("t",)), Op("b", "", ("t",), ("y",))), tensors)
    assert len(all_configurations(graph, POOLS)) == 2


def test_of_three_pools_pairs_are_fewer() -> None:
    graph = graph_of({"a": ("x", "s"), "b": ("s", "t"), "c": ("t", "y")}, {"s": 1, "t": 1})
    pools = ("dram", "numa:1", "huge")
    assert len(all_configurations(graph, pools)) == 3 + 9 + 3
    assert len(pair_configurations(graph, pools)) == 3 + 7 + 3


def chain(ops: int) -> Graph:
    reads = ("x", *(f"t{number}" for number in range(1, ops)))
    writes = (*(f"t{number}" for number in range(1, ops)), "y")
    named = {f"n{number + 1}": (reads[number], writes[number]) for number in range(ops)}
    return graph_of(named, {f"t{number}": 1 for number in range(1, ops)})


def picked(graph: Graph, most: int | None = None) -> list[list[str]]:
    """Return rounds of ops with one configuration each, which is not used."""
    left, near, rounds = [(op.name, None) for op in graph.ops], neighbours(graph), []
    while left:
        taken = pick(left, near, most)
        left = [pair for pair in left if pair[0] not in taken]
        rounds.append([*taken])
    return rounds


def test_the_rule_on_a_chain_of_five() -> None:
    assert picked(chain(5)) == [["n1", "n4"], ["n2", "n5"], ["n3"]]
    assert len(picked(chain(5), most=1)) == 5


@pytest.mark.parametrize("length", range(3, 12))
def test_a_chain_of_any_length_takes_three_rounds(length: int) -> None:
    assert len(picked(chain(length))) == 3


@given(graphs(), st.one_of(st.none(), st.integers(1, 3)))
def test_sittings_keep_their_distance_and_leave_nothing_out(graph: Graph, most: int | None) -> None:
    near = neighbours(graph)
    done: list[str] = []
    for sitting in sittings(graph, POOLS, most=most):
        assert not sitting.rounds[0].placed, "everything in fast memory is in every sitting"
        for round_ in sitting.rounds:
            assert 1 <= len(round_.tested) <= (most or len(graph.ops))
            for op, other in itertools.combinations(round_.tested, 2):
                assert op not in near[other]
                assert near[op].isdisjoint(near[other])
            assert round_.tested.items() <= round_.present.items()
        assert {*sitting.rounds[0].tested} <= {*sitting.ops}
        for op in sitting.ops:
            wanted = {*configurations(graph, graph.ops[graph.index[op]], POOLS)}
            assert {round_.present[op] for round_ in sitting.rounds} >= wanted, "an op is done with as a whole"
        done += sitting.ops
    assert sorted(done) == sorted(op.name for op in graph.ops)


def test_what_neighbours_have_by_the_way_is_ticked_off() -> None:
    """A chain of three has 2 + 4 + 2 configurations; one at a time, those of the ends come with those of the middle."""
    (sitting,) = sittings(chain(3), POOLS, most=1)
    assert len(sitting.rounds) == 4
    assert {*sitting.ops} == {"n1", "n2", "n3"}
    assert [[*each.tested] for each in sitting.rounds] == [["n2"]] * 4


def test_three_pools_are_one_sitting_with_one_slow_pool_at_a_time() -> None:
    (sitting,) = sittings(chain(3), ("dram", "numa:1", "huge"), most=1)
    assert len(sitting.rounds) == 7
    assert {pool for each in sitting.rounds for pool in each.placed.values()} == {"numa:1", "huge"}
    assert all(len({*each.placed.values()}) < 2 for each in sitting.rounds)


def test_what_was_done_before_needs_no_sitting() -> None:
    graph = chain(6)
    every = [op.name for op in graph.ops]
    assert list(sittings(graph, POOLS, done=every)) == []
    assert [sitting.ops for sitting in sittings(graph, POOLS, done=every[:-1])] == [("n6",)]
