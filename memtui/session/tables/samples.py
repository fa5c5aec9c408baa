"""The rows of samples: of the whole tree, and of each process with its pages. Their blobs: ``session/blobs.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from memtui.session.columns import Integer, OptionalInteger, Text


@dataclass(frozen=True, slots=True, eq=False)
class SampleColumns(Generic[Integer, OptionalInteger, Text]):
    """The scalars of a sample of the whole tree, or of all samples; None or nan where it could not be measured."""

    sample: Integer
    start_ns: Integer
    end_ns: Integer
    asked_ns: Integer
    sampler_cpu_ns: Integer
    recorder_cpu_ns: Integer
    gaps: Integer
    budgeted_ns: OptionalInteger
    next_ns: OptionalInteger
    paused_ns: OptionalInteger
    wss_bytes: OptionalInteger
    stored_bytes: OptionalInteger
    faulted_in_bytes: OptionalInteger
    unknown_bytes: OptionalInteger
    shared_bytes: OptionalInteger
    rss_bytes: OptionalInteger
    processes: OptionalInteger  # their number; not known in old sessions
    pss_bytes: OptionalInteger
    pss_ns: OptionalInteger  # when it was read
    wss_low_bytes: OptionalInteger  # of an estimate
    wss_high_bytes: OptionalInteger
    lost_ns: OptionalInteger
    set_again_ns: OptionalInteger
    disturbed: Text
    status: Text
    reason: Text


@dataclass(frozen=True, slots=True, eq=False)
class SampleRecord(SampleColumns[int, int | None, str]):
    """One sample of the whole tree."""


@dataclass(frozen=True, slots=True)
class ProcessSampleRecord:
    """What one process did in one sample. Most columns are fields of ``ProcessWindow``."""

    id: int
    start_ns: int
    end_ns: int
    paused_ns: int | None
    walk_ns: int | None
    rearm_ns: int | None
    clear_gap_ns: int | None
    flush: str
    rearm: str
    wss_bytes: int | None
    stored_bytes: int | None
    faulted_in_bytes: int | None
    unknown_bytes: int | None
    shared_bytes: int | None
    pss_bytes: int | None
    pss_ns: int | None
    pss_reason: str
    private_bytes: int | None  # of the same reading
    swap_bytes: int | None
    longest_pause_ns: int | None
    rss_bytes: int | None
    cpu_ns: int | None
    threads: int | None
    minor_faults: int | None
    major_faults: int | None
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class PageSetRecord:
    """The accessed pages of a process in one sample, as far as the filter includes them."""

    id: int
    codec: int
    data: bytes


@dataclass(frozen=True, slots=True)
class ResidentSetRecord:
    """The resident pages of a process at the end of one sample."""

    id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class TouchSumRecord:
    """Page sets of a process added up."""

    level: int
    id: int
    data: bytes
