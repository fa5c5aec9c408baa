"""What a sweep and its worker say to each other: one JSON object a line, one dataclass for each kind of message.

The sweep sends ``MeasureRequest`` and ``PowerSettled``. The worker begins with ``Ready``, or ends with ``Unable``. To a
request it sends a ``Phase`` with each phase, and then ``Done`` or ``Failed``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from memtui.bench.plan import BenchPlan, BenchWindow

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """Asks for a measurement.

    Attributes:
        configuration: its ``text``.
        plan: how long and how often.
    """

    configuration: str
    plan: BenchPlan

    def to_dict(self) -> Json:
        return {"configuration": self.configuration, "plan": self.plan.to_dict()}


@dataclass(frozen=True, slots=True)
class PowerSettled:
    """Tells the worker that the power does not change any more."""

    def to_dict(self) -> Json:
        return {"settled": True}


Request = MeasureRequest | PowerSettled


def request_from_dict(plain: Mapping[str, Any]) -> Request:
    """Return the message of the sweep that became this JSON object."""
    if "configuration" in plain:
        return MeasureRequest(plain["configuration"], BenchPlan(**plain["plan"]))
    return PowerSettled()


@dataclass(frozen=True, slots=True)
class Ready:
    """Describes the worker, once it can measure. None and empty texts: its kind of device has no such thing.

    Attributes:
        torch: version.
        threads: of a CPU.
        cache_bytes: of the last level.
        pid: of the worker.
        name: of the device.
        uuid: of a GPU.
        memory_bytes: of a GPU.
        cuda: version.
        cudnn: version.
        capability: instructions of a CPU that torch uses.
    """

    AT: ClassVar[str] = "ready"
    torch: str
    threads: int
    cache_bytes: int
    pid: int
    name: str
    uuid: str
    memory_bytes: int | None = None
    cuda: str | None = None
    cudnn: int | None = None
    capability: str | None = None

    def to_dict(self) -> Json:
        return {"at": self.AT, **asdict(self)}

    def environment(self) -> dict[str, str | int]:
        """Return what makes figures comparable, as far as the device has it."""
        names = ("torch", "threads", "cuda", "cudnn", "capability")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class Phase:
    """Says what begins.

    Attributes:
        name: ``data``, ``warm-up`` or ``window``.
        window: its number from 1; 0 outside of windows.
        windows: how many there will be at least; None outside of windows.
    """

    name: str
    window: int = 0
    windows: int | None = None

    def to_dict(self) -> Json:
        return {"at": self.name, "window": self.window, "windows": self.windows}


@dataclass(frozen=True, slots=True)
class Done:
    """Reports a measurement.

    Attributes:
        windows: at least one.
        settled: whether the load had settled before them.
        yard_limit_ns: what the yardstick takes at most while the CPU runs at its full speed; None: there was none.
        yard_ns: what it takes usually; None: there was none.
        walked_bytes: of inputs, until the first came again.
        copies: sets of weights.
    """

    AT: ClassVar[str] = "done"
    windows: tuple[BenchWindow, ...]
    settled: bool
    yard_limit_ns: float | None
    yard_ns: float | None
    walked_bytes: int
    copies: int

    def to_dict(self) -> Json:
        return {"at": self.AT, **asdict(self)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Done:
        return cls(**{**plain, "windows": tuple(map(BenchWindow.from_dict, plain["windows"]))})


@dataclass(frozen=True, slots=True)
class Failed:
    """Reports that a configuration could not be measured.

    Attributes:
        why: in a word or two, which become the flag of the row.
        text: more.
    """

    AT: ClassVar[str] = "failed"
    why: str
    text: str

    def to_dict(self) -> Json:
        return {"at": self.AT, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Unable:
    """Says why the worker ends at once."""

    AT: ClassVar[str] = "unable"
    text: str

    def to_dict(self) -> Json:
        return {"at": self.AT, **asdict(self)}


Reply = Phase | Done | Failed


def ready_from_dict(plain: Mapping[str, Any]) -> Ready:
    """Return the description of a worker that became this JSON object."""
    return Ready(**_without_tag(plain))


def reply_from_dict(plain: Mapping[str, Any]) -> Reply:
    """Return the answer to a request that became this JSON object."""
    if plain["at"] == Done.AT:
        return Done.from_dict(_without_tag(plain))
    if plain["at"] == Failed.AT:
        return Failed(**_without_tag(plain))
    return Phase(plain["at"], plain["window"], plain["windows"])


def _without_tag(plain: Mapping[str, Any]) -> Json:
    return {name: value for name, value in plain.items() if name != "at"}
