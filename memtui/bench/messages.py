"""Messages between a sweep and its worker: one JSON object a line, one dataclass for each kind of message.

The sweep sends ``MeasureRequest`` and ``PowerSettled``. The worker first sends ``Ready``, or ``Unable`` and ends. It
answers a request with a ``Phase`` at the start of each phase, and then with ``Done`` or ``Failed``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, get_args

from memtui.bench.plan import BenchPlan, BenchWindow
from memtui.core.json_fields import from_json_union


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """Requests a measurement.

    Attributes:
        configuration: ``text`` of the configuration.
        plan: length and number of windows.
    """

    configuration: str
    plan: BenchPlan


@dataclass(frozen=True, slots=True)
class PowerSettled:
    """Notifies the worker that the power does not change any more."""

    settled: bool = field(default=True, init=False)


Request = MeasureRequest | PowerSettled
_REQUESTS: tuple[type[Request], ...] = get_args(Request)


def request_of(message: Any) -> Request:
    """Return the request of a line. Raises ValueError."""
    return from_json_union(_REQUESTS, message)


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

    at: str = field(default="ready", init=False)
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

    def environment(self) -> dict[str, str | int]:
        """Return the versions and settings that make figures comparable, as far as they apply to the device."""
        names = ("torch", "threads", "cuda", "cudnn", "capability")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class Phase:
    """Reports the start of a phase.

    Attributes:
        at: ``data``, ``warm-up`` or ``window``.
        window: number of the window, from 1; 0 outside of windows.
        windows: least number of windows; None outside of windows.
    """

    at: str
    window: int = 0
    windows: int | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """Reports a measurement.

    Attributes:
        windows: at least one.
        settled: whether the load had settled before the windows.
        yard_limit_ns: longest time of the yardstick at the CPU's full speed; None without a yardstick.
        yard_ns: usual time of the yardstick; None without a yardstick, and where all its readings were disturbed.
        walked_bytes: size of all inputs, until the first is used again.
        copies: number of sets of weights.
        launch_share: part of the time of a burst of calls in which a GPU's host queued them; None on a CPU.
    """

    at: str = field(default="done", init=False)
    windows: tuple[BenchWindow, ...]
    settled: bool
    yard_limit_ns: float | None
    yard_ns: float | None
    walked_bytes: int
    copies: int
    launch_share: float | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """Reports that a configuration could not be measured.

    Attributes:
        why: a word or two, which become the flag of the row.
        text: the details.
    """

    at: str = field(default="failed", init=False)
    why: str
    text: str


@dataclass(frozen=True, slots=True)
class Unable:
    """Reports why the worker ends at once."""

    at: str = field(default="unable", init=False)
    text: str


Reply = Done | Failed | Phase
_REPLIES: tuple[type[Reply], ...] = get_args(Reply)


def reply_of(message: Any) -> Reply:
    """Return the answer to a request. Raises ValueError."""
    return from_json_union(_REPLIES, message)
