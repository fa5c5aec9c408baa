"""A profile of a graph: its pools with their bandwidths, and the times of its ops by configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

from memtui.core.options import TIMINGS
from memtui.placement.graph import Configuration, Graph
from memtui.placement.validation import (
    LARGEST,
    Damaged,
    count,
    list_of,
    name,
    number,
    optional,
    positive,
    required,
    rows,
    table,
    text,
    truth,
)

ISOLATED, SINGLE, SIMULTANEOUS = MODES = TIMINGS
_WAYS = ("read", "write", "async_read", "async_write")
_SPEEDS = (*(f"{way}_bytes_per_s" for way in _WAYS), *(f"{way}_fixed_ns" for way in _WAYS), "async_start_ns")


@dataclass(frozen=True, slots=True)
class Pool:
    """A kind of memory.

    Attributes:
        name: as requested: ``dram``, ``numa:1``, ``emulated:29,12``.
        emulated: whether the pool is fast memory with waits added; every figure of such a pool says so.
        note: a remark for the user, such as that a file lies in the page cache.
        read_bytes_per_s: of a copy from the pool into the fast pool, while nothing else runs.
        write_bytes_per_s: of a copy from the fast pool into the pool.
        async_read_bytes_per_s: of a copy into the fast pool while an op runs; None: impossible.
        async_write_bytes_per_s: of a copy into the pool while an op runs.
        read_fixed_ns: fixed time of a copy into the fast pool, beside its bytes; None: not measured.
        write_fixed_ns: fixed time of a copy into the pool.
        async_read_fixed_ns: fixed time of a copy into the fast pool while an op runs.
        async_write_fixed_ns: fixed time of a copy into the pool while an op runs.
        async_start_ns: by how much a copy during an op makes that op longer, however short the copy is.
    """

    name: str
    emulated: bool = False
    note: str = ""
    read_bytes_per_s: float | None = None
    write_bytes_per_s: float | None = None
    async_read_bytes_per_s: float | None = None
    async_write_bytes_per_s: float | None = None
    read_fixed_ns: float | None = None
    write_fixed_ns: float | None = None
    async_read_fixed_ns: float | None = None
    async_write_fixed_ns: float | None = None
    async_start_ns: float | None = None

    @property
    def knows_fixed(self) -> bool:
        """Whether the fixed time of moves was measured; without it, moves of a few KiB seem to be free."""
        return self.read_fixed_ns is not None and self.write_fixed_ns is not None

    def move_ns(self, size_bytes: int, *, into_fast: bool, meanwhile: bool = False) -> float | None:
        """Return the time of a move between this pool and the fast one: the fixed time, and the bytes by the bandwidth.

        Args:
            size_bytes: size of the copy.
            into_fast: whether the copy goes into the fast pool, or into this one.
            meanwhile: whether an op runs at the same time; ``async_start_ns`` is not included.

        Returns:
            The time in ns; None where such a move is impossible.
        """
        if meanwhile:
            rates, fixed = (
                (self.async_read_bytes_per_s, self.async_write_bytes_per_s),
                (self.async_read_fixed_ns, self.async_write_fixed_ns),
            )
        else:
            rates, fixed = (
                (self.read_bytes_per_s, self.write_bytes_per_s),
                (self.read_fixed_ns, self.write_fixed_ns),
            )
        rate = rates[not into_fast]
        return None if rate is None else (fixed[not into_fast] or 0.0) + size_bytes * 1e9 / rate

    @classmethod
    def from_dict(cls, value: Any, what: str = "pool") -> Pool:
        """Raise Damaged."""
        fields = table(value, what)
        return cls(
            required(fields, "name", name),
            required(fields, "emulated", truth),
            required(fields, "note", text),
            *(optional(fields, each, positive if each.endswith("_per_s") else number) for each in _SPEEDS),
        )


@dataclass(frozen=True, slots=True)
class Samples:
    """Times of one op in one configuration.

    Attributes:
        op: name of the op.
        configuration: the pools of its tensors.
        mode: of ``MODES``: the op by itself; in the graph, with everything else in fast memory; or in the graph with
            other ops tested at the same time.
        time_ns: time of each call.
        run: for each time, the number of the run of the graph (of the call, for isolated times).
    """

    op: str
    configuration: Configuration
    mode: str
    time_ns: tuple[float, ...]
    run: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise Damaged(f"a mode is one of {', '.join(MODES)}")
        if len(self.time_ns) != len(self.run):
            raise Damaged(f"op {self.op} has {len(self.time_ns)} times of {len(self.run)} runs")

    @classmethod
    def from_dict(cls, value: Any, what: str = "samples") -> Samples:
        """Raise Damaged."""
        fields = table(value, what)
        return cls(
            required(fields, "op", name),
            required(fields, "configuration", Configuration.from_dict),
            required(fields, "mode", text),
            list_of(fields, "time_ns", number),
            list_of(fields, "run", count),
        )


@dataclass(frozen=True)
class Profile:
    """A graph with everything that was measured of it. The constructor checks the profile: it raises Damaged.

    Attributes:
        graph: the kernels in their order.
        pools: the fast one first.
        samples: at most one for each op, configuration and mode; an unfinished profile lacks some.
        resolution_ns: resolution of the clock with which ops were timed, the cost of reading it included.
        about: further facts: host, versions, threads, seed.
    """

    graph: Graph
    pools: tuple[Pool, ...]
    samples: tuple[Samples, ...] = ()
    resolution_ns: float = 0.0
    about: Mapping[str, str | int | float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [pool.name for pool in self.pools]
        if not names or len({*names}) != len(names):
            raise Damaged("the profile has no pool, or two of one name")
        if len(self.times) != len(self.samples):
            raise Damaged("samples of one op, configuration and mode stand in two places")
        for samples in self.samples:
            self._check(samples, {*names})

    def _check(self, samples: Samples, names: set[str]) -> None:
        index = self.graph.index.get(samples.op)
        if index is None:
            raise Damaged(f"samples are of an op that the graph has not: {samples.op}")
        op, configuration = self.graph.ops[index], samples.configuration
        if (len(configuration.inputs), len(configuration.outputs)) != (len(op.inputs), len(op.outputs)):
            raise Damaged(f"a configuration of {samples.op} has not its inputs and outputs")
        for pool in configuration.pools:
            if pool not in names:
                raise Damaged(f"a configuration of {samples.op} has a pool that the profile has not: {pool}")

    @property
    def fast(self) -> Pool:
        """The pool with the limit."""
        return self.pools[0]

    @cached_property
    def times(self) -> Mapping[tuple[str, Configuration, str], Samples]:
        """Samples by op, configuration and mode."""
        return {(each.op, each.configuration, each.mode): each for each in self.samples}

    def typical_ns(self, op: str, configuration: Configuration, mode: str) -> float | None:
        """Return the median of the times, which one delayed call does not change; None without samples."""
        samples = self.times.get((op, configuration, mode))
        return median(samples.time_ns) if samples is not None and samples.time_ns else None

    @property
    def emulated(self) -> tuple[str, ...]:
        """Names of the pools that are emulated."""
        return tuple(pool.name for pool in self.pools if pool.emulated)

    @classmethod
    def from_dict(cls, value: Any, what: str = "profile") -> Profile:
        """Raise Damaged."""
        fields = table(value, what)
        return cls(
            required(fields, "graph", Graph.from_dict),
            tuple(Pool.from_dict(pool) for pool in rows(fields, "pools")),
            tuple(Samples.from_dict(samples) for samples in rows(fields, "samples")),
            required(fields, "resolution_ns", number),
            required(fields, "about", facts),
        )


def facts(value: Any, what: str) -> dict[str, str | int | float]:
    """Return a table of texts and numbers. Raises Damaged."""
    entries: dict[str, str | int | float] = {}
    for key, each in table(value, what).items():
        if isinstance(each, bool) or not isinstance(each, str | int | float):
            raise Damaged(f"{what} of {key} is neither text nor number")
        if not isinstance(each, str) and not -LARGEST <= each <= LARGEST:
            raise Damaged(f"{what} of {key} is out of range")
        entries[text(key, what)] = text(each, what) if isinstance(each, str) else each
    return entries
