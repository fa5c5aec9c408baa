"""The allocations of a session: training steps with every allocation, and reports of a GPU driver."""

from __future__ import annotations

from dataclasses import replace

from memtui.analysis.allocation_trace import StepTrace
from memtui.core.call_stacks import CallStacks
from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.session.columns import columns_of
from memtui.session.connection import SessionFile
from memtui.session.tables.allocations import (
    AllocationDeviceRecord,
    AllocationStepColumns,
    AllocationStepRecord,
    AllocatorPeakRecord,
    RecordedStep,
    decode_step,
    recorded_step,
)
from memtui.session.tables.call_stacks import (
    AllocationStackRecord,
    CallStackRecord,
    FrameRecord,
    call_stacks_of,
    decode_stacks,
)
from memtui.session.tables.imported import DriverMemory
from memtui.session.tables.tensors import LayerTypesRecord
from memtui.session.validation import parse_json


class AllocationReader:
    """Reads recorded steps. The methods raise SessionError."""

    def __init__(self, file: SessionFile) -> None:
        self._file = file
        self._call_stacks: CallStacks | None = None

    def steps(self) -> list[RecordedStep]:
        """Return the training steps whose allocations were recorded, in the order they came."""
        if not self._file.has(AllocationStepRecord):
            return []
        rows = self._file.rows(AllocationStepRecord, "ORDER BY id", names=columns_of(AllocationStepColumns))
        devices = {row.id: row.device for row in self._file.records(AllocationDeviceRecord)}
        peaks = {row.id: row for row in self._file.records(AllocatorPeakRecord)}
        try:
            return [
                recorded_step(*row, device=devices.get(row[0], MAIN_MEMORY), peak=peaks.get(row[0])) for row in rows
            ]
        except ValueError as error:
            raise self._file.damaged(str(error)) from None

    def trace(self, step: RecordedStep) -> StepTrace:
        """Return every allocation of a recorded step."""
        rows = self._file.rows(AllocationStepRecord, "WHERE id = ?", step.id, names=["data"])
        try:
            trace = decode_step(step, rows[0][0])
            for record in self._file.records(AllocationStackRecord, "WHERE id = ?", step.id):
                return replace(trace, stack=decode_stacks(record.data, len(trace), self._stack_count()))
        except (IndexError, ValueError) as error:
            raise self._file.damaged(f"allocations of step {step.step}: {error}") from None
        return trace

    def call_stacks(self) -> CallStacks:
        """Return the call stacks that allocations have; none where none were recorded."""
        if self._call_stacks is None:
            there = self._file.has(FrameRecord)
            tables = [self._file.rows(kind, "ORDER BY id") if there else [] for kind in (FrameRecord, CallStackRecord)]
            try:
                self._call_stacks = call_stacks_of(*tables)
            except ValueError as error:
                raise self._file.damaged(f"call stacks: {error}") from None
        return self._call_stacks

    def _stack_count(self) -> int:
        """Return how many call stacks there are, without reading them."""
        last = self._file.rows(CallStackRecord, "ORDER BY id DESC LIMIT 1", names=["id"])
        return last[0][0] + 1 if last else 0

    def layer_types(self, pid: int) -> dict[str, str]:
        """Return the class of each layer of a process by its name; empty where no step named any."""
        if not self._file.has(LayerTypesRecord):
            return {}
        try:
            for (text,) in self._file.rows(LayerTypesRecord, "WHERE pid = ?", pid, names=["types"]):
                types = parse_json(text)
                if not isinstance(types, dict) or not all(isinstance(kind, str) for kind in types.values()):
                    raise ValueError("is not a table of texts")
                return types
        except ValueError as error:
            raise self._file.damaged(f"classes of layers of process {pid}: {error}") from None
        return {}

    def driver_memory(self) -> list[DriverMemory]:
        """Return the free memory that the driver of a GPU reported, in an imported log, by time."""
        return self._file.records(DriverMemory, "ORDER BY t_ns")
