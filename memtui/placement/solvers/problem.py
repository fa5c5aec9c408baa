"""The input of a solver: ops with a time for each placement of their items, and items with a choice of pool."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

from memtui.core.errors import UserError
from memtui.core.units import size
from memtui.placement.configurations import configuration, free_storages, usual_pool
from memtui.placement.graph import Storage
from memtui.placement.plan import STATIC
from memtui.placement.profile import Pool, Profile
from memtui.placement.timing_quality import counted_ns

PAGE_BYTES = 4096  # the unit of allocation


@dataclass(frozen=True, slots=True)
class Item:
    """A storage that may lie in fast or in slow memory.

    Attributes:
        name: name of the storage.
        size_bytes: bytes that it occupies, in whole pages.
        copied_bytes: bytes that a move copies.
        first: index of the op that writes the item first, from which on it is alive.
        last: index of the last op of its life, included.
        accesses: indices of the ops that access the item, rising.
        writes: indices of the ops that write it.
        out_ns: time of a copy into slow memory; None: impossible.
        in_ns: time of a copy into fast memory; None: impossible.
        async_out_ns: time of a copy into slow memory while an op runs; None: impossible.
        async_in_ns: time of a copy into fast memory while an op runs; None: impossible.
        async_start_ns: by how much a copy of the item during an op makes that op longer in any case.
    """

    name: str
    size_bytes: int
    copied_bytes: int
    first: int
    last: int
    accesses: tuple[int, ...]
    writes: frozenset[int]
    out_ns: float | None
    in_ns: float | None
    async_out_ns: float | None
    async_in_ns: float | None
    async_start_ns: float

    @property
    def movable(self) -> bool:
        return self.out_ns is not None and self.in_ns is not None

    @property
    def movable_meanwhile(self) -> bool:
        return self.async_out_ns is not None and self.async_in_ns is not None


@dataclass(frozen=True, slots=True)
class TimedOp:
    """An op with its times.

    Attributes:
        name: name of the op.
        items: indices of the items that the op accesses.
        time_ns: by whether each of these is in fast memory, the time (``timing_quality.counted_ns``); a placement that
            was not measured is missing, and not allowed.
    """

    name: str
    items: tuple[int, ...]
    time_ns: Mapping[tuple[bool, ...], float]

    @property
    def least_ns(self) -> float:
        return min(self.time_ns.values())


@dataclass(frozen=True)
class Problem:
    """Ops in their order, the items to place, and the limits of fast memory.

    Attributes:
        fast: the pool with the limit.
        slow: the other pool.
        mode: way of timing that the times are from.
        items: the items.
        ops: the ops.
        fixed_bytes: for each op: bytes that count, are alive and have no choice of pool.
        limit_bytes: for each op: limit of fast memory while the op runs.
    """

    fast: Pool
    slow: Pool
    mode: str
    items: tuple[Item, ...]
    ops: tuple[TimedOp, ...]
    fixed_bytes: tuple[int, ...]
    limit_bytes: tuple[int, ...]

    @cached_property
    def room_bytes(self) -> tuple[int, ...]:
        """For each op: bytes of fast memory left for items; below 0 where the limit cannot be kept."""
        return tuple(limit - fixed for limit, fixed in zip(self.limit_bytes, self.fixed_bytes, strict=True))

    @cached_property
    def live(self) -> tuple[tuple[int, ...], ...]:
        """For each op: indices of the items that are alive."""
        alive: list[list[int]] = [[] for _ in self.ops]
        for i, item in enumerate(self.items):
            for k in range(item.first, item.last + 1):
                alive[k].append(i)
        return tuple(map(tuple, alive))

    @cached_property
    def all_bytes(self) -> tuple[int, ...]:
        """For each op: bytes of everything that counts and is alive."""
        return tuple(
            fixed + sum(self.items[i].size_bytes for i in live)
            for fixed, live in zip(self.fixed_bytes, self.live, strict=True)
        )

    def required_fast_bytes(self, formulation: str) -> tuple[int, ...]:
        """Return, for each op, the bytes that have to be in fast memory.

        An item has to be there for an op that was only measured with the item there; without moves, for its whole life.
        """
        required = list(self.fixed_bytes)
        for i, item in enumerate(self.items):
            needed = [k for k in item.accesses if self._only_fast(k, i)]
            if formulation == STATIC and needed:
                needed = list(range(item.first, item.last + 1))
            for k in needed:
                required[k] += item.size_bytes
        return tuple(required)

    def _only_fast(self, k: int, i: int) -> bool:
        op = self.ops[k]
        return all(where[op.items.index(i)] for where in op.time_ns)

    def with_limits(self, limit_bytes: tuple[int, ...]) -> Problem:
        return replace(self, limit_bytes=limit_bytes)

    @cached_property
    def all_fast_ns(self) -> float | None:
        """Time of a run with everything in fast memory; None where an op was not measured so."""
        times = [op.time_ns.get((True,) * len(op.items)) for op in self.ops]
        return None if None in times else sum(ns for ns in times if ns is not None)


def problem_of(profile: Profile, slow: str, mode: str, limit_bytes: int, page_bytes: int = PAGE_BYTES) -> Problem:
    """Return the problem of a profile.

    Args:
        profile: the profile.
        slow: name of a pool of the profile, not of the first one.
        mode: way of timing whose samples are used.
        limit_bytes: limit of fast memory, at any time.
        page_bytes: sizes are rounded up to multiples of this.

    Raises:
        UserError: there is no such pool, or an op has no sample at all.
    """
    graph, pools = profile.graph, (profile.fast.name, slow)
    pool = next((pool for pool in profile.pools[1:] if pool.name == slow), None)
    if pool is None:
        raise UserError(f"the profile has no slow pool {slow}")
    free = dict.fromkeys(s for op in graph.ops for s in free_storages(graph, op, pools))
    index = {storage: i for i, storage in enumerate(free)}
    items = tuple(_item(graph.storages[storage], pool, page_bytes) for storage in free)
    fixed = [0] * len(graph.ops)
    for storage in graph.storages.values():
        if storage.counted and storage.name not in index and usual_pool(graph, storage.name, pools) == pools[0]:
            for k in range(storage.first, storage.last + 1):
                fixed[k] += _rounded(storage.size_bytes, page_bytes)
    ops = []
    for op in graph.ops:
        accessed = free_storages(graph, op, pools)
        times = {}
        for where in itertools.product((True, False), repeat=len(accessed)):
            placed = {s: pools[not fast] for s, fast in zip(accessed, where, strict=True)}
            choice = configuration(graph, op, lambda s, placed=placed: placed.get(s) or usual_pool(graph, s, pools))  # type: ignore[misc]
            if (ns := counted_ns(profile, op.name, choice, slow, mode)) is not None:
                times[where] = ns
        if not times:
            raise UserError(f"op {op.name} has no {mode} sample with {slow}: profile it to its end first")
        ops.append(TimedOp(op.name, tuple(index[s] for s in accessed), times))
    return Problem(profile.fast, pool, mode, items, tuple(ops), tuple(fixed), (limit_bytes,) * len(ops))


def check(problem: Problem, formulation: str) -> None:
    """Raise UserError where the limit is below what must stay in fast memory."""
    required = problem.required_fast_bytes(formulation)
    over = [k for k, limit in enumerate(problem.limit_bytes) if required[k] > limit]
    if over:
        worst = max(over, key=lambda k: required[k])
        raise UserError(
            f"the limit of {size(problem.limit_bytes[worst])} is below what must stay in {problem.fast.name}: "
            f"{size(required[worst])} ({required[worst]} bytes) while {problem.ops[worst].name} runs; ask for more"
        )


def _item(storage: Storage, slow: Pool, page_bytes: int) -> Item:
    moved = partial(slow.move_ns, storage.size_bytes)
    return Item(
        storage.name,
        _rounded(storage.size_bytes, page_bytes),
        storage.size_bytes,
        storage.first,
        storage.last,
        storage.accesses,
        frozenset(storage.writes),
        out_ns=moved(into_fast=False),
        in_ns=moved(into_fast=True),
        async_out_ns=moved(into_fast=False, meanwhile=True),
        async_in_ns=moved(into_fast=True, meanwhile=True),
        async_start_ns=slow.async_start_ns or 0.0,
    )


def _rounded(size_bytes: int, page_bytes: int) -> int:
    return -(-size_bytes // page_bytes) * page_bytes
