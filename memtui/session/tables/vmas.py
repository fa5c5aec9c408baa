"""The rows of VMAs, and of what they hold in each sample. Their blobs: ``session/blobs.py``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VmaWssRecord:
    """Accessed bytes of a process by VMA row, in one sample."""

    id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class VmaSharedRecord:
    """The part of accessed bytes that other processes accessed, too."""

    id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class VmaRssRecord:
    """Resident bytes of a process by VMA row, in one sample."""

    id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class VmaPrivateRecord:
    """Bytes of a process by VMA row that no other process maps, of the first sample after they were read."""

    id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class VmaRecord:
    """A VMA, overlap-merged over the session."""

    id: int
    process: int
    start: int
    end: int
    perms: str
    name: str
    first_sample: int
    last_sample: int | None
    filtered: str


@dataclass(frozen=True, slots=True)
class VmaStateRecord:
    """The state of a VMA row from a sample on, of a row that changed."""

    row: int
    sample: int
    perms: str
    filtered: str
    name: str


@dataclass(frozen=True, slots=True)
class VmaAliasRecord:
    """A VMA row that was merged into another one."""

    id: int
    row: int
