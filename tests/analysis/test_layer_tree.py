"""Sums over subtrees of layers, against sums over the names that begin alike."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.allocation_trace import CATEGORIES, StepTrace
from memtui.analysis.layer_tree import NO_LAYER, LayerTree
from memtui.analysis.trace_index import StepIndex
from tests.support.step_traces import sound_rows

PARTS = ("a", "b", "10", "9")


@st.composite
def steps(draw) -> StepTrace:
    """A step whose layers are nested, or not known."""
    rows, existing = draw(sound_rows())
    paths = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map(".".join)
    names = tuple(draw(st.lists(paths | st.just(""), min_size=1, max_size=6, unique=True)))
    columns = np.array(rows, np.int64).reshape(-1, 7).T
    columns[5] = -1
    columns[6] = [draw(st.integers(-1, len(names) - 1)) for _ in rows]
    return StepTrace.from_columns(columns, step=0, start_ns=100, end_ns=10**6, existing=existing, names=names)


def is_in(layer: str, path: str) -> bool:
    return layer == path or layer.startswith(path + ".")


@settings(deadline=None, max_examples=30)
@given(steps())
def test_each_subtree_is_the_sum_of_the_names_that_begin_so(trace):
    index = StepIndex(trace)
    tree = LayerTree(index)
    layers = {trace.name(int(index.layer[row])) for row in range(len(trace))}
    wanted = {".".join(layer.split(".")[: n + 1]) for layer in layers - {""} for n in range(layer.count(".") + 1)}
    nodes = range(len(tree) - (NO_LAYER in tree.names))
    assert sorted(tree.path(node) for node in nodes) == sorted(wanted)
    assert (NO_LAYER in tree.names) == ("" in layers)
    allocated = [(row, int(trace.delta_bytes[row])) for row in range(trace.existing, len(trace))]
    for node in nodes:
        path = tree.path(node)
        own = [bytes_ for row, bytes_ in allocated if bytes_ > 0 and is_in(trace.name(int(trace.layer[row])), path)]
        assert tree.allocated_bytes[node] == sum(own)
        inside = {trace.names.index(layer) for layer in layers - {""} if is_in(layer, path)}
        assert set(np.flatnonzero(tree.below(node)).tolist()) == inside
    assert tree.allocated_bytes[tree.depth == 0].sum() == sum(bytes_ for _, bytes_ in allocated if bytes_ > 0)
    for row in range(len(trace)):
        held = tree.usage_by_category(row)
        for node in nodes:
            of = [b for b in trace.live_at(row) if is_in(trace.name(b.layer), tree.path(node))]
            for category in range(len(CATEGORIES)):
                assert held[node, category] == sum(b.size_bytes for b in of if b.category == category)
        assert held[tree.depth == 0].sum(axis=0).tolist() == index.usage_by_category(row).tolist(), (
            "parts and the whole"
        )


@settings(deadline=None, max_examples=30)
@given(steps(), st.data())
def test_what_is_folded_hides_what_is_below_it(trace, data):
    tree = LayerTree(StepIndex(trace))
    nodes = list(range(len(tree)))
    unfolded = data.draw(st.sets(st.sampled_from(nodes))) if nodes else set()

    def parents(node: int) -> set[int]:
        above = int(tree.parent[node])
        return {above, *parents(above)} if above >= 0 else set()

    assert tree.in_sight(unfolded).tolist() == [node for node in nodes if parents(node) <= unfolded]
    assert tree.in_sight(set(nodes)).tolist() == nodes
    assert set(tree.parents.tolist()) == {int(above) for above in tree.parent if above >= 0}
    for node in nodes:
        assert tree.end[node] == node + 1 + sum(node in parents(other) for other in nodes)
        assert tree.depth[node] == len(parents(node))
        assert tree.find(tree.path(node)) is not None


def tree_of(*layers: str) -> LayerTree:
    rows = [(100, 1 + n, n, 2, 3, -1, n) for n in range(len(layers))]
    columns = np.array(rows, np.int64).reshape(-1, 7).T
    trace = StepTrace.from_columns(columns, step=0, start_ns=100, end_ns=200, existing=len(rows), names=layers)
    return LayerTree(StepIndex(trace))


def test_layers_stand_in_the_order_of_the_model():
    tree = tree_of("emb", "blocks.0.attn", "blocks.10.attn", "blocks.2.attn", "blocks.0.mlp", "", "head")
    assert [tree.path(node) for node in range(len(tree))] == [
        *("emb", "blocks", "blocks.0", "blocks.0.attn", "blocks.0.mlp", "blocks.2", "blocks.2.attn"),
        *("blocks.10", "blocks.10.attn", "head", ""),
    ]
    assert tree.names[-1] == NO_LAYER
    assert [tree.names[node] for node in tree.in_sight(tree.levels(4))] == ["emb", "blocks", "head", NO_LAYER]
    assert [tree.names[node] for node in tree.in_sight(tree.levels(8))][1:4] == ["blocks", "0", "2"]
    assert len(tree.in_sight(tree.levels(99))) == len(tree)


def test_names_of_nothing_but_dots_and_digits_end():
    tree = tree_of("." * 10_000, "1" * 9_000 + ".2", "7.2")
    assert tree.depth.max() < 100
    assert tree.path(len(tree.names) - 1)
    assert len(tree_of()) == 0
