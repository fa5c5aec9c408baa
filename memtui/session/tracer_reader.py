"""What watched programs told of themselves in a session: training steps, allocations, places of tensors, learning."""

from __future__ import annotations

from memtui.analysis.allocation_trace import StepTrace
from memtui.analysis.tensor_pages import TensorMap
from memtui.core.samples import MAIN_MEMORY
from memtui.session.connection import Database
from memtui.session.records.allocations import RecordedStep, decode_step, recorded_step
from memtui.session.records.imported import DriverMemory, ImportedFrom
from memtui.session.records.learning import About, LearningPoint, about_of
from memtui.session.records.tensors import decode_map
from memtui.session.records.training import ProgressRow, RecordedProgress, decode_progress
from memtui.session.tables import (
    AllocationDeviceRecord,
    AllocationStepColumns,
    AllocationStepRecord,
    LearningAboutRecord,
    LearningColumns,
    LearningRecord,
    ProgressDeviceRecord,
    TensorRangesRecord,
    TrainingProgressColumns,
    TrainingProgressRecord,
    columns_of,
)


class ToldReader(Database):
    """The part of a session that came from inside the programs, or from another tool's file about one."""

    def allocation_steps(self) -> list[RecordedStep]:
        """Return the training steps whose allocations were recorded, in the order they came."""
        if not self._has(AllocationStepRecord):
            return []
        rows = self._rows(AllocationStepRecord, "ORDER BY id", names=columns_of(AllocationStepColumns))
        devices = {row.id: row.device for row in self._records(AllocationDeviceRecord, "")}
        try:
            return [recorded_step(*row, device=devices.get(row[0], MAIN_MEMORY)) for row in rows]
        except ValueError as error:
            raise self._damaged(str(error)) from None

    def step_trace(self, step: RecordedStep) -> StepTrace:
        """Every allocation of a recorded step."""
        rows = self._rows(AllocationStepRecord, "WHERE id = ?", step.id, names=["data"])
        try:
            return decode_step(step, rows[0][0])
        except (IndexError, ValueError) as error:
            raise self._damaged(f"allocations of step {step.step}: {error}") from None

    def tensor_maps(self) -> list[tuple[int, int, TensorMap]]:
        """(pid, from when on, where its lasting tensors lie until its next one), in the order they came."""
        try:
            return [
                (row.pid, row.t_ns, decode_map(row.data)) for row in self._records(TensorRangesRecord, "ORDER BY id")
            ]
        except ValueError as error:
            raise self._damaged(f"places of tensors: {error}") from None

    def training(self, first_ns: int = 0, last_ns: int = 1 << 62, device: str = MAIN_MEMORY) -> list[ProgressRow]:
        """Training steps by the messages that told of them, of those that reach into a half-open time range.

        What tensors held in main memory is always told; in that of another device where it held any.
        """
        if not self._has(TrainingProgressRecord):
            return []
        of_device = "LEFT JOIN progress_device USING(id)" if self._has(ProgressDeviceRecord) else ""
        which = f"coalesce(device, '{MAIN_MEMORY}') = ?" if of_device else f"'{MAIN_MEMORY}' = ?"
        rows = self._rows(
            TrainingProgressRecord,
            f"{of_device} WHERE end_ns >= ? AND start_ns < ? AND {which} ORDER BY training_progress.id",
            *(first_ns, last_ns, device),
            names=columns_of(TrainingProgressColumns),
        )
        return [ProgressRow(*(*row, device)) for row in rows]

    def training_devices(self) -> list[str]:
        """Whose memory the tensors of training steps were seen in, main memory first."""
        if not self._has(ProgressDeviceRecord):
            return [MAIN_MEMORY]
        return [
            MAIN_MEMORY,
            *(row[0] for row in self._all("SELECT DISTINCT device FROM progress_device ORDER BY 1", "t")),
        ]

    def training_progress(self, row: ProgressRow) -> RecordedProgress:
        """When those steps ended, and what tensors held."""
        rows = self._rows(TrainingProgressRecord, "WHERE id = ?", row.id, names=["data"])
        try:
            return decode_progress(row, rows[0][0])
        except (IndexError, ValueError) as error:
            raise self._damaged(f"training from step {row.first_step}: {error}") from None

    def imported(self) -> ImportedFrom | None:
        """Return the file of another tool that the session was made from; None where memtui recorded it."""
        plain = self._meta("hello").get("imported")
        try:
            return None if plain is None else ImportedFrom.from_plain(plain)
        except ValueError as error:
            raise self._damaged(str(error)) from None

    def driver_memory(self) -> list[DriverMemory]:
        """Return what the driver of a GPU said is free, in an imported log, by time."""
        return self._records(DriverMemory, "ORDER BY t_ns")

    def learning(self, first_ns: int = 0, last_ns: int = 1 << 62) -> list[LearningPoint]:
        """Loss and accuracy in a half-open time range, in the order they came."""
        if not self._has(LearningRecord):
            return []
        names = columns_of(LearningColumns)
        rows = self._rows(LearningRecord, "WHERE t_ns >= ? AND t_ns < ? ORDER BY id", first_ns, last_ns, names=names)
        return [LearningPoint(*row) for row in rows]

    def trainings(self) -> list[About]:
        """Return what those processes train that tell how well they learn."""
        try:
            return [about_of(row.pid, row.about) for row in self._records(LearningAboutRecord, "ORDER BY pid")]
        except ValueError as error:
            raise self._damaged(str(error)) from None

    def tensor_places(self, after: int) -> list[tuple[int, int, int]]:
        """Return (number, pid, from when on) of maps with higher numbers, rising: ``tensor_map`` has one of them."""
        if not self._has(TensorRangesRecord):
            return []
        return self._rows(TensorRangesRecord, "WHERE id > ? ORDER BY id", after, names=["id", "pid", "t_ns"])

    def tensor_map(self, number: int) -> TensorMap:
        """Where the tensors of a process lay from a moment on."""
        rows = self._rows(TensorRangesRecord, "WHERE id = ?", number, names=["data"])
        try:
            return decode_map(rows[0][0])
        except (IndexError, ValueError) as error:
            raise self._damaged(f"places of tensors: {error}") from None
