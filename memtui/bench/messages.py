"""Messages between a sweep and its worker: one JSON object a line, one dataclass for each kind of message.

The sweep sends ``MeasureRequest`` and ``PowerSettled``. The worker first sends ``Ready``, or ``Unable`` and ends. It
answers a request with a ``Phase`` at the start of each phase, and then with ``Done`` or ``Failed``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from memtui.bench.plan import BenchPlan, BenchWindow

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """Requests a measurement.

    Attributes:
        configuration: ``text`` of the configuration.
        plan: length and number of windows.
    """

    configuration: str
    plan: BenchPlan

    def to_dict(self) -> Json:
        return {"configuration": self.configuration, "plan": self.plan.to_dict()}


@dataclass(frozen=True, slots=True)
class PowerSettled:
    """Notifies the worker that the power does not change any more."""

    def to_dict(self) -> Json:
        return {"settled": True}


Request = MeasureRequest | PowerSettled


def request_from_dict(document: Mapping[str, Any]) -> Request:
    """Invert ``to_dict`` of a message of the sweep."""
    if "configuration" in document:
        return MeasureRequest(document["configuration"], BenchPlan(**document["plan"]))
    return PowerSettled()


@dataclass(frozen=True, slots=True)
class Ready:
    """Describes the worker, once it can measure. None and empty texts: not applicable to its kind of device.

    Attributes:
        torch: version of torch.
        threads: threads of a CPU.
        cache_bytes: size of the last-level cache.
        pid: of the worker.
        name: of the device.
        uuid: of a GPU.
        memory_bytes: of a GPU.
        cuda: version of CUDA.
        cudnn: version of cuDNN.
        capability: instructions of a CPU that torch uses.
    """

    TAG: ClassVar[str] = "ready"
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
        return {"at": self.TAG, **asdict(self)}

    def environment(self) -> dict[str, str | int]:
        """Return the versions and settings that make figures comparable, as far as they apply to the device."""
        names = ("torch", "threads", "cuda", "cudnn", "capability")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class Phase:
    """Reports the start of a phase.

    Attributes:
        name: ``data``, ``warm-up`` or ``window``.
        window: number of the window, from 1; 0 outside of windows.
        windows: least number of windows; None outside of windows.
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
        settled: whether the load had settled before the windows.
        yard_limit_ns: longest time of the yardstick at the CPU's full speed; None without a yardstick.
        yard_ns: usual time of the yardstick; None without a yardstick.
        walked_bytes: size of all inputs, until the first is used again.
        copies: number of sets of weights.
    """

    TAG: ClassVar[str] = "done"
    windows: tuple[BenchWindow, ...]
    settled: bool
    yard_limit_ns: float | None
    yard_ns: float | None
    walked_bytes: int
    copies: int

    def to_dict(self) -> Json:
        return {"at": self.TAG, **asdict(self)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Done:
        return cls(**{**document, "windows": tuple(map(BenchWindow.from_dict, document["windows"]))})


@dataclass(frozen=True, slots=True)
class Failed:
    """Reports that a configuration could not be measured.

    Attributes:
        why: a word or two, which become the flag of the row.
        text: the details.
    """

    TAG: ClassVar[str] = "failed"
    why: str
    text: str

    def to_dict(self) -> Json:
        return {"at": self.TAG, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Unable:
    """Reports why the worker ends at once."""

    TAG: ClassVar[str] = "unable"
    text: str

    def to_dict(self) -> Json:
        return {"at": self.TAG, **asdict(self)}


Reply = Phase | Done | Failed


def ready_from_dict(document: Mapping[str, Any]) -> Ready:
    """Invert ``Ready.to_dict``."""
    return Ready(**_without_tag(document))


def reply_from_dict(document: Mapping[str, Any]) -> Reply:
    """Invert ``to_dict`` of an answer to a request."""
    if document["at"] == Done.TAG:
        return Done.from_dict(_without_tag(document))
    if document["at"] == Failed.TAG:
        return Failed(**_without_tag(document))
    return Phase(document["at"], document["window"], document["windows"])


def _without_tag(document: Mapping[str, Any]) -> Json:
    return {name: value for name, value in document.items() if name != "at"}
