"""Addresses for a plan: which bytes of a pool a storage has while an op runs, with what is no longer needed reused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from memtui.placement.model import Graph
from memtui.placement.plan import Plan
from memtui.placement.solve.first_touch import BestFit
from memtui.placement.solve.problem import PAGE_BYTES


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of one pool that a storage has from one op to another, both included.

    Attributes:
        storage: name.
        pool: name.
        first: index of the first op.
        last: of the last one.
        begin: first byte, in the pool's arena.
        size_bytes: of the storage, not rounded.
    """

    storage: str
    pool: str
    first: int
    last: int
    begin: int
    size_bytes: int


@dataclass(frozen=True)
class Arenas:
    """All pieces of a plan.

    Attributes:
        pieces: in the order in which they begin.
        size_bytes: of each pool's arena, from its lowest to its highest address.
    """

    pieces: tuple[Piece, ...]
    size_bytes: Mapping[str, int]

    def piece(self, storage: str, pool: str, op: int) -> Piece | None:
        """That of a storage in a pool while an op runs; None where it is not there."""
        for each in self.pieces:
            if each.storage == storage and each.pool == pool and each.first <= op <= each.last:
                return each
        return None


def lay_out(graph: Graph, plan: Plan) -> Arenas:
    """Give out addresses with best fit, in the order of the ops.

    A storage that is not in the plan lies in fast memory for its life. In slow memory a storage keeps its place from
    the first to the last time that it is there: a copy may wait there while the storage is in fast memory.
    """
    lives = [*_fast(graph, plan), *_slow(plan)]
    rooms = {plan.fast: BestFit(), plan.slow: BestFit()}
    ends = dict.fromkeys(rooms, 0)
    pieces = []
    leaving: list[tuple[int, str, object]] = []
    for first, last, storage, pool in sorted(lives):
        for end, of, key in [gone for gone in leaving if gone[0] < first]:
            rooms[of].free(key)
            leaving.remove((end, of, key))
        size = graph.storages[storage].size_bytes
        key = (storage, pool, first)
        rounded = max(1, -(-size // PAGE_BYTES)) * PAGE_BYTES
        rooms[pool].take(key, rounded)  # there is no end to it, so it succeeds
        begin = rooms[pool].begin_of(key)
        leaving.append((last, pool, key))
        ends[pool] = max(ends[pool], begin + rounded)
        pieces.append(Piece(storage, pool, first, last, begin, size))
    return Arenas(tuple(pieces), ends)


Life = tuple[int, int, str, str]  # first op, last op, storage, pool


def _fast(graph: Graph, plan: Plan) -> Iterable[Life]:
    placed = {span.storage for span in plan.spans}
    for storage in graph.storages.values():
        if storage.counted and storage.name not in placed:
            yield storage.first, storage.last, storage.name, plan.fast
    for span in plan.spans:
        if span.pool == plan.fast:
            # What is copied here while an op runs takes room during that op already.
            early = [m.op for m in plan.moves if m.overlapped and m.target == plan.fast and m.storage == span.storage]
            first = min([span.first, *(op for op in early if op == span.first - 1)])
            yield first, span.last, span.storage, plan.fast


def _slow(plan: Plan) -> Iterable[Life]:
    found: dict[str, tuple[int, int]] = {}
    for span in plan.spans:
        if span.pool == plan.slow:
            first, last = found.get(span.storage, (span.first, span.last))
            found[span.storage] = min(first, span.first), max(last, span.last)
    for move in plan.moves:
        first, last = found.get(move.storage, (move.op, move.op))
        found[move.storage] = min(first, move.op), max(last, move.op)
    for storage, (first, last) in found.items():
        yield first, last, storage, plan.slow
