"""A plan: the pool of each tensor while each op runs, the moves in between, and the predicted time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memtui.core.options import FORMULATIONS
from memtui.placement.validation import Damaged, count, name, number, optional, required, rows, table, text, truth

STATIC, SYNC, ASYNC, FIRST_TOUCH = FORMULATIONS
OPTIMAL, FEASIBLE, BASELINE = STATUSES = ("optimal", "feasible", "baseline")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of ops during which a storage (``graph.Storage``) lies in one pool.

    Attributes:
        storage: name of the storage.
        pool: name of the pool.
        first: index of the first op of the stretch.
        last: index of the last op, included.
    """

    storage: str
    pool: str
    first: int
    last: int

    @classmethod
    def from_dict(cls, value: Any, what: str = "span") -> Span:
        """Raise Damaged."""
        fields = table(value, what)
        span = cls(
            required(fields, "storage", name),
            required(fields, "pool", name),
            required(fields, "first", count),
            required(fields, "last", count),
        )
        if span.first > span.last:
            raise Damaged("a span ends before it begins")
        return span


@dataclass(frozen=True, slots=True)
class Move:
    """A copy of a storage from one pool to the other.

    Attributes:
        storage: name of the storage.
        source: pool that the storage is copied from.
        target: pool that the storage is copied to.
        op: index of the op before which the move is done; where ``overlapped``, of the op during which it is done:
            then the storage is in the target only for later ops, and takes room in fast memory while that op runs.
        size_bytes: copied.
        time_ns: expected time of the copy.
        overlapped: whether the move is done while the op runs; it then costs only the time beyond the op's.
        start_ns: by how much an overlapped move makes its op longer in any case.
    """

    storage: str
    source: str
    target: str
    op: int
    size_bytes: int
    time_ns: float
    overlapped: bool = False
    start_ns: float = 0.0

    @classmethod
    def from_dict(cls, value: Any, what: str = "move") -> Move:
        """Raise Damaged."""
        fields = table(value, what)
        return cls(
            required(fields, "storage", name),
            required(fields, "source", name),
            required(fields, "target", name),
            required(fields, "op", count),
            required(fields, "size_bytes", count),
            required(fields, "time_ns", number),
            required(fields, "overlapped", truth),
            optional(fields, "start_ns", number) or 0.0,
        )


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """A placement of every storage, with its moves and its predicted cost.

    Attributes:
        formulation: of ``FORMULATIONS``.
        fast: the pool with the limit.
        slow: the other pool.
        emulated: whether the slow pool is emulated: the figures then check the solver, and say nothing of a machine.
        mode: of ``profile.MODES``: the samples that the plan is based on.
        limit_bytes: of fast memory.
        spans: of every placed storage, without a gap from its first op to its last.
        moves: in the order of ops.
        predicted_ns: time of a run of the graph, moves included.
        fast_peak_bytes: the most bytes in fast memory at once.
        slow_peak_bytes: the most bytes in slow memory at once, copies included.
        status: of ``STATUSES``: optimal (within ``gap``), the best plan found, or a baseline.
        bound_ns: lower bound of the time of any placement of this formulation; None for a baseline.
        gap: (predicted - bound) / predicted; None for a baseline.
        solve_s: time that the solver took.
        solver: name of the solver.
        address_bytes: fast memory from its lowest to its highest address when the plan is laid out
            (``solvers.fragmentation``); None where that was not computed.
        why: reason why the plan is not optimal; empty where it is optimal, and where the reason is unknown.
    """

    formulation: str
    fast: str
    slow: str
    emulated: bool
    mode: str
    limit_bytes: int
    spans: tuple[Span, ...]
    moves: tuple[Move, ...]
    predicted_ns: float
    fast_peak_bytes: int
    slow_peak_bytes: int
    status: str
    bound_ns: float | None = None
    gap: float | None = None
    solve_s: float = 0.0
    solver: str = ""
    address_bytes: int | None = None
    why: str = ""

    def __post_init__(self) -> None:
        for value, allowed in ((self.formulation, FORMULATIONS), (self.status, STATUSES)):
            if value not in allowed:
                raise Damaged(f"a plan has one of {', '.join(allowed)}, not {value}")
        for pool in {span.pool for span in self.spans} | {pool for m in self.moves for pool in (m.source, m.target)}:
            if pool not in (self.fast, self.slow):
                raise Damaged(f"a plan has a pool that it does not name: {pool}")

    @property
    def move_ns(self) -> float:
        """Time of the moves for which ops wait, and of starting the overlapped ones."""
        return sum(move.start_ns if move.overlapped else move.time_ns for move in self.moves)

    def pool_of(self, storage: str, op: int) -> str:
        """Return the pool of a storage while an op runs. Raises KeyError where the storage is not placed then."""
        for span in self.spans:
            if span.storage == storage and span.first <= op <= span.last:
                return span.pool
        raise KeyError(storage)

    @classmethod
    def from_dict(cls, value: Any, what: str = "plan") -> PlacementPlan:
        """Raise Damaged."""
        fields = table(value, what)
        return cls(
            required(fields, "formulation", text),
            required(fields, "fast", name),
            required(fields, "slow", name),
            required(fields, "emulated", truth),
            required(fields, "mode", text),
            required(fields, "limit_bytes", count),
            tuple(Span.from_dict(span) for span in rows(fields, "spans")),
            tuple(Move.from_dict(move) for move in rows(fields, "moves")),
            required(fields, "predicted_ns", number),
            required(fields, "fast_peak_bytes", count),
            required(fields, "slow_peak_bytes", count),
            required(fields, "status", text),
            optional(fields, "bound_ns", number),
            optional(fields, "gap", number),
            required(fields, "solve_s", number),
            required(fields, "solver", text),
            optional(fields, "address_bytes", count),
            optional(fields, "why", text) or "",
        )
