"""The rows of reuse distances. Their blobs: ``session/blobs.py``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReuseRecord:
    """Exact reuse distances of a process in one sample."""

    id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ReuseCheckpointRecord:
    """The histogram of all samples up to one."""

    sample: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ReuseBurstRecord:
    """Exact reuse distances of a process in the parts of one sample; the last part is the probe."""

    id: int
    parts: int
    probe_ns: int
    data: bytes
