"""Which configurations are measured at one time: the greedy rule of nGraph's profiler, for whole ops.

A configuration of an op also says where its neighbours' tensors lie. Ops that are measured together are so far apart
that they share no tensor, and no neighbour: each is then measured among ops that know of one change only.

All configurations of an op are measured in one sitting, the one with everything in fast memory among them: how busy the
machine was differs from one sitting to the next, and would look like a difference of pools.
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
        tested: the configurations that it is for, by the op's name.
        present: what every op of the graph has in it: those that were tested, what their neighbours have from that,
            and everything else in its usual place.
        placed: pool of each storage that is not in its usual place.
    """

    tested: Mapping[str, Configuration]
    present: Mapping[str, Configuration]
    placed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Sitting:
    """Rounds that are measured in turns.

    Attributes:
        ops: names of those that have every configuration in one of the rounds: these are done with.
        rounds: the first one has everything in its usual place.
    """

    ops: tuple[str, ...]
    rounds: tuple[Round, ...]


def neighbours(graph: Graph) -> dict[str, frozenset[str]]:
    """Return the ops that write what an op reads, read what it writes, or write the same memory.

    Ops are given by name, without itself.
    """
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

    A pair is taken if neither its op nor a neighbour of that was seen; then the op and all its neighbours are. So two
    ops of a round are at least three edges apart.

    Args:
        remaining: what is not measured yet.
        near: as ``neighbours`` has it.
        most: take no more than so many; 1 measures one configuration at a time.
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
    """Sittings until every op had every configuration (``configurations.pair_configurations``) in one of them.

    Args:
        graph: what is measured.
        pools: the usual one first.
        done: names of ops that need no measurement, as where a profile is gone on with.
        most: ops that are tested at a time; None: as many as the rule allows.
    """
    near = neighbours(graph)
    wanted: dict[str, list[Configuration]] = {op.name: [] for op in graph.ops}
    for op, choice in pair_configurations(graph, pools):
        wanted[op.name].append(choice)
    usual = {storage: usual_pool(graph, storage, pools) for storage in graph.storages}
    remaining = wanted.keys() - {*done}
    # Those with most configurations first: their neighbours' often come with them.
    order = sorted((op.name for op in graph.ops), key=lambda name: -len(wanted[name]))
    while remaining:
        taken = pick(((name, wanted[name]) for name in order if name in remaining), near, most)
        rounds = tuple(_round(graph, tested, usual) for tested in _together(taken))
        seen: dict[str, set[Configuration]] = {name: {each.present[name] for each in rounds} for name in remaining}
        ops = tuple(op.name for op in graph.ops if op.name in remaining and seen[op.name] >= {*wanted[op.name]})
        remaining -= {*ops}
        yield Sitting(ops, rounds)


def _together(taken: Mapping[str, Sequence[Configuration]]) -> Iterator[dict[str, Configuration]]:
    """Yield everything in its usual place, then each op in its next configuration; ops with fewer start again."""
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
