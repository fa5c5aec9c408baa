"""Configurations of an op: the rule of nGraph's profiler, with AutoTM's merging of repeats.

An input or output may lie in any pool where there is a choice (``Graph.is_free``): it is intermediate, so not a
parameter, constant or result. Tensors that share their memory lie in one pool.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from memtui.placement.graph import Configuration, Graph, Op


def free_storages(graph: Graph, op: Op, pools: Sequence[str]) -> tuple[str, ...]:
    """Return the storages of an op that may lie in several of these pools, in the order of its inputs and outputs."""
    return tuple(dict.fromkeys(graph.tensor[t].storage for t in op.tensors if graph.is_free(t, pools)))


def configuration(graph: Graph, op: Op, pool_of: Callable[[str], str]) -> Configuration:
    """Return the configuration of an op where each of its storages, by name, lies in a pool."""
    inputs, outputs = ((pool_of(graph.tensor[t].storage) for t in side) for side in (op.inputs, op.outputs))
    return Configuration(tuple(inputs), tuple(outputs))


def usual_pool(graph: Graph, storage: str, pools: Sequence[str]) -> str:
    """Return the pool of a storage that is not placed: the first that it may lie in, or else the first of all."""
    entry = graph.storages[storage]
    return next((pool for pool in pools if entry.counted and entry.may_lie_in(pool)), pools[0])


def configurations(graph: Graph, op: Op, pools: Sequence[str]) -> Iterator[Configuration]:
    """Yield every configuration of an op, the one with everything in the first pool first: pools ** free storages."""
    free = free_storages(graph, op, pools)
    for choice in itertools.product(*([p for p in pools if graph.storages[s].may_lie_in(p)] for s in free)):
        placed = dict(zip(free, choice, strict=True))
        yield configuration(graph, op, lambda s, placed=placed: placed.get(s) or usual_pool(graph, s, pools))  # type: ignore[misc]


def all_configurations(graph: Graph, pools: Sequence[str]) -> list[tuple[Op, Configuration]]:
    """Return the configurations of every op, in the order of the ops: these have to be measured."""
    return [(op, choice) for op in graph.ops for choice in configurations(graph, op, pools)]


def pair_configurations(graph: Graph, pools: Iterable[str]) -> list[tuple[Op, Configuration]]:
    """Return ``all_configurations`` with one slow pool at a time, as plans need them: fewer than with all pools."""
    fast, *slow = pools
    pairs = dict.fromkeys(pair for other in slow for pair in all_configurations(graph, (fast, other)))
    return sorted(pairs, key=lambda pair: graph.index[pair[0].name])
