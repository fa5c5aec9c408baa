"""Messages between the process that measures and its parent: one JSON object a line, a dataclass for each.

A request names the operation (``do``), an answer its outcome (``at``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from memtui.core.json_fields import from_json_union
from memtui.placement.graph import Configuration, Graph
from memtui.placement.plan import PlacementPlan
from memtui.placement.validation import number, optional, positive, required, table


@dataclass(frozen=True, slots=True)
class CaptureStep:
    """Capture a training step of a model. Answered by ``CapturedStep``."""

    do: str = field(default="capture", init=False)
    model: str
    batch: int
    seed: int


@dataclass(frozen=True, slots=True)
class CreatePools:
    """Make pools for the captured step, the fast one first. Answered by ``CreatedPools``."""

    do: str = field(default="pools", init=False)
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MeasureBandwidths:
    """Measure how fast the pools are. Answered by ``MeasuredBandwidths``."""

    do: str = field(default="bandwidths", init=False)


@dataclass(frozen=True, slots=True)
class TimeIsolated:
    """Time an op by itself in some configurations. Answered by ``IsolatedTimes``.

    Attributes:
        op: its name.
        configurations: of the op.
        seconds: measuring time of each configuration.
    """

    do: str = field(default="isolated", init=False)
    op: str
    configurations: tuple[Configuration, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class TimeInGraph:
    """Time all ops in runs of the step. Answered by ``InGraphTimes``.

    Attributes:
        placements: by name of a storage, the pool it is in, if that is not the fast one.
        seconds: measuring time of each placement.
    """

    do: str = field(default="in_graph", init=False)
    placements: tuple[Mapping[str, str], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class ExecutePlans:
    """Execute plans in turns. Answered by ``ExecutedPlans``."""

    do: str = field(default="run", init=False)
    plans: tuple[PlacementPlan, ...]
    repeats: int


Request = CaptureStep | CreatePools | MeasureBandwidths | TimeIsolated | TimeInGraph | ExecutePlans
_REQUESTS: tuple[type[Request], ...] = get_args(Request)


def request_of(message: Any) -> Request:
    """Return the request of a message. Raises ValueError."""
    return from_json_union(_REQUESTS, message)


@dataclass(frozen=True, slots=True)
class Environment:
    """Facts that every measured time depends on.

    Attributes:
        torch: its version.
        threads: of its ops.
        cpu: name of the processor.
        capability: vector instructions that PyTorch uses.
    """

    torch: str
    threads: int
    cpu: str
    capability: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The process is ready for requests.

    Attributes:
        resolution_ns: resolution of the clock with which ops are timed.
        environment: facts that its times depend on.
    """

    at: str = field(default="ready", init=False)
    resolution_ns: float
    environment: Environment


