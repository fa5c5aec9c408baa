"""Which measurements a profile needs, which of them are known already, and the rest one after another.

It asks a process that measures, and knows no torch.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from memtui.placement.cache import Cache
from memtui.placement.enumerate import pair_configurations
from memtui.placement.measured import ISOLATED, SINGLE, Samples
from memtui.placement.model import Configuration, Graph, Op
from memtui.placement.plain import LARGEST
from memtui.placement.rounds import Round, rounds

TOGETHER = 8  # configurations, or arrangements of the graph, that are measured in turns, and kept together

Key = tuple[str, Configuration, str]  # op, configuration, mode
Facts = Mapping[str, Any]


class Measures(Protocol):
    """What a measuring process can be asked for."""

    def isolated(self, op: str, configurations: Sequence[Configuration], seconds: float) -> list[list[float]]: ...

    def in_graph(self, placements: Sequence[Mapping[str, str]], seconds: float) -> list[list[list[float]]]: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be measured.

    Attributes:
        graph: of the step.
        pools: names, the fast one first.
        modes: ways of timing, of ``measured.MODES``.
        seconds: for each configuration, or arrangement of the graph.
    """

    graph: Graph
    pools: tuple[str, ...]
    modes: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Step:
    """What was found at one time.

    Attributes:
        mode: of ``measured.MODES``.
        samples: that there are now; each op, configuration and mode once in all steps.
        cached: how many of them were known.
        done: pieces of work of all modes that are done.
        of: so many there are.
        left_s: until the end, as it looks now.
    """

    mode: str
    samples: tuple[Samples, ...]
    cached: int
    done: int
    of: int
    left_s: float | None


class Profiling:
    """The work that a profile is."""

    def __init__(self, wanted: Wanted, cache: Cache, process: Measures, facts: Facts, about_graph: str) -> None:
        """What to do it with.

        Args:
            wanted: the measurements.
            cache: knows some of them, and gets the others.
            process: makes them.
            facts: what every time depends on: machine, threads, versions, the pools.
            about_graph: fingerprint of the graph and what was given to it, on which times of runs of it depend.
        """
        self._wanted, self._cache, self._process = wanted, cache, process
        self._facts, self._about_graph = facts, about_graph

    def steps(self, done: Iterable[Key] = ()) -> Iterator[Step]:
        """Do what is missing. Raises UserError.

        Args:
            done: what needs no measurement, as where a profile is gone on with.
        """
        known = {*done}
        work: list[tuple[str, Any]] = []
        for mode in self._wanted.modes:
            pairs = [(op, c) for op, c in self._pairs() if (op.name, c, mode) not in known]
            found = [self._samples(op.name, c, mode, value) for op, c in pairs if (value := self._get(op, c, mode))]
            known |= {(s.op, s.configuration, s.mode) for s in found}
            for part in _parts(found, 64):
                yield Step(mode, tuple(part), len(part), 0, 0, None)
            if mode == ISOLATED:
                missing = [(op, c) for op, c in pairs if (op.name, c, mode) not in known]
                work += [(mode, piece) for piece in pieces(missing)]
            else:
                most = 1 if mode == SINGLE else None
                ready = {(op, c) for op, c, way in known if way == mode}
                work += [(mode, part) for part in _parts(self._rounds(ready, most), TOGETHER)]
        begin = time.monotonic()
        for number, (mode, piece) in enumerate(work, 1):
            made = self._alone(piece) if mode == ISOLATED else self._in_graph(mode, piece, known)
            known |= {(s.op, s.configuration, s.mode) for s in made}
            left_s = (time.monotonic() - begin) / number * (len(work) - number)
            yield Step(mode, tuple(made), 0, number, len(work), left_s)

    def _pairs(self) -> list[tuple[Op, Configuration]]:
        return pair_configurations(self._wanted.graph, self._wanted.pools)

    def _rounds(self, ready: set[tuple[str, Configuration]], most: int | None) -> list[Round]:
        fast, *slow = self._wanted.pools
        found: list[Round] = []
        done = {*ready}
        for other in slow:
            for each in rounds(self._wanted.graph, (fast, other), done, most):
                found.append(each)
                done |= {*each.present.items()}
        return found

    def _alone(self, piece: Piece) -> list[Samples]:
        times = self._process.isolated(piece.op.name, piece.configurations, self._wanted.seconds)
        values: dict[Configuration, dict[str, list[Any]]] = {
            configuration: {"time_ns": list(found), "run": list(range(len(found)))}
            for configuration, found in zip(piece.configurations, times, strict=True)
        }
        self._cache.put([(self._what(piece.op, made, ISOLATED), value) for made, value in values.items()])
        return [self._samples(op.name, made, ISOLATED, values[made]) for op, made in piece.shared]

    def _in_graph(self, mode: str, arrangements: Sequence[Round], known: set[Key]) -> list[Samples]:
        """Times of every op in what it has in these rounds, where that was not known yet."""
        graph = self._wanted.graph
        runs = self._process.in_graph([each.placed for each in arrangements], self._wanted.seconds)
        values: dict[tuple[str, Configuration], dict[str, list[Any]]] = {}
        number = 0
        for each, times in zip(arrangements, runs, strict=True):
            for of_run in times:
                for op, ns in zip(graph.ops, of_run, strict=True):
                    made = each.present[op.name]
                    if (op.name, made, mode) not in known:
                        into = values.setdefault((op.name, made), {"time_ns": [], "run": []})
                        into["time_ns"].append(ns)
                        into["run"].append(number)
                number += 1
        ops = {op.name: op for op in graph.ops}
        self._cache.put([(self._what(ops[op], made, mode), value) for (op, made), value in values.items()])
        return [self._samples(op, made, mode, value) for (op, made), value in values.items()]

    def _what(self, op: Op, configuration: Configuration, mode: str) -> Facts:
        """All that a measurement depends on."""
        if mode == ISOLATED:
            about = {"kind": op.kind, "key": op.key}
        else:
            about = {"graph": self._about_graph, "op": op.name, "fast": self._wanted.pools[0]}
        pools = {name: self._facts["pools"][name] for name in {*configuration.pools, self._wanted.pools[0]}}
        return {**self._facts, **about, "mode": mode, "pools": pools, "configuration": configuration.to_plain()}

    def _get(self, op: Op, configuration: Configuration, mode: str) -> dict[str, list[Any]] | None:
        value = self._cache.get(self._what(op, configuration, mode))
        return value if _is_measurement(value) else None

    def _samples(self, op: str, made: Configuration, mode: str, value: Mapping[str, Sequence[Any]]) -> Samples:
        return Samples(op, made, mode, tuple(map(float, value["time_ns"])), tuple(value["run"]))


