"""A GPU driver that a process of its own asks, because a call of it may hang."""

from __future__ import annotations

from dataclasses import dataclass

from memtui.core.samples import Capability, Status

Problem = tuple[Status, Capability]


@dataclass(frozen=True, slots=True)
class GpuDriver:
    """What the GPUs of one make are read through.

    Attributes:
        source: of its readings and in ``memtui doctor``: ``nvml``.
        worker: the module that calls the driver, and its arguments after the pid of its parent.
        name: in sentences: ``the NVIDIA driver``.
        absent: the device of the one reading that says why there is none.
        problem: why it cannot be asked at all; None: a process asks it.
        remedy: what helps where it does not answer.
    """

    source: str
    worker: tuple[str, ...]
    name: str
    absent: str
    problem: Problem | None
    remedy: str
