"""Which configurations are measured at one time: the greedy rule of nGraph's profiler.

A configuration of an op also says where its neighbours' tensors lie. Ops that are measured together are so far apart
that they share no tensor, and no neighbour: each is then measured among ops that know of one change only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from memtui.placement.enumerate import all_configurations, configuration, usual_pool
from memtui.placement.model import Configuration, Graph

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Round:
    """One arrangement of the graph to be measured.

    Attributes:
        tested: the configurations that it is for, by the op's name.
        present: what every op of the graph has in it: those that were tested, what their neighbours have from that,
            and everything else in its usual place. All of them are measured and done with.
        placed: pool of each storage that is not in its usual place.
    """

    tested: Mapping[str, Configuration]
    present: Mapping[str, Configuration]
    placed: Mapping[str, str]


def neighbours(graph: Graph) -> dict[str, frozenset[str]]:
    """The ops that write what an op reads, read what it writes, or write the same memory; by name, without itself."""
    found: dict[str, set[str]] = {op.name: set() for op in graph.ops}
    for storage in graph.storages.values():
        for writer in storage.writes:
            for other in storage.accesses:
                if writer != other:
                    found[graph.ops[writer].name].add(graph.ops[other].name)
                    found[graph.ops[other].name].add(graph.ops[writer].name)
    return {op: frozenset(others) for op, others in found.items()}


def pick(
    remaining: Iterable[tuple[str, T]], near: Mapping[str, frozenset[str]], most: int | None = None
) -> dict[str, T]:
    """The (op, configuration) pairs of one round, taken greedily in their order.

    A pair is taken if neither its op nor a neighbour of that was seen; then the op and all its neighbours are. So two
    ops of a round are at least three edges apart.

    Args:
        remaining: what is not measured yet.
        near: as ``neighbours`` has it.
        most: take no more than so many; 1 measures one configuration at a time.
    """
    seen: set[str] = set()
    taken: dict[str, T] = {}
    for op, made in remaining:
        if most is not None and len(taken) >= most:
            break
        if op not in seen and near[op].isdisjoint(seen):
            taken[op] = made
            seen |= {op} | near[op]
    return taken


def rounds(
    graph: Graph,
    pools: Sequence[str],
    done: Iterable[tuple[str, Configuration]] = (),
    most: int | None = None,
) -> Iterator[Round]:
    """Rounds until every configuration of every op was present in one.

    Args:
        graph: what is measured.
        pools: the usual one first.
        done: (op, configuration) pairs that need no round, as where a profile is gone on with.
        most: tested at a time; None: as many as the rule allows.
    """
    near = neighbours(graph)
    remaining = dict.fromkeys((op.name, made) for op, made in all_configurations(graph, pools))
    for pair in done:
        remaining.pop(pair, None)
    usual = {storage: usual_pool(graph, storage, pools) for storage in graph.storages}
    while remaining:
        tested = pick(remaining, near, most)
        placed = _placed(graph, tested, usual)
        present = {op.name: configuration(graph, op, (usual | placed).__getitem__) for op in graph.ops}
        for pair in present.items():
            remaining.pop(pair, None)
        yield Round(tested, present, placed)


def _placed(graph: Graph, tested: Mapping[str, Configuration], usual: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, made in tested.items():
        op = graph.ops[graph.index[name]]
        for tensor, pool in zip(op.tensors, made.pools, strict=True):
            storage = graph.tensor[tensor].storage
            if pool != usual[storage]:
                found[storage] = pool
    return found