@dataclass(frozen=True, slots=True)
class Piece:
    """Configurations of one op by itself that are measured in turns.

    Attributes:
        op: that is measured.
        configurations: of it.
        shared: all ops that have the times of these, as they are of its kind and key.
    """

    op: Op
    configurations: tuple[Configuration, ...]
    shared: tuple[tuple[Op, Configuration], ...]


def pieces(missing: Sequence[tuple[Op, Configuration]]) -> list[Piece]:
    """Ops of one kind and key are measured once, each time with a configuration that the op itself has."""
    sharing: dict[tuple[str, str, Configuration], list[Op]] = {}
    for op, configuration in missing:
        sharing.setdefault((op.kind, op.key, configuration), []).append(op)
    by_op: dict[str, list[tuple[Op, Configuration, list[Op]]]] = {}
    for (_, _, configuration), ops in sharing.items():
        by_op.setdefault(ops[0].name, []).append((ops[0], configuration, ops))
    found = []
    for entries in by_op.values():
        for part in _parts(entries, TOGETHER):
            shared = tuple((op, configuration) for _, configuration, ops in part for op in ops)
            found.append(Piece(part[0][0], tuple(configuration for _, configuration, _ in part), shared))
    return found


def _parts(of: Iterable[Any], size: int) -> Iterator[list[Any]]:
    waiting = iter(of)
    while part := list(itertools.islice(waiting, size)):
        yield part


def _is_measurement(value: Any) -> bool:
    """Whether a cache holds what it should."""
    if not isinstance(value, dict) or not isinstance(value.get("time_ns"), list):
        return False
    times, runs = value["time_ns"], value.get("run")
    return (
        bool(times)
        and isinstance(runs, list)
        and len(runs) == len(times)
        and all(type(t) in (int, float) and 0 <= t <= LARGEST for t in times)
        and all(type(run) is int and run >= 0 for run in runs)
    )
