"""Plan of a profile's measurements: takes from the cache what it has, and measures the rest step by step.

Another process measures; this module does not import torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from memtui.core.errors import UserError
from memtui.core.json_fields import to_json
from memtui.placement.configurations import pair_configurations
from memtui.placement.graph import Configuration, Graph, Op
from memtui.placement.pool_specs import PoolSpec
from memtui.placement.profile import ISOLATED, SINGLE, Profile, Samples
from memtui.placement.profiling.alike import alike_ops, configurations_of
from memtui.placement.profiling.cache import Cache
from memtui.placement.profiling.rounds import Sitting, sittings
from memtui.placement.store import ProfileFile
from memtui.placement.validation import Damaged, count, list_of, number, required, table
from memtui.placement.worker_protocol import CreatedPool, Environment

TOGETHER = 16  # configurations, or arrangements of the graph, that are measured in turns

T = TypeVar("T")
Key = tuple[str, Configuration, str]  # op, configuration, mode


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that every time depends on.

    Attributes:
        environment: machine, threads and versions.
        pools: pools by name.
    """

    environment: Environment
    pools: Mapping[str, CreatedPool]


@dataclass(frozen=True, slots=True)
class TimesKey:
    """Everything that the times of an op in a configuration depend on.

    Attributes:
        environment: machine, threads and versions.
        pools: the pools of the configuration, and the fast one.
        about: the op and, unless it is timed by itself, its graph.
        fast: name of the fast pool.
        mode: way of timing.
        configuration: of the op.
    """

    environment: Environment
    pools: Mapping[str, CreatedPool]
    about: Mapping[str, str]
    fast: str
    mode: str
    configuration: Configuration

    def to_dict(self) -> dict[str, Any]:
        return {
            **to_json(self.environment),
            **self.about,
            "fast": self.fast,
            "mode": self.mode,
            "pools": to_json(self.pools),
            "configuration": self.configuration.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Times:
    """Times of an op in a configuration, as they are cached.

    Attributes:
        time_ns: time of each call.
        run: for each time, the number of its run.
        sitting: start of the sitting in which they were measured (ns, UTC).
    """

    time_ns: tuple[float, ...]
    run: tuple[int, ...]
    sitting: int

    @classmethod
    def from_dict(cls, value: Any, what: str = "times") -> Times:
        """Raise Damaged: another program may have written the value."""
        fields = table(value, what)
        times = cls(
            list_of(fields, "time_ns", number), list_of(fields, "run", count), required(fields, "sitting", _moment)
        )
        if not times.time_ns or len(times.run) != len(times.time_ns):
            raise Damaged(f"{what}: there are {len(times.time_ns)} of {len(times.run)} runs")
        return times


def _moment(value: Any, what: str) -> int:
    if type(value) is not int:
        raise Damaged(f"{what} is not a moment")
    return value


class Measures(Protocol):
    """Operations of a measuring process."""

    def isolated(self, op: str, configurations: Sequence[Configuration], seconds: float) -> list[list[float]]: ...

    def in_graph(self, placements: Sequence[Mapping[str, str]], seconds: float) -> list[list[list[float]]]: ...


@dataclass(frozen=True, slots=True)
class Measurements:
    """Measurements that a profile needs.

    Attributes:
        graph: graph of the step.
        pools: names of the pools, the fast one first.
        modes: ways of timing, of ``profile.MODES``.
        seconds: measuring time of each configuration, or arrangement of the graph.
    """

    graph: Graph
    pools: tuple[str, ...]
    modes: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class ProfilingStep:
    """Samples that were measured, or taken from the cache, in one step.

    Attributes:
        mode: way of timing, of ``profile.MODES``.
        samples: of whole ops; each op, configuration and mode comes once in all steps.
        cached: number of samples that are from the cache.
        done: number of finished sittings of all modes.
        of: number of all sittings.
        left_s: estimated time until the end.
        measured_ns: times at which cached samples were measured (UTC), each time once.
    """

    mode: str
    samples: tuple[Samples, ...]
    cached: int
    done: int
    of: int
    left_s: float | None
    measured_ns: tuple[int, ...] = ()


class Profiling:
    """The measuring of a profile.

    All times of an op, including those with everything in fast memory, come from one sitting: compared with times of
    another day, when other programs ran, they say nothing of the pools. So an op is taken from the cache as a whole, or
    measured as a whole.
    """

    def __init__(
        self,
        measurements: Measurements,
        cache: Cache,
        process: Measures,
        facts: Facts,
        about_graph: str,
        *,
        anew: bool = False,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Store the measurements to do, and the means to do them.

        Args:
            measurements: the measurements.
            cache: has some of the measurements, and gets the others.
            process: does the measurements.
            facts: facts that every time depends on.
            about_graph: fingerprint of the graph and its inputs, on which times of its runs depend.
            anew: whether to take nothing from the cache.
            now_ns: the time of day, which identifies a sitting.
        """
        self._measurements, self._cache, self._process = measurements, cache, process
        self._facts, self._about_graph, self._anew, self._now_ns = facts, about_graph, anew, now_ns
        self._ops = {op.name: op for op in measurements.graph.ops}
        self._configurations = configurations_of(measurements.graph, measurements.pools)
        self._alike = {mode: alike_ops(measurements.graph, self._configurations, mode) for mode in measurements.modes}

    def steps(self, done: Iterable[Key] = ()) -> Iterator[ProfilingStep]:
        """Yield a step for each missing measurement, done or from the cache. Raises UserError.

        Args:
            done: keys that need no measurement, where a profile is continued.
        """
        measured = {*done}
        work: list[tuple[str, Callable[[], list[Samples]]]] = []
        for mode in self._measurements.modes:
            missing = {
                op
                for op, configurations in self._configurations.items()
                if not measured.issuperset((op, configuration, mode) for configuration in configurations)
            }
            for alike in self._alike[mode]:
                if missing.isdisjoint(alike) or (cached := self._cached(alike, mode)) is None:
                    continue
                times, when = cached
                samples = [s for s in self._samples(alike, mode, times) if s.op in missing]
                missing -= {*alike}
                yield ProfilingStep(mode, tuple(samples), len(samples), 0, 0, None, (when,))
            work += [(mode, measure) for measure in self._work(mode, missing)]
        start_s = time.monotonic()
        for position, (mode, measure) in enumerate(work, 1):
            samples = measure()
            left_s = (time.monotonic() - start_s) / position * (len(work) - position)
            yield ProfilingStep(mode, tuple(samples), 0, position, len(work), left_s)

    def _work(self, mode: str, missing: Set[str]) -> list[Callable[[], list[Samples]]]:
        """Return a function for each missing sitting of a way of timing, which measures it."""
        groups = [alike for alike in self._alike[mode] if not missing.isdisjoint(alike)]
        if mode == ISOLATED:
            return [partial(self._alone, alike, missing) for alike in groups]
        first = {alike[0]: alike for alike in groups}
        most = 1 if mode == SINGLE else None
        every = sittings(self._measurements.graph, self._measurements.pools, self._ops.keys() - first.keys(), most)
        return [partial(self._in_graph, mode, sitting, first, missing) for sitting in every]

    def _alone(self, alike: Sequence[str], missing: Set[str]) -> list[Samples]:
        gathered = _SittingTimes(self._now_ns())
        for op, configurations in configurations_to_measure([self._ops[name] for name in alike], self._configurations):
            for part in _parts(configurations):
                measured = self._process.isolated(op.name, part, self._measurements.seconds)
                for configuration, times in zip(part, measured, strict=True):
                    gathered.add(configuration, times, range(len(times)))
        times_of = gathered.times()
        first = self._ops[alike[0]]
        self._cache.put(
            [(self._key(first, configuration, ISOLATED), times) for configuration, times in times_of.items()]
        )
        return [s for s in self._samples(alike, ISOLATED, times_of) if s.op in missing]

    def _in_graph(
        self, mode: str, sitting: Sitting, alike: Mapping[str, Sequence[str]], missing: Set[str]
    ) -> list[Samples]:
        """Measure a sitting, and return the samples of its ops, and of those that are alike.

        Its ops have all their configurations in it.
        """
        start_ns = self._now_ns()
        gathered = {op: _SittingTimes(start_ns) for op in sitting.ops}
        number = 0
        for part in _parts(sitting.rounds):
            runs = self._process.in_graph([each.placed for each in part], self._measurements.seconds)
            for each, times in zip(part, runs, strict=True):
                for op in sitting.ops:
                    index = self._measurements.graph.index[op]
                    of_op = [of_run[index] for of_run in times]
                    gathered[op].add(each.present[op], of_op, range(number, number + len(times)))
                number += len(times)
        times_of = {op: each.times() for op, each in gathered.items()}
        self._cache.put(
            [
                (self._key(self._ops[op], configuration, mode), times)
                for op, of_configuration in times_of.items()
                for configuration, times in of_configuration.items()
            ]
        )
        samples = (each for op, of_op in times_of.items() for each in self._samples(alike[op], mode, of_op))
        return [each for each in samples if each.op in missing]

    def _key(self, op: Op, configuration: Configuration, mode: str) -> TimesKey:
        fast = self._measurements.pools[0]
        alone = mode == ISOLATED
        about = {"kind": op.kind, "key": op.key} if alone else {"graph": self._about_graph, "op": op.name}
        pools = {name: self._facts.pools[name] for name in {*configuration.pools, fast}}
        return TimesKey(self._facts.environment, pools, about, fast, mode, configuration)

    def _cached(self, alike: Sequence[str], mode: str) -> tuple[dict[Configuration, Times], int] | None:
        """Return the cached times of ops that are measured together, and the start of their sitting.

        Return None unless the cache has all of them, from one sitting.
        """
        times_of: dict[Configuration, Times] = {}
        if self._anew:
            return None
        first = self._ops[alike[0]]
        for configuration in dict.fromkeys(each for name in alike for each in self._configurations[name]):
            try:
                times_of[configuration] = Times.from_dict(self._cache.get(self._key(first, configuration, mode)))
            except Damaged:  # or it is not there
                return None
        moments = {times.sitting for times in times_of.values()}
        return (times_of, moments.pop()) if len(moments) == 1 else None

    def _samples(self, alike: Sequence[str], mode: str, times_of: Mapping[Configuration, Times]) -> list[Samples]:
        return [
            Samples(op, configuration, mode, tuple(map(float, times.time_ns)), times.run)
            for op in alike
            for configuration in self._configurations[op]
            for times in [times_of[configuration]]
        ]


class _SittingTimes:
    """Times of one sitting by configuration."""

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._times: dict[Configuration, tuple[list[float], list[int]]] = {}

    def add(self, configuration: Configuration, times: Sequence[float], runs: Iterable[int]) -> None:
        into = self._times.setdefault(configuration, ([], []))
        into[0].extend(times)
        into[1].extend(runs)

    def times(self) -> dict[Configuration, Times]:
        return {
            configuration: Times(tuple(times), tuple(runs), self._start_ns)
            for configuration, (times, runs) in self._times.items()
        }


def configurations_to_measure(
    alike: Sequence[Op], configurations: Mapping[str, Sequence[Configuration]]
) -> Iterator[tuple[Op, list[Configuration]]]:
    """Yield the configurations to measure of ops of one kind and key: each configuration once, of an op that has it.

    Where several ops are measured, the first configuration, which all of them have, is measured for each.
    """
    seen: set[Configuration] = set()
    for op in alike:
        own = [configuration for configuration in configurations[op.name] if configuration not in seen]
        if own:
            first = configurations[op.name][:1]
            yield op, [*first, *(configuration for configuration in own if configuration not in first)]
        seen |= {*own}


def _parts(of: Sequence[T]) -> Iterator[list[T]]:
    """Yield parts that are measured in turns, at most ``TOGETHER`` items each; the first item is in every part."""
    for start in range(1, max(2, len(of)), TOGETHER - 1):
        yield [of[0], *of[start : start + TOGETHER - 1]]


@dataclass(frozen=True)
class Request:
    """A profile as it was requested.

    Attributes:
        model: name of a bundled model, or ``FILE.py:function``.
        pools: the pools, the fast one first.
        modes: ways of timing.
        seconds: measuring time of each configuration, or arrangement of the graph.
        batch: batch size of a bundled model.
        seed: of parameters and inputs, and of the order of measurements.
        threads: number of threads of an op; 0: one less than there are CPUs.
        anew: whether to take nothing from the cache, or from an existing profile.
    """

    model: str
    pools: tuple[PoolSpec, ...]
    modes: tuple[str, ...]
    seconds: float
    batch: int
    seed: int
    threads: int
    anew: bool = False


def progress_of(profile: Profile, modes: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return how many configurations have times, and how many there are, in each of these ways of timing."""
    of = len(pair_configurations(profile.graph, [pool.name for pool in profile.pools]))
    return {mode: (sum(samples.mode == mode for samples in profile.samples), of) for mode in modes}


def unfinished_message(path: Path, modes: Sequence[str]) -> str:
    """Return a message for the user when the measuring ends early."""
    try:
        counts = progress_of(ProfileFile(path).profile(), modes)
    except UserError:
        return "broken off before there was a time to keep"
    there, of = (sum(counts) for counts in zip(*counts.values(), strict=True))
    return f"broken off, unfinished: {path} has {there} of {of} configurations; the same command goes on from there"
