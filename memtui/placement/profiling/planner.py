"""Which measurements a profile needs, which of them are known already, and the rest one after another.

It asks a process that measures, and knows no torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from memtui.core.errors import UserError
from memtui.placement.configurations import pair_configurations
from memtui.placement.graph import Configuration, Graph, Op
from memtui.placement.pool_specs import PoolSpec
from memtui.placement.profile import ISOLATED, SINGLE, Profile, Samples
from memtui.placement.profiling.cache import Cache
from memtui.placement.profiling.rounds import Sitting, sittings
from memtui.placement.store import ProfileFile
from memtui.placement.validation import LARGEST

TOGETHER = 16  # configurations, or arrangements of the graph, that are measured in turns

T = TypeVar("T")
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
        modes: ways of timing, of ``profile.MODES``.
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
        mode: of ``profile.MODES``.
        samples: that there are now: of whole ops, and each op, configuration and mode once in all steps.
        cached: how many of them were known.
        done: sittings of all modes that are done.
        of: so many there are.
        left_s: until the end, as it looks now.
        measured_ns: when what was known was measured (UTC), each moment once.
    """

    mode: str
    samples: tuple[Samples, ...]
    cached: int
    done: int
    of: int
    left_s: float | None
    measured_ns: tuple[int, ...] = ()


