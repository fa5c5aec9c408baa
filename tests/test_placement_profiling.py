"""Which measurements are made, how often, and what is left of them when everything is broken off."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.errors import UserError
from memtui.placement.cache import Cache
from memtui.placement.enumerate import all_configurations
from memtui.placement.measured import MODES, Samples
from memtui.placement.model import Configuration, Graph
from memtui.placement.profiling import TOGETHER, Profiling, Step, Wanted, pieces
from tests.placements import FAST, SLOW, graphs

FACTS = {"cpu": "a", "threads": 1, "pools": {FAST: {"name": FAST}, SLOW: {"name": SLOW}, "other": {"name": "other"}}}


class Broken(Exception):
    pass


class Fake:
    """Takes a microsecond for each byte in slow memory; breaks off after so many questions."""

    def __init__(self, graph: Graph, most: int = 10**9) -> None:
        self.graph, self.left = graph, most
        self.asked: Counter[tuple[str, str, Configuration]] = Counter()  # kind and key of isolated ops
        self.placements: list[Mapping[str, str]] = []

    def _count(self) -> None:
        if not self.left:
            raise Broken
        self.left -= 1

    def isolated(self, op: str, configurations: Sequence[Configuration], seconds: float) -> list[list[float]]:
        self._count()
        assert 0 < len(configurations) <= TOGETHER
        found = self.graph.ops[self.graph.index[op]]
        self.asked.update((found.kind, found.key, made) for made in configurations)
        return [[float(made.pools.count(SLOW)), 1.0] for made in configurations]

    def in_graph(self, placements: Sequence[Mapping[str, str]], seconds: float) -> list[list[list[float]]]:
        self._count()
        self.placements += placements
        return [[[float(at) for at in range(len(self.graph.ops))]] * 2 for _ in placements]


def profiling(graph: Graph, cache: Cache, fake: Fake, modes: Sequence[str] = MODES, facts=FACTS) -> Profiling:
    return Profiling(Wanted(graph, (FAST, SLOW), tuple(modes), 0.1), cache, fake, facts, "graph")


def gathered(steps: Sequence[Step]) -> list[Samples]:
    return [samples for step in steps for samples in step.samples]


@settings(deadline=None, max_examples=40)
@given(graphs(), st.lists(st.sampled_from(MODES), min_size=1, unique=True))
def test_every_configuration_is_found_once_in_every_mode(graph: Graph, modes: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, Cache(Path(folder) / "c") as cache:
        fake = Fake(graph)
        steps = [*profiling(graph, cache, fake, modes).steps()]
        found = Counter((s.op, s.configuration, s.mode) for s in gathered(steps))
        wanted = {(op.name, made, mode) for op, made in all_configurations(graph, (FAST, SLOW)) for mode in modes}
        assert {*found} == wanted
        assert set(found.values()) == {1}
        assert max(fake.asked.values(), default=1) == 1
        assert steps[-1].done == steps[-1].of
        assert steps[-1].left_s == 0
        again = Fake(graph, 0)  # whatever is asked of it is too much
        known = gathered([*profiling(graph, cache, again, modes).steps()])
        assert {(s.op, s.configuration, s.mode): s.time_ns for s in known} == {
            (s.op, s.configuration, s.mode): s.time_ns for s in gathered(steps)
        }


@settings(deadline=None, max_examples=40)
@given(graphs(), st.lists(st.integers(0, 4), max_size=6))
def test_no_finished_measurement_is_repeated_however_often_it_is_broken_off(graph: Graph, breaks: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asked: Counter[tuple[str, str, Configuration]] = Counter()
        placements = 0
        found: dict[tuple[str, Configuration, str], Samples] = {}
        for most in [*breaks, 10**9]:
            with Cache(Path(folder) / "c") as cache:
                fake = Fake(graph, most)
                try:
                    for step in profiling(graph, cache, fake).steps(found):
                        for samples in step.samples:
                            assert (samples.op, samples.configuration, samples.mode) not in found
                            found[samples.op, samples.configuration, samples.mode] = samples
                except Broken:
                    pass
                asked += fake.asked
                placements += len(fake.placements)
        assert max(asked.values(), default=1) == 1
        assert len(found) == 3 * len(all_configurations(graph, (FAST, SLOW)))
        with Cache(Path(folder) / "other") as cache:
            whole = Fake(graph)
            for _ in profiling(graph, cache, whole).steps():
                pass
        assert {*asked} == {*whole.asked}


@given(graphs())
def test_ops_of_one_kind_and_key_are_measured_once_and_all_have_the_times(graph: Graph) -> None:
    missing = all_configurations(graph, (FAST, SLOW))
    found = pieces(missing)
    shared = [pair for piece in found for pair in piece.shared]
    assert Counter(shared) == Counter(missing)
    own = {op.name: {made for one, made in missing if one is op} for op in graph.ops}
    for piece in found:
        assert {*piece.configurations} <= own[piece.op.name]
        assert all((op.kind, op.key) == (piece.op.kind, piece.op.key) for op, _ in piece.shared)


@pytest.mark.parametrize("change", [{"cpu": "b"}, {"threads": 2}, {"pools": FACTS["pools"] | {SLOW: {"name": "x"}}}])
def test_another_machine_thread_count_or_pool_has_times_of_its_own(change, tmp_path: Path) -> None:
    graph = _chain()
    with Cache(tmp_path / "c") as cache:
        for _ in profiling(graph, cache, Fake(graph), ["isolated"]).steps():
            pass
        fake = Fake(graph)
        for _ in profiling(graph, cache, fake, ["isolated"], FACTS | change).steps():
            pass
        assert fake.asked


def _chain() -> Graph:
    from tests.placements import graph_of

    return graph_of({"n1": ("x", "t"), "n2": ("t", "y")}, {"t": 4})


def test_a_cache_holds_what_it_was_given_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "c.db"
    with Cache(path) as cache:
        assert cache.get({"a": 1}) is None
        cache.put([({"a": 1, "b": [2]}, [3.5]), ({"c": None}, {})])
    with Cache(path) as cache:
        assert cache.get({"b": [2], "a": 1}) == [3.5]
        assert cache.get({"c": None}) == {}
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
        (lambda path: path.write_text("not a database, but long enough to be one" * 10), "is no cache of memtui place"),
        (_database, "is no cache of memtui place"),
        (_newer, "another version of memtui"),
        (lambda path: path.mkdir(), "the cache cannot be used"),
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
        assert fake.asked
