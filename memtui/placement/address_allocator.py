"""Addresses for a plan: which bytes of a pool a storage has while an op runs; bytes that are free again are reused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memtui.placement.graph import Graph
from memtui.placement.plan import PlacementPlan
from memtui.placement.solvers import fragmentation
from memtui.placement.solvers.problem import PAGE_BYTES


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of one pool that a storage occupies from a first to a last op, both included.

    Attributes:
        storage: name.
        pool: name.
        first: index of the first op.
        last: index of the last op.
        start: first byte, in the pool's arena.
        size_bytes: of the storage, not rounded.
    """

    storage: str
    pool: str
    first: int
    last: int
    start: int
    size_bytes: int


@dataclass(frozen=True)
class Arenas:
    """All pieces of a plan.

    Attributes:
        pieces: those of fast memory, then those of slow memory.
        size_bytes: of each pool's arena, from its lowest to its highest address.
    """

    pieces: tuple[Piece, ...]
    size_bytes: Mapping[str, int]

    def piece(self, storage: str, pool: str, op: int) -> Piece | None:
        """Return the piece of a storage in a pool while an op runs; None where the storage is not in that pool then."""
        for each in self.pieces:
            if each.storage == storage and each.pool == pool and each.first <= op <= each.last:
                return each
        return None


def lay_out(graph: Graph, plan: PlacementPlan) -> Arenas:
    """Assign addresses as the solver does when it checks whether a plan fits (``solve.fragmentation``).

    A storage that is not in the plan lies in fast memory for its life. In slow memory a storage keeps its address from
    its first to its last op there: a copy may wait there while the storage is in fast memory.
    """
    pieces: list[Piece] = []
    ends = {plan.fast: 0, plan.slow: 0}
    for pool, lives in ((plan.fast, [*_fast(graph, plan)]), (plan.slow, [*_slow(plan)])):
        sizes = [graph.storages[storage].size_bytes for _, _, storage in lives]
        stays = [
            fragmentation.Piece(n, first, last, max(1, -(-size // PAGE_BYTES)) * PAGE_BYTES)
            for n, ((first, last, _), size) in enumerate(zip(lives, sizes, strict=True))
        ]

        def end(addresses: Sequence[int], stays: Sequence[fragmentation.Piece] = stays) -> int:
            return max((address + stay.size_bytes for address, stay in zip(addresses, stays, strict=True)), default=0)

        addresses = min((fragmentation.in_order(stays), fragmentation.largest_first(stays)), key=end)
        ends[pool] = end(addresses)
        pieces += [
            Piece(storage, pool, first, last, address, size)
            for (first, last, storage), address, size in zip(lives, addresses, sizes, strict=True)
        ]
    return Arenas(tuple(pieces), ends)


Life = tuple[int, int, str]  # first op, last op, storage


def _fast(graph: Graph, plan: PlacementPlan) -> Iterable[Life]:
    placed = {span.storage for span in plan.spans}
    for storage in graph.storages.values():
        if storage.counted and storage.name not in placed:
            yield storage.first, storage.last, storage.name
    for span in plan.spans:
        if span.pool == plan.fast:
            # A storage that is copied into fast memory while an op runs takes room there during that op already.
            early = [m.op for m in plan.moves if m.overlapped and m.target == plan.fast and m.storage == span.storage]
            first = min([span.first, *(op for op in early if op == span.first - 1)])
            yield first, span.last, span.storage


def _slow(plan: PlacementPlan) -> Iterable[Life]:
    lives: dict[str, tuple[int, int]] = {}
    for span in plan.spans:
        if span.pool == plan.slow:
            first, last = lives.get(span.storage, (span.first, span.last))
            lives[span.storage] = min(first, span.first), max(last, span.last)
    for move in plan.moves:
        first, last = lives.get(move.storage, (move.op, move.op))
        lives[move.storage] = min(first, move.op), max(last, move.op)
    for storage, (first, last) in lives.items():
        yield first, last, storage