class Profiling:
    """The work that a profile is.

    All times of an op come from one sitting, the one with everything in fast memory among them: held against those of
    another day, when other things ran, they say nothing of its pools. So an op is taken from the cache as a whole, or
    measured as a whole.
    """

    def __init__(
        self,
        wanted: Wanted,
        cache: Cache,
        process: Measures,
        facts: Facts,
        about_graph: str,
        *,
        anew: bool = False,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Take what to measure with, and where it goes.

        Args:
            wanted: the measurements.
            cache: knows some of them, and gets the others.
            process: makes them.
            facts: what every time depends on: machine, threads, versions, the pools.
            about_graph: fingerprint of the graph and what was given to it, on which times of runs of it depend.
            anew: take nothing from the cache.
            now_ns: the time of day, by which sittings are told apart.
        """
        self._wanted, self._cache, self._process = wanted, cache, process
        self._facts, self._about_graph, self._anew, self._now_ns = facts, about_graph, anew, now_ns
        self._ops = {op.name: op for op in wanted.graph.ops}
        self._found: dict[str, list[Configuration]] = {name: [] for name in self._ops}
        for op, made in pair_configurations(wanted.graph, wanted.pools):
            self._found[op.name].append(made)

    def steps(self, done: Iterable[Key] = ()) -> Iterator[Step]:
        """Do what is missing. Raises UserError.

        Args:
            done: what needs no measurement, as where a profile is gone on with.
        """
        known = {*done}
        work: list[tuple[str, Any]] = []
        for mode in self._wanted.modes:
            missing = {n for n, found in self._found.items() if not known.issuperset((n, made, mode) for made in found)}
            for alike in self._alike() if mode == ISOLATED else [[op] for op in self._ops]:
                if missing.isdisjoint(alike) or (kept := self._kept(alike, mode)) is None:
                    continue
                values, when = kept
                found = [s for s in self._samples(alike, mode, values) if s.op in missing]
                missing -= {*alike}
                yield Step(mode, tuple(found), len(found), 0, 0, None, (when,))
            if mode == ISOLATED:
                work += [(mode, (alike, missing)) for alike in self._alike() if not missing.isdisjoint(alike)]
            else:
                ready = self._ops.keys() - missing
                most = 1 if mode == SINGLE else None
                work += [(mode, each) for each in sittings(self._wanted.graph, self._wanted.pools, ready, most)]
        begin = time.monotonic()
        for number, (mode, piece) in enumerate(work, 1):
            made = self._alone(*piece) if mode == ISOLATED else self._in_graph(mode, piece)
            left_s = (time.monotonic() - begin) / number * (len(work) - number)
            yield Step(mode, tuple(made), 0, number, len(work), left_s)

    def _alike(self) -> list[list[str]]:
        """Names of ops, those of one kind and key together: by themselves they are measured once."""
        found: dict[tuple[str, str], list[str]] = {}
        for op in self._wanted.graph.ops:
            found.setdefault((op.kind, op.key), []).append(op.name)
        return [*found.values()]

    def _alone(self, alike: Sequence[str], missing: Iterable[str]) -> list[Samples]:
        when, values = self._now_ns(), _Values()
        for op, configurations in asks([self._ops[name] for name in alike], self._found):
            for part in _parts(configurations):
                times = self._process.isolated(op.name, part, self._wanted.seconds)
                for made, found in zip(part, times, strict=True):
                    values.add(made, found, range(len(found)))
        plain = values.plain(when)
        first = self._ops[alike[0]]
        self._cache.put([(self._what(first, made, ISOLATED), value) for made, value in plain.items()])
        return [s for s in self._samples(alike, ISOLATED, plain) if s.op in missing]

    def _in_graph(self, mode: str, sitting: Sitting) -> list[Samples]:
        """Return the times of every op that has all of its configurations in these rounds."""
        when, values = self._now_ns(), {op: _Values() for op in sitting.ops}
        number = 0
        for part in _parts(sitting.rounds):
            runs = self._process.in_graph([each.placed for each in part], self._wanted.seconds)
            for each, times in zip(part, runs, strict=True):
                for op in sitting.ops:
                    at = self._wanted.graph.index[op]
                    values[op].add(
                        each.present[op], [of_run[at] for of_run in times], range(number, number + len(times))
                    )
                number += len(times)
        plain = {op: each.plain(when) for op, each in values.items()}
        self._cache.put(
            [
                (self._what(self._ops[op], made, mode), value)
                for op, found in plain.items()
                for made, value in found.items()
            ]
        )
        return [samples for op, found in plain.items() for samples in self._samples([op], mode, found)]

    def _what(self, op: Op, configuration: Configuration, mode: str) -> Facts:
        """All that a measurement depends on."""
        fast = self._wanted.pools[0]
        if mode == ISOLATED:
            about = {"kind": op.kind, "key": op.key, "fast": fast}
        else:
            about = {"graph": self._about_graph, "op": op.name, "fast": fast}
        pools = {name: self._facts["pools"][name] for name in {*configuration.pools, fast}}
        return {**self._facts, **about, "mode": mode, "pools": pools, "configuration": configuration.to_plain()}

    def _kept(self, alike: Sequence[str], mode: str) -> tuple[dict[Configuration, Value], int] | None:
        """Return what the cache has of ops that are measured together, and when that was.

        Return None unless it is of one sitting.
        """
        values: dict[Configuration, Value] = {}
        if self._anew:
            return None
        for made in dict.fromkeys(made for name in alike for made in self._found[name]):
            value = self._cache.get(self._what(self._ops[alike[0]], made, mode))
            if not _is_measurement(value):
                return None
            values[made] = value
        moments = {value["sitting"] for value in values.values()}
        return (values, moments.pop()) if len(moments) == 1 else None

    def _samples(self, alike: Sequence[str], mode: str, values: Mapping[Configuration, Value]) -> list[Samples]:
        return [
            Samples(op, made, mode, tuple(map(float, values[made]["time_ns"])), tuple(values[made]["run"]))
            for op in alike
            for made in self._found[op]
        ]


Value = Mapping[str, Any]  # as it is cached: time_ns, run, and sitting: when it began (ns, UTC)


class _Values:
    """Times of one sitting by configuration."""

    def __init__(self) -> None:
        self._times: dict[Configuration, tuple[list[float], list[int]]] = {}

    def add(self, made: Configuration, times: Sequence[float], runs: Iterable[int]) -> None:
        into = self._times.setdefault(made, ([], []))
        into[0].extend(times)
        into[1].extend(runs)

    def plain(self, when: int) -> dict[Configuration, Value]:
        return {made: {"time_ns": t, "run": runs, "sitting": when} for made, (t, runs) in self._times.items()}


def asks(alike: Sequence[Op], found: Mapping[str, Sequence[Configuration]]) -> Iterator[tuple[Op, list[Configuration]]]:
    """Ops of one kind and key are measured once, each time with a configuration that the op itself has.

    Where several have to be asked, each is with its first configuration, too, which all of them have.
    """
    seen: set[Configuration] = set()
    for op in alike:
        own = [made for made in found[op.name] if made not in seen]
        if own:
            first = found[op.name][:1]
            yield op, [*first, *(made for made in own if made not in first)]
        seen |= {*own}


def _parts(of: Sequence[T]) -> Iterator[list[T]]:
    """Not more than are measured in turns, the first of all in each part."""
    for at in range(1, max(2, len(of)), TOGETHER - 1):
        yield [of[0], *of[at : at + TOGETHER - 1]]


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
        and type(value.get("sitting")) is int
    )


@dataclass(frozen=True)
class Request:
    """What was asked for.

    Attributes:
        model: one that comes along, or ``FILE.py:function``.
        pools: the fast one first.
        modes: ways of timing.
        seconds: for each configuration, or arrangement of the graph.
        batch: of a model that comes along.
        seed: of its parameters and inputs, and of the order of measurements.
        threads: of ops; 0: one less than there are CPUs.
        anew: take nothing from the cache, or from a profile that is there.
    """

    model: str
    pools: tuple[PoolSpec, ...]
    modes: tuple[str, ...]
    seconds: float
    batch: int
    seed: int
    threads: int
    anew: bool = False


def far(profile: Profile, modes: Sequence[str]) -> dict[str, tuple[int, int]]:
    """How many configurations have times, and how many there are, in each of these ways of timing."""
    of = len(pair_configurations(profile.graph, [pool.name for pool in profile.pools]))
    return {mode: (sum(samples.mode == mode for samples in profile.samples), of) for mode in modes}


def broken_off(path: Path, modes: Sequence[str]) -> str:
    """Return what is left when measuring ends early."""
    try:
        counts = far(ProfileFile(path).profile(), modes)
    except UserError:
        return "broken off before there was a time to keep"
    there, of = (sum(counts) for counts in zip(*counts.values(), strict=True))
    return f"broken off, unfinished: {path} has {there} of {of} configurations; the same command goes on from there"