@dataclass(frozen=True, slots=True)
class Unable:
    """The process ends, because it cannot measure on this machine; ``text`` says why."""

    at: str = field(default="unable", init=False)
    text: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A request failed.

    Attributes:
        kind: name of the exception.
        text: one line for the user.
    """

    at: str = field(default="failed", init=False)
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class CapturedStep:
    """A step was captured.

    Attributes:
        graph: graph of the step.
        fingerprint: of the graph and its inputs.
        copied: names of the ops whose results are copied to their place.
    """

    at: str = field(default="done", init=False)
    graph: Graph
    fingerprint: str
    copied: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CreatedPool:
    """A pool as it was created.

    Attributes:
        name: as requested.
        emulated: whether the pool is fast memory with waits added.
        note: a remark for the user.
    """

    name: str
    emulated: bool
    note: str


@dataclass(frozen=True, slots=True)
class CreatedPools:
    """All pools, in the order in which they were requested."""

    at: str = field(default="done", init=False)
    pools: tuple[CreatedPool, ...]


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bandwidths and fixed times of one pool; medians. The first six are in bytes a second.

    A move of n bytes takes the fixed time, and n by the bandwidth: for a page that is the measured time.

    Attributes:
        read: of summing the memory; of memory that ops on a GPU cannot reach, ``copied_from``.
        written: of filling the memory; of memory that ops on a GPU cannot reach, ``copied_to``.
        copied_from: of copies from the pool into the fast pool.
        copied_to: of copies from the fast pool into the pool.
        copied_from_meanwhile: as ``copied_from``, by another thread while ops run; None: no CPU is free for that.
        copied_to_meanwhile: as ``copied_to``, by another thread while ops run.
        copied_from_fixed_ns: fixed time of a copy from the pool, however small.
        copied_to_fixed_ns: fixed time of a copy into the pool.
        copied_from_meanwhile_fixed_ns: from the start to the end of such a copy, less the time of its bytes.
        copied_to_meanwhile_fixed_ns: the same for copies into the pool.
        meanwhile_start_ns: by how much copying a page makes an op longer: starting the copy and waiting for it.
    """

    read: float
    written: float
    copied_from: float
    copied_to: float
    copied_from_meanwhile: float | None = None
    copied_to_meanwhile: float | None = None
    copied_from_fixed_ns: float | None = None
    copied_to_fixed_ns: float | None = None
    copied_from_meanwhile_fixed_ns: float | None = None
    copied_to_meanwhile_fixed_ns: float | None = None
    meanwhile_start_ns: float | None = None

    @classmethod
    def from_dict(cls, value: Any, what: str = "bandwidth") -> Bandwidth:
        """Raise Damaged: the value may come from a cache."""
        fields = table(value, what)
        return cls(
            required(fields, "read", positive),
            required(fields, "written", positive),
            required(fields, "copied_from", positive),
            required(fields, "copied_to", positive),
            optional(fields, "copied_from_meanwhile", positive),
            optional(fields, "copied_to_meanwhile", positive),
            optional(fields, "copied_from_fixed_ns", number),
            optional(fields, "copied_to_fixed_ns", number),
            optional(fields, "copied_from_meanwhile_fixed_ns", number),
            optional(fields, "copied_to_meanwhile_fixed_ns", number),
            optional(fields, "meanwhile_start_ns", number),
        )


@dataclass(frozen=True, slots=True)
class MeasuredBandwidths:
    """Bandwidths of all pools, in their order."""

    at: str = field(default="done", init=False)
    bandwidths: tuple[Bandwidth, ...]


@dataclass(frozen=True, slots=True)
class IsolatedTimes:
    """Times in ns of an op by itself, a list for each configuration."""

    at: str = field(default="done", init=False)
    times_ns: list[list[float]]


@dataclass(frozen=True, slots=True)
class InGraphTimes:
    """Times in ns in runs of the step: for each placement, for each run, for each op."""

    at: str = field(default="done", init=False)
    runs_ns: list[list[list[float]]]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Difference between the results of a plan and those of the unplaced step.

    Attributes:
        equal: whether they are the same bit by bit.
        close: whether they differ at most by the rounding of another order of summation.
        worst: largest difference, relative to the largest number of a result; None: something is not finite.
    """

    equal: bool
    close: bool
    worst: float | None


@dataclass(frozen=True, slots=True)
class ExecutedPlan:
    """Result of executing a plan.

    Attributes:
        times_ns: time of ops and moves, for each run.
        op_ns: typical time of each op.
        move_ns: typical time of the moves that ops wait for.
        agreement: of its results with those of the unplaced step.
        fast_bytes: size of the fast pool's memory for the plan.
        slow_bytes: size of the slow pool's memory.
        pages: of each pool's memory by NUMA node, as the kernel reports; empty where it does not.
    """

    times_ns: tuple[float, ...]
    op_ns: tuple[float, ...]
    move_ns: float
    agreement: Agreement
    fast_bytes: int
    slow_bytes: int
    pages: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class ExecutedPlans:
    """Results of executing plans, in their order."""

    at: str = field(default="done", init=False)
    plans: tuple[ExecutedPlan, ...]


Answer = (
    Ready
    | Unable
    | Failed
    | CapturedStep
    | CreatedPools
    | MeasuredBandwidths
    | IsolatedTimes
    | InGraphTimes
    | ExecutedPlans
)
