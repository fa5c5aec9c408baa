"""Ops that share their times: of each group one is measured, and counted as often as the step has it.

The steps of a recurrent network are the same few ops again and again, and so are the blocks of a deep one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from memtui.placement.configurations import pair_configurations
from memtui.placement.graph import Configuration, Graph
from memtui.placement.profile import ISOLATED
from memtui.placement.profiling.rounds import neighbours


def configurations_of(graph: Graph, pools: Sequence[str]) -> dict[str, list[Configuration]]:
    """Return the configurations that are measured of each op, by its name."""
    every: dict[str, list[Configuration]] = {op.name: [] for op in graph.ops}
    for op, configuration in pair_configurations(graph, pools):
        every[op.name].append(configuration)
    return every


def alike_ops(graph: Graph, configurations: Mapping[str, Sequence[Configuration]], mode: str) -> list[list[str]]:
    """Return groups of ops that share their times, by name; each op is in one group.

    By themselves, ops of one kind and key are alike. In the graph, what is before and behind an op matters, too: there
    they are alike if they also have the same configurations, and neighbours of the same kinds and keys.
    """
    own: dict[str, Hashable] = {op.name: (op.kind, op.key) for op in graph.ops}
    signatures = own
    if mode != ISOLATED:
        near = neighbours(graph)
        signatures = {
            name: (
                own[name],
                tuple(configurations[name]),
                frozenset((graph.index[other] < index, own[other]) for other in near[name]),
            )
            for name, index in graph.index.items()
        }
    groups: dict[Hashable, list[str]] = {}
    for name, signature in signatures.items():
        groups.setdefault(signature, []).append(name)
    return [*groups.values()]


def measured_count(graph: Graph, pools: Sequence[str], mode: str) -> int:
    """Return how many configurations a way of timing measures; all others have the times of an op that is alike."""
    configurations = configurations_of(graph, pools)
    groups = alike_ops(graph, configurations, mode)
    return sum(len({each for name in group for each in configurations[name]}) for group in groups)
