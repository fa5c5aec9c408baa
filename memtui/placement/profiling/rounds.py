"""Choice of the configurations that are measured together: the greedy rule of nGraph's profiler, for whole ops.

A configuration of an op also places tensors of its neighbours. Ops that are measured together are so far apart that
they share no tensor, and no neighbour: then only one change affects each op.

All configurations of an op, including everything in fast memory, are measured in one sitting: the load of the machine
differs from one sitting to the next, and would look like a difference of pools.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from memtui.placement.configurations import configuration, pair_configurations, usual_pool
from memtui.placement.graph import Configuration, Graph

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Round:
    """One arrangement of the graph to be measured.

    Attributes:
        tested: the configurations that the round is for, by the op's name.
        present: the configuration of every op of the graph: those that are tested, those of their neighbours that
            follow from them, and all others with the usual pools.
        placed: pool of each storage that is not in its usual pool.
    """

    tested: Mapping[str, Configuration]
    present: Mapping[str, Configuration]
    placed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sitting:
    """Rounds that are measured in turns.

    Attributes:
        ops: names of the ops with every configuration in one of the rounds: these are finished.
        rounds: the rounds; the first has everything in its usual pool.
    """

    ops: tuple[str, ...]
    rounds: tuple[Round, ...]


def neighbours(graph: Graph) -> dict[str, frozenset[str]]:
    """Return for each op the other ops that write what it reads, read what it writes, or write the same memory."""
    near: dict[str, set[str]] = {op.name: set() for op in graph.ops}
    for storage in graph.storages.values():
        for writer in storage.writes:
            for other in storage.accesses:
                if writer != other:
                    near[graph.ops[writer].name].add(graph.ops[other].name)
                    near[graph.ops[other].name].add(graph.ops[writer].name)
    return {op: frozenset(others) for op, others in near.items()}


def pick(
    remaining: Iterable[tuple[str, T]], near: Mapping[str, frozenset[str]], most: int | None = None
) -> dict[str, T]:
    """Return the (op, configuration) pairs of one round, taken greedily in their order.

    A pair is taken if neither its op nor a neighbour of the op was seen; then the op and all its neighbours count as
    seen. So two ops of a round are at least three edges apart.

    Args:
        remaining: pairs that are not measured yet.
        near: as ``neighbours`` returns it.
        most: the most pairs to take; 1 measures one configuration at a time.
    """
    seen: set[str] = set()
    taken: dict[str, T] = {}
    for op, item in remaining:
        if most is not None and len(taken) >= most:
            break
        if op not in seen and near[op].isdisjoint(seen):
            taken[op] = item
            seen |= {op} | near[op]
    return taken


def sittings(
    graph: Graph, pools: Sequence[str], done: Iterable[str] = (), most: int | None = None
) -> Iterator[Sitting]:
    """Yield sittings until every op had every configuration (``configurations.pair_configurations``) in one of them.

    Args:
        graph: the graph to measure.
        pools: names of the pools, the usual one first.
        done: names of ops that need no measurement, where a profile is continued.
        most: number of ops that are tested at a time; None: as many as the rule allows.
    """
    near = neighbours(graph)
    wanted: dict[str, list[Configuration]] = {op.name: [] for op in graph.ops}
    for op, choice in pair_configurations(graph, pools):
        wanted[op.name].append(choice)
    usual = {storage: usual_pool(graph, storage, pools) for storage in graph.storages}
    remaining = wanted.keys() - {*done}
    # Ops with most configurations come first: those of their neighbours often follow from them.
    order = sorted((op.name for op in graph.ops), key=lambda name: -len(wanted[name]))
    while remaining:
        taken = pick(((name, wanted[name]) for name in order if name in remaining), near, most)
        rounds = tuple(_round(graph, tested, usual) for tested in _together(taken))
        seen: dict[str, set[Configuration]] = {name: {each.present[name] for each in rounds} for name in remaining}
        ops = tuple(op.name for op in graph.ops if op.name in remaining and seen[op.name] >= {*wanted[op.name]})
        remaining -= {*ops}
        yield Sitting(ops, rounds)


def _together(taken: Mapping[str, Sequence[Configuration]]) -> Iterator[dict[str, Configuration]]:
    """Yield the first configurations, then each op in its next one; ops with fewer configurations start again."""
    for number in range(max(map(len, taken.values()))):
        yield {name: choices[number % len(choices)] for name, choices in taken.items()}


def _round(graph: Graph, tested: Mapping[str, Configuration], usual: Mapping[str, str]) -> Round:
    placed: dict[str, str] = {}
    for name, choice in tested.items():
        op = graph.ops[graph.index[name]]
        for tensor, pool in zip(op.tensors, choice.pools, strict=True):
            storage = graph.tensor[tensor].storage
            if pool != usual[storage]:
                placed[storage] = pool
    present = {op.name: configuration(graph, op, ({**usual, **placed}).__getitem__) for op in graph.ops}
    return Round(tested, present, placed)
