"""Declares the tables of a session: each once, as a record whose fields are its columns.

The types of the fields are those of the columns (``session/columns.py``). INSERT, SELECT and the checks of what is read
come from here; ``schema.sql`` has the same columns, with what they mean, and the formats that lack them. Records that
others speak of, too (``Process``, ``Event``) are declared in ``memtui.core.samples`` and named here.

A base ``...Columns`` is declared apart from its record where columns have another type in memory (arrays in place of
numbers, a dict in place of JSON), or come without a blob or a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Generic, NamedTuple

from memtui.core.samples import Event, GpuMemory, GpuUse, MemoryLimit, MemoryUse, PowerReading, Process
from memtui.session.columns import (
    Insertion,
    Integer,
    Json,
    OptionalInteger,
    Text,
    columns_of,
    insertion_into,
)
from memtui.session.records.call_stacks import AllocationStackRecord, CallStackRecord, FrameRecord
from memtui.session.records.captures import CaptureBlocksRecord, CaptureRecord
from memtui.session.records.imported import DriverMemory
from memtui.session.records.reuse import ReuseBurstRecord, ReuseCheckpointRecord, ReuseRecord


@dataclass(frozen=True, slots=True)
class MetaRecord:
    """A value of the description, as JSON."""

    key: str
    value: str


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


@dataclass(frozen=True, slots=True)
class AllocationStepColumns(Generic[Json]):
    """The scalars of a recorded training step.

    ``peak_parts``: bytes by category when most was allocated; ``cost_ns``: what recording took.
    """

    id: int
    pid: int
    step: int
    start_ns: int
    end_ns: int
    start_bytes: int
    peak_bytes: int
    peak_op: str
    peak_layer: str
    peak_parts: Json
    rows: int
    cost_ns: int
    dropped: int
    lost: int


@dataclass(frozen=True, slots=True)
class AllocationStepRecord(AllocationStepColumns[str]):
    """A recorded training step with every allocation."""

    data: bytes


@dataclass(frozen=True, slots=True)
class AllocationDeviceRecord:
    """The device of a recorded step, where that is not main memory."""

    id: int
    device: str


@dataclass(frozen=True, slots=True)
class AllocatorPeakRecord:
    """The most that PyTorch's allocator held in a recorded step on a GPU: blocks and segments; None: not known."""

    id: int
    allocated_bytes: int | None
    reserved_bytes: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class LayerTypesRecord:
    """The classes of a process's layers by name, as JSON."""

    pid: int
    types: str


@dataclass(frozen=True, slots=True)
class TensorRangesRecord:
    """Where the lasting tensors of a process lie from a moment on."""

    id: int
    pid: int
    t_ns: int
    data: bytes


@dataclass(frozen=True, slots=True)
class TrainingProgressColumns:
    """The scalars of a message about training steps that ended.

    ``peak_bytes``: the peak of the tensor memory; 0: not seen.
    """

    id: int
    pid: int
    first_step: int
    steps: int
    start_ns: int
    end_ns: int
    peak_bytes: int
    view: str
    reason: str
    cost_ns: int


@dataclass(frozen=True, slots=True)
class TrainingProgressRecord(TrainingProgressColumns):
    """A message about training steps with their times, and the tensor memory."""

    data: bytes


@dataclass(frozen=True, slots=True)
class ProgressDeviceRecord:
    """The device of such a message, where that is not main memory."""

    id: int
    device: str


@dataclass(frozen=True, slots=True)
class LearningColumns:
    """How well a process learns at one moment.

    ``loss`` is a mean since the point before; None: not measured, not finite, or none wanted.
    """

    pid: int
    t_ns: int
    iteration: int
    epoch: int
    loss: float | None
    accuracy: float | None
    minimum: float | None


@dataclass(frozen=True, slots=True)
class LearningRecord(LearningColumns):
    """A moment of learning with its number."""

    id: int


@dataclass(frozen=True, slots=True)
class LearningAboutRecord:
    """What a process trains, as JSON."""

    pid: int
    about: str


TABLES: dict[type, str] = {
    MetaRecord: "meta",
    Process: "process",
    SampleRecord: "sample",
    ProcessSampleRecord: "process_sample",
    PageSetRecord: "page_set",
    ResidentSetRecord: "resident_set",
    TouchSumRecord: "touch_sum",
    VmaWssRecord: "vma_wss",
    VmaSharedRecord: "vma_shared",
    VmaRssRecord: "vma_rss",
    VmaPrivateRecord: "vma_private",
    ReuseRecord: "reuse",
    ReuseCheckpointRecord: "reuse_checkpoint",
    ReuseBurstRecord: "reuse_burst",
    VmaRecord: "vma",
    VmaStateRecord: "vma_state",
    VmaAliasRecord: "vma_alias",
    PowerReading: "power",
    GpuMemory: "gpu_memory",
    GpuUse: "gpu_use",
    MemoryLimit: "memory_limit",
    MemoryUse: "memory_use",
    Event: "event",
    AllocationStepRecord: "allocation_step",
    AllocationDeviceRecord: "allocation_device",
    AllocatorPeakRecord: "allocator_peak",
    FrameRecord: "frame",
    CallStackRecord: "call_stack",
    AllocationStackRecord: "allocation_stack",
    LayerTypesRecord: "layer_types",
    TensorRangesRecord: "tensor_ranges",
    CaptureRecord: "capture",
    CaptureBlocksRecord: "capture_blocks",
    TrainingProgressRecord: "training_progress",
    ProgressDeviceRecord: "progress_device",
    DriverMemory: "driver_memory",
    LearningRecord: "learning",
    LearningAboutRecord: "learning_about",
}
"""The name of the table of each record."""


class Selection(NamedTuple):
    """The columns of a SELECT, and their kinds."""

    columns: str
    kinds: str


@cache
def selection(record: type, names: tuple[str, ...] = (), missing: frozenset[str] = frozenset()) -> Selection:
    """Return some columns of a record's table, or all of its.

    Args:
        record: a record of ``TABLES``.
        names: the columns; all where none is named.
        missing: those that the file lacks: they are NULL, or empty texts.

    Raises:
        KeyError: no such table or column.
    """
    table, kinds = TABLES[record], columns_of(record)
    wanted = names or tuple(kinds)
    absent = {name: "''" if kinds[name] == "t" else "NULL" for name in missing & set(wanted)}
    listed = ", ".join(absent.get(name, f"{table}.{name}") for name in wanted)
    return Selection(listed, "".join(kinds[name] for name in wanted))


@cache
def insertion(record: type, given: tuple[str, ...] = ()) -> Insertion:
    """Return how a row of a record of ``TABLES`` is inserted: ``columns.insertion_into``.

    Raises:
        KeyError: no such table.
        ValueError: no such column.
    """
    return insertion_into(TABLES[record], record, given)
