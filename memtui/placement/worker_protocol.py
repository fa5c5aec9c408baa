"""Messages between the process that measures and its parent: one JSON object a line, a dataclass for each.

A request names the operation (``do``), an answer its outcome (``at``). ``to_dict`` writes both; ``request_of`` and the
``from_dict`` of the answers read them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

from memtui.placement.graph import Configuration, Graph
from memtui.placement.plan import PlacementPlan
from memtui.placement.validation import number, optional, positive, required, table

FAILED = "failed"


class Request(Protocol):
    """An operation of the process."""

    def to_dict(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class CaptureStep:
    """Capture a training step of a model. Answered by ``CapturedStep``."""

    do: ClassVar = "capture"
    model: str
    batch: int
    seed: int

    def to_dict(self) -> dict[str, Any]:
        return {"do": self.do, "model": self.model, "batch": self.batch, "seed": self.seed}

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> CaptureStep:
        return cls(message["model"], message["batch"], message["seed"])


@dataclass(frozen=True, slots=True)
class CreatePools:
    """Make pools for the captured step, the fast one first. Answered by ``CreatedPools``."""

    do: ClassVar = "pools"
    names: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"do": self.do, "names": list(self.names)}

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> CreatePools:
        return cls(tuple(message["names"]))


@dataclass(frozen=True, slots=True)
class MeasureBandwidths:
    """Measure how fast the pools are. Answered by ``MeasuredBandwidths``."""

    do: ClassVar = "bandwidths"

    def to_dict(self) -> dict[str, Any]:
        return {"do": self.do}

    @classmethod
    def from_dict(cls, _: Mapping[str, Any]) -> MeasureBandwidths:
        return cls()


@dataclass(frozen=True, slots=True)
class TimeIsolated:
    """Time an op by itself in some configurations. Answered by ``IsolatedTimes``.

    Attributes:
        op: its name.
        configurations: of the op.
        seconds: measuring time of each configuration.
    """

    do: ClassVar = "isolated"
    op: str
    configurations: tuple[Configuration, ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        configurations = [configuration.to_dict() for configuration in self.configurations]
        return {"do": self.do, "op": self.op, "configurations": configurations, "seconds": self.seconds}

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> TimeIsolated:
        configurations = tuple(Configuration.from_dict(value) for value in message["configurations"])
        return cls(message["op"], configurations, message["seconds"])


@dataclass(frozen=True, slots=True)
class TimeInGraph:
    """Time all ops in runs of the step. Answered by ``InGraphTimes``.

    Attributes:
        placements: by name of a storage, the pool it is in, if that is not the fast one.
        seconds: measuring time of each placement.
    """

    do: ClassVar = "in_graph"
    placements: tuple[Mapping[str, str], ...]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {"do": self.do, "placements": [dict(each) for each in self.placements], "seconds": self.seconds}

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> TimeInGraph:
        return cls(tuple(message["placements"]), message["seconds"])


@dataclass(frozen=True, slots=True)
class ExecutePlans:
    """Execute plans in turns. Answered by ``ExecutedPlans``."""

    do: ClassVar = "run"
    plans: tuple[PlacementPlan, ...]
    repeats: int

    def to_dict(self) -> dict[str, Any]:
        return {"do": self.do, "plans": [plan.to_dict() for plan in self.plans], "repeats": self.repeats}

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> ExecutePlans:
        return cls(tuple(PlacementPlan.from_dict(plan) for plan in message["plans"]), message["repeats"])


AnyRequest = CaptureStep | CreatePools | MeasureBandwidths | TimeIsolated | TimeInGraph | ExecutePlans
_REQUESTS: Mapping[str, type[AnyRequest]] = {
    kind.do: kind for kind in (CaptureStep, CreatePools, MeasureBandwidths, TimeIsolated, TimeInGraph, ExecutePlans)
}


def request_of(message: Mapping[str, Any]) -> AnyRequest:
    """Return the request of a message. Raises KeyError where the message is not a request."""
    return _REQUESTS[message["do"]].from_dict(message)


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

    def to_dict(self) -> dict[str, str | int]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Ready:
    """The process is ready for requests.

    Attributes:
        resolution_ns: resolution of the clock with which ops are timed.
        environment: facts that its times depend on.
    """

    resolution_ns: float
    environment: Environment

    def to_dict(self) -> dict[str, Any]:
        return {"at": "ready", "resolution_ns": self.resolution_ns, "environment": self.environment.to_dict()}

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> Ready:
        return cls(float(message["resolution_ns"]), Environment(**message["environment"]))


@dataclass(frozen=True, slots=True)
class Unable:
    """The process ends, because it cannot measure on this machine; ``text`` says why."""

    text: str

    def to_dict(self) -> dict[str, Any]:
        return {"at": "unable", "text": self.text}


@dataclass(frozen=True, slots=True)
class Failed:
    """A request failed.

    Attributes:
        kind: name of the exception.
        text: one line for the user.
    """

    kind: str
    text: str

    def to_dict(self) -> dict[str, Any]:
        return {"at": FAILED, "kind": self.kind, "text": self.text}

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> Failed:
        return cls(str(message["kind"]), str(message["text"]))


def _done(**more: Any) -> dict[str, Any]:
    return {"at": "done", **more}


@dataclass(frozen=True, slots=True)
class CapturedStep:
    """A step was captured.

    Attributes:
        graph: graph of the step.
        fingerprint: of the graph and its inputs.
        copied: names of the ops whose results are copied to their place.
    """

    graph: Graph
    fingerprint: str
    copied: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return _done(graph=self.graph.to_dict(), fingerprint=self.fingerprint, copied=list(self.copied))

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> CapturedStep:
        return cls(Graph.from_dict(message["graph"]), str(message["fingerprint"]), tuple(message["copied"]))


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

    def to_dict(self) -> dict[str, str | bool]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CreatedPools:
    """All pools, in the order in which they were requested."""

    pools: tuple[CreatedPool, ...]

    def to_dict(self) -> dict[str, Any]:
        return _done(pools=[pool.to_dict() for pool in self.pools])

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> CreatedPools:
        return cls(tuple(CreatedPool(**pool) for pool in message["pools"]))


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bandwidths and fixed times of one pool; medians. The first six are in bytes a second.

    A move of n bytes takes the fixed time, and n by the bandwidth: for a page that is the measured time.

    Attributes:
        read: of summing the memory, on the pool's device.
        written: of filling the memory.
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

    def to_dict(self) -> dict[str, float | None]:
        return asdict(self)

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

    bandwidths: tuple[Bandwidth, ...]

    def to_dict(self) -> dict[str, Any]:
        return _done(bandwidths=[bandwidth.to_dict() for bandwidth in self.bandwidths])

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> MeasuredBandwidths:
        return cls(tuple(Bandwidth.from_dict(value) for value in message["bandwidths"]))


@dataclass(frozen=True, slots=True)
class IsolatedTimes:
    """Times in ns of an op by itself, a list for each configuration."""

    times_ns: list[list[float]]

    def to_dict(self) -> dict[str, Any]:
        return _done(times_ns=self.times_ns)

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> IsolatedTimes:
        return cls(message["times_ns"])


@dataclass(frozen=True, slots=True)
class InGraphTimes:
    """Times in ns in runs of the step: for each placement, for each run, for each op."""

    runs_ns: list[list[list[float]]]

    def to_dict(self) -> dict[str, Any]:
        return _done(runs_ns=self.runs_ns)

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> InGraphTimes:
        return cls(message["runs_ns"])


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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> ExecutedPlan:
        return cls(
            tuple(value["times_ns"]),
            tuple(value["op_ns"]),
            value["move_ns"],
            Agreement(**value["agreement"]),
            value["fast_bytes"],
            value["slow_bytes"],
            value["pages"],
        )


@dataclass(frozen=True, slots=True)
class ExecutedPlans:
    """Results of executing plans, in their order."""

    plans: tuple[ExecutedPlan, ...]

    def to_dict(self) -> dict[str, Any]:
        return _done(plans=[plan.to_dict() for plan in self.plans])

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> ExecutedPlans:
        return cls(tuple(ExecutedPlan.from_dict(plan) for plan in message["plans"]))


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
