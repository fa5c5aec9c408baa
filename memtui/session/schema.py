"""Names the tables of a session: each has one record, whose fields are its columns (``session/tables``).

The types of the fields are those of the columns (``session/columns.py``). INSERT, SELECT and the checks of what is read
come from here; ``schema.sql`` has the same columns, with what they mean, and the formats that lack them. Records that
others speak of, too (``Process``, ``Event``) are declared in ``memtui.core.samples`` and named here.

A base ``...Columns`` is declared apart from its record where columns have another type in memory (arrays in place of
numbers, a dict in place of JSON), or come without a blob or a key.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from memtui.core.readings import GpuMemory, GpuUse, MemoryLimit, MemoryUse, NumaUse, PowerReading
from memtui.core.samples import Event, Process
from memtui.session.columns import Insertion, columns_of, insertion_into
from memtui.session.tables.allocations import AllocationDeviceRecord, AllocationStepRecord, AllocatorPeakRecord
from memtui.session.tables.call_stacks import AllocationStackRecord, CallStackRecord, FrameRecord
from memtui.session.tables.captures import CaptureBlocksRecord, CaptureRecord
from memtui.session.tables.imported import DriverMemory
from memtui.session.tables.learning import LearningAboutRecord, LearningRecord
from memtui.session.tables.reuse import ReuseBurstRecord, ReuseCheckpointRecord, ReuseRecord
from memtui.session.tables.samples import (
    PageSetRecord,
    ProcessSampleRecord,
    ResidentSetRecord,
    SampleRecord,
    TouchSumRecord,
)
from memtui.session.tables.tensors import LayerTypesRecord, TensorRangesRecord
from memtui.session.tables.training import ProgressDeviceRecord, TrainingProgressRecord
from memtui.session.tables.vmas import (
    VmaAliasRecord,
    VmaPrivateRecord,
    VmaRecord,
    VmaRssRecord,
    VmaSharedRecord,
    VmaStateRecord,
    VmaWssRecord,
)


@dataclass(frozen=True, slots=True)
class MetaRecord:
    """A value of the description, as JSON."""

    key: str
    value: str


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
    NumaUse: "numa_use",
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
