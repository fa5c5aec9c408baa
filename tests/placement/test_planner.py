"""Which measurements are done, how often, and which of them survive an interruption."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.core.errors import UserError
from memtui.placement.configurations import all_configurations, configurations
from memtui.placement.graph import Configuration, Graph
from memtui.placement.profile import MODES, Samples
from memtui.placement.profiling.cache import Cache
from memtui.placement.profiling.planner import (
    TOGETHER,
    Facts,
    Measurements,
    Profiling,
    ProfilingStep,
    configurations_to_measure,
)
from memtui.placement.worker_protocol import CreatedPool, Environment
from tests.support.placements import FAST, SLOW, graphs

OTHER = "other"
ENVIRONMENT = Environment("2", 1, "a", "")
POOLS = {name: CreatedPool(name, False, "") for name in (FAST, SLOW, OTHER)}
FACTS = Facts(ENVIRONMENT, POOLS)


class Broken(Exception):
    pass


class Fake:
    """A process that takes a microsecond per tensor in slow memory, and breaks off after this number of requests."""

    def __init__(self, graph: Graph, most: int = 10**9) -> None:
        self.graph, self.left = graph, most
        self.requests: Counter[tuple[str, str, Configuration]] = Counter()  # kind and key of isolated ops
        self.load = 0.0  # of the machine, in every time
        self.placements: list[Mapping[str, str]] = []

    def _count(self) -> None:
        if not self.left:
            raise Broken
        self.left -= 1

    def isolated(self, op: str, configurations: Sequence[Configuration], seconds: float) -> list[list[float]]:
        self._count()
        assert 0 < len(configurations) <= TOGETHER
        target = self.graph.ops[self.graph.index[op]]
        self.requests.update((target.kind, target.key, configuration) for configuration in configurations)
        return [[self.load + configuration.pools.count(SLOW), 1.0 + self.load] for configuration in configurations]

    def in_graph(self, placements: Sequence[Mapping[str, str]], seconds: float) -> list[list[list[float]]]:
        self._count()
        self.placements += placements
        assert 0 < len(placements) <= TOGETHER
        return [[[self.load + index for index in range(len(self.graph.ops))]] * 2 for _ in placements]


def profiling(
    graph: Graph, cache: Cache, fake: Fake, modes: Sequence[str] = MODES, facts=FACTS, pools=(FAST, SLOW), **more
) -> Profiling:
    return Profiling(Measurements(graph, pools, tuple(modes), 0.1), cache, fake, facts, "graph", **more)


def gathered(steps: Sequence[ProfilingStep]) -> list[Samples]:
    return [samples for step in steps for samples in step.samples]


@settings(deadline=None, max_examples=40)
@given(graphs(), st.lists(st.sampled_from(MODES), min_size=1, unique=True))
def test_every_configuration_is_measured_once_in_every_mode(graph: Graph, modes: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, Cache(Path(folder) / "c") as cache:
        fake = Fake(graph)
        steps = [*profiling(graph, cache, fake, modes).steps()]
        counts = Counter((s.op, s.configuration, s.mode) for s in gathered(steps))
        wanted = {
            (op.name, configuration, mode)
            for op, configuration in all_configurations(graph, (FAST, SLOW))
            for mode in modes
        }
        assert {*counts} == wanted
        assert set(counts.values()) == {1}
        again = {configuration for (_, _, configuration), count in fake.requests.items() if count > 1}
        firsts = {next(configurations(graph, op, (FAST, SLOW))) for op in graph.ops}
        assert again <= firsts, "only what the others are held against is measured again, in their sitting"
        assert steps[-1].done == steps[-1].of
        assert steps[-1].left_s == 0
        again = Fake(graph, 0)  # whatever is asked of it is too much
        cached = gathered([*profiling(graph, cache, again, modes).steps()])
        assert {(s.op, s.configuration, s.mode): s.time_ns for s in cached} == {
            (s.op, s.configuration, s.mode): s.time_ns for s in gathered(steps)
        }


@settings(deadline=None, max_examples=40)
@given(graphs(), st.lists(st.integers(0, 4), max_size=6))
def test_no_finished_measurement_is_repeated_however_often_it_is_broken_off(graph: Graph, breaks: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        requests: Counter[tuple[str, str, Configuration]] = Counter()
        placements = 0
        finished: dict[tuple[str, Configuration, str], Samples] = {}
        for most in [*breaks, 10**9]:
            with Cache(Path(folder) / "c") as cache:
                fake = Fake(graph, most)
                try:
                    for step in profiling(graph, cache, fake).steps(finished):
                        for samples in step.samples:
                            assert (samples.op, samples.configuration, samples.mode) not in finished
                            finished[samples.op, samples.configuration, samples.mode] = samples
                except Broken:
                    pass
                requests += fake.requests
                placements += len(fake.placements)
        assert len(finished) == 3 * len(all_configurations(graph, (FAST, SLOW)))
        with Cache(Path(folder) / "other") as cache:
            whole = Fake(graph)
            for _ in profiling(graph, cache, whole).steps():
                pass
        # A sitting of several questions, of many configurations or of ops with different places, begins again, and may
        # ask the same of several ops.
        assert {*requests} == {*whole.requests}
        assert all(requests[each] <= count * (1 + len(breaks)) for each, count in whole.requests.items())
        many = Counter(op for op, _ in all_configurations(graph, (FAST, SLOW)))
        if len({op.key for op in graph.ops}) == len(graph.ops) and max(many.values()) <= TOGETHER:
            assert requests == whole.requests
            assert placements == len(whole.placements)


@given(graphs())
def test_ops_of_one_kind_and_key_are_measured_once_each_with_what_it_has(graph: Graph) -> None:
    own = {op.name: [*configurations(graph, op, (FAST, SLOW))] for op in graph.ops}
    requests = [*configurations_to_measure(graph.ops, own)]
    for op, wanted in requests:
        assert {*wanted} <= {*own[op.name]}
        assert wanted[0] == own[op.name][0], "everything in fast memory is measured beside the others"
    rest = Counter(configuration for _, wanted in requests for configuration in wanted[1:])
    assert {*rest} | {configuration for configuration, *_ in own.values()} == {
        configuration for each in own.values() for configuration in each
    }


@pytest.mark.parametrize("modes", [["isolated"], ["single"], ["simultaneous"]])
def test_a_further_pool_is_compared_with_fast_memory_of_the_same_sitting(modes: list[str], tmp_path: Path) -> None:
    """Twenty minutes ago the machine was busy; now it is not, and the new pool must not look faster than dram."""
    graph = _chain()
    with Cache(tmp_path / "c") as cache:
        fake = Fake(graph)
        fake.load = 100.0
        assert gathered([*profiling(graph, cache, fake, modes).steps()])
        idle = Fake(graph)
        samples = gathered([*profiling(graph, cache, idle, modes, pools=(FAST, SLOW, OTHER)).steps()])
        assert {pool for s in samples for pool in s.configuration.pools} == {FAST, SLOW, OTHER}
        assert all(ns < 100 for s in samples for ns in s.time_ns)
        # What is of one sitting is taken from the cache, of three pools as well as of two of them.
        for pools in ((FAST, SLOW, OTHER), (FAST, OTHER), (FAST, SLOW)):
            steps = [*profiling(graph, cache, Fake(graph, 0), modes, pools=pools).steps()]
            assert sum(step.cached for step in steps) == len(gathered(steps)) > 0


def test_the_order_of_pools_is_no_matter_to_what_was_measured_where(tmp_path: Path) -> None:
    graph = _chain()
    with Cache(tmp_path / "c") as cache:
        for pools in ((FAST, SLOW), (SLOW, FAST)):
            fake = Fake(graph)
            samples = gathered([*profiling(graph, cache, fake, ["isolated"], pools=pools).steps()])
            assert fake.requests, "with another fast pool it is another measurement"
            for s in samples:
                assert s.time_ns[0] == s.configuration.pools.count(SLOW)


def test_anew_takes_nothing_from_the_cache_and_puts_there_what_it_finds(tmp_path: Path) -> None:
    graph = _chain()
    with Cache(tmp_path / "c") as cache:
        gathered([*profiling(graph, cache, Fake(graph), now_ns=lambda: 7).steps()])
        fake = Fake(graph)
        fake.load = 100.0
        anew = gathered([*profiling(graph, cache, fake, anew=True, now_ns=lambda: 8).steps()])
        assert fake.requests
        assert fake.placements
        steps = [*profiling(graph, cache, Fake(graph, 0)).steps()]
        assert {s.time_ns for s in gathered(steps)} == {s.time_ns for s in anew}
        assert {when for step in steps for when in step.measured_ns} == {8}


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 40])
def test_what_is_too_much_for_one_turn_has_the_first_in_each(count: int) -> None:
    from memtui.placement.profiling.planner import _parts

    parts = [*_parts([*range(count)])]
    assert all(part[0] == 0 and len(part) <= TOGETHER for part in parts)
    assert [n for part in parts for n in part[1:]] == [*range(1, count)]


@pytest.mark.parametrize(
    "facts",
    [
        replace(FACTS, environment=replace(ENVIRONMENT, cpu="b")),
        replace(FACTS, environment=replace(ENVIRONMENT, threads=2)),
        replace(FACTS, pools=POOLS | {SLOW: CreatedPool("x", False, "")}),
    ],
)
def test_another_machine_thread_count_or_pool_has_times_of_its_own(facts: Facts, tmp_path: Path) -> None:
    graph = _chain()
    with Cache(tmp_path / "c") as cache:
        for _ in profiling(graph, cache, Fake(graph), ["isolated"]).steps():
            pass
        fake = Fake(graph)
        for _ in profiling(graph, cache, fake, ["isolated"], facts).steps():
            pass
        assert fake.requests


def _chain() -> Graph:
    from tests.support.placements import graph_of

    return graph_of({"n1": ("x", "t"), "n2": ("t", "y")}, {"t": 4})


@dataclass(frozen=True)
class Fields:
    fields: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return self.fields


def test_a_cache_holds_what_it_was_given_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "c.db"
    with Cache(path) as cache:
        assert cache.get(Fields({"a": 1})) is None
        cache.put([(Fields({"a": 1, "b": [2]}), Fields({"d": 3.5})), (Fields({"c": None}), Fields({}))])
    with Cache(path) as cache:
        assert cache.get(Fields({"b": [2], "a": 1})) == {"d": 3.5}
        assert cache.get(Fields({"c": None})) == {}
    assert path.stat().st_mode & 0o777 == 0o600


def _database(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine(a)")
    other.close()


def _newer(path: Path) -> None:
    with Cache(path):
        pass
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version=99")
    other.close()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda path: path.write_text("not a database, but long enough to be one" * 10),
            "is not a cache of memtui place",
        ),
        (_database, "is not a cache of memtui place"),
        (_newer, "another version of memtui"),
        (lambda path: path.mkdir(), "is not a file, but a folder"),
    ],
)
def test_a_foreign_cache_is_refused_in_one_line(make, why: str, tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(UserError, match=why) as caught, Cache(path):
        pass
    assert "\n" not in str(caught.value)
    assert path.is_dir() or path.read_bytes() == before


def test_what_somebody_put_into_a_cache_is_measured_anew(tmp_path: Path) -> None:
    graph = _chain()
    with Cache(tmp_path / "c.db") as cache:
        for _ in profiling(graph, cache, Fake(graph), ["isolated"]).steps():
            pass
        cache._db.execute('UPDATE measured SET value = \'{"time_ns": ["fast"], "run": [0]}\'')
        fake = Fake(graph)
        for _ in profiling(graph, cache, fake, ["isolated"]).steps():
            pass
        assert fake.requests
