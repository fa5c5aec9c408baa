"""The fields that a redacted session may show: a field that is not declared harmless here is hidden.

So a field that is added later is hidden until somebody decides about it. Numbers of memory, time and energy are
harmless; texts are not, but for a few that memtui itself chose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from memtui.analysis.row_states import RowState
from memtui.core.call_stacks import Frame
from memtui.core.readings import GpuMemory, GpuUse, MemoryLimit, MemoryUse, NumaUse, PowerReading
from memtui.core.samples import Capability, Clock, End, Event, Hello, Host, Options, Process, Target
from memtui.session.sample_arrays import SampleArrays
from memtui.session.tables.allocations import RecordedStep
from memtui.session.tables.imported import DriverMemory, ImportedFrom
from memtui.session.tables.learning import About, LearningPoint
from memtui.session.tables.training import ProgressRow, RecordedProgress
from memtui.session.vma_row import VmaRow

Record = TypeVar("Record")

HARMLESS: dict[type, frozenset[str]] = {
    kind: frozenset(names.split())
    for kind, names in {
        Clock: "monotonic_ns wall_ns utc_offset_s",
        Host: "cpu_count memory_bytes huge_pages numa_nodes",
        Target: "pid start_ticks",
        Options: "interval_ns tracker pause flush rearm pages children duration_ns together chassis_power keep_command "
        "keep_resident max_overhead_ppm trace_every",
        Capability: "ok",
        Hello: "",
        Process: "key pid parent_pid start_ticks generation",
        VmaRow: "id process pid first_sample last_sample open",
        RowState: "sample",
        SampleArrays: "sample start_ns end_ns asked_ns sampler_cpu_ns recorder_cpu_ns gaps budgeted_ns next_ns "
        "paused_ns wss_bytes stored_bytes faulted_in_bytes unknown_bytes shared_bytes rss_bytes processes pss_bytes "
        "pss_ns wss_low_bytes wss_high_bytes lost_ns set_again_ns status",
        PowerReading: "t_ns power_w energy_j limit_w memory_used_bytes utilization processes sm_active "
        "sm_occupancy tensor_active dram_active pcie_tx_bytes_per_s pcie_rx_bytes_per_s nvlink_tx_bytes_per_s "
        "nvlink_rx_bytes_per_s",
        GpuMemory: "t_ns process gpu_bytes",
        GpuUse: "t_ns process gpus_used",
        MemoryUse: "t_ns processes rss_bytes pss_bytes",
        NumaUse: "t_ns process node pages threads",
        MemoryLimit: "t_ns limit_bytes used_bytes reclaimable_bytes swap_bytes some_stall_ns full_stall_ns "
        "refaults oom_score_adj high_bytes high_used_bytes high_events",
        Event: "t_ns",
        End: "t_ns sampler_cpu_ns recorder_cpu_ns",
        RecordedStep: "id pid step start_ns end_ns start_bytes peak_bytes peak_parts rows cost_ns dropped lost "
        "allocated_peak_bytes reserved_peak_bytes",
        Frame: "",
        ProgressRow: "id pid first_step steps start_ns end_ns peak_bytes cost_ns",
        RecordedProgress: "ends_ns",
        ImportedFrom: "format clock driver",
        DriverMemory: "t_ns free_bytes total_bytes",
        About: "pid direct",
        LearningPoint: "pid t_ns iteration epoch loss accuracy minimum",
    }.items()
}
# Of the table of processes.
HARMLESS_COLUMNS = frozenset((
    "sample", "process", "start_ns", "end_ns", "paused_ns", "walk_ns", "rearm_ns", "clear_gap_ns", "wss_bytes",
    "stored_bytes", "faulted_in_bytes", "unknown_bytes", "shared_bytes", "pss_bytes", "pss_ns", "private_bytes",
    "swap_bytes", "rss_bytes", "longest_pause_ns", "cpu_ns", "threads", "minor_faults", "major_faults",
))  # fmt: skip


def permitted(record: Record, **shown: Any) -> Record:
    """Return a record with its harmless fields, and with ``shown`` in place of fields that have a harmless form.

    Every other field is hidden: a text becomes empty, a collection as well, anything else None. Raises KeyError for a
    kind of record without a decision.
    """
    kinds = [kind for kind in type(record).__mro__ if kind in HARMLESS]
    harmless = HARMLESS[kinds[0] if kinds else type(record)]
    hidden = {name: _hidden(getattr(record, name)) for name in _names(record) if name not in harmless}
    changed = {**hidden, **shown}
    if is_dataclass(record) and not isinstance(record, type):
        return replace(record, **changed)
    result: Record = record._replace(**changed)  # type: ignore[attr-defined]
    return result


def permitted_row(row: Mapping[str, Any], **shown: Any) -> dict[str, Any]:
    """Return a row of the table of processes with its harmless columns; hidden columns are None."""
    return {name: shown.get(name, value if name in HARMLESS_COLUMNS else None) for name, value in row.items()}


def _names(record: Any) -> Iterable[str]:
    if is_dataclass(record):
        return [field.name for field in fields(record) if field.init]
    names: tuple[str, ...] = record._fields
    return names


def _hidden(value: Any) -> Any:
    return next((kind() for kind in (str, tuple, list, dict) if isinstance(value, kind)), None)
