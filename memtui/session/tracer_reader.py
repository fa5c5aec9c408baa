"""What watched programs told of themselves in a session: training steps, allocations, places of tensors, learning."""

from __future__ import annotations

from memtui.analysis.allocation_trace import StepTrace
from memtui.analysis.tensor_pages import TensorMap
from memtui.core.samples import MAIN_MEMORY
from memtui.session.connection import Database
from memtui.session.records.allocations import KINDS as STEP_KINDS
from memtui.session.records.allocations import SCALARS, RecordedStep, decode_step, recorded_step
from memtui.session.records.imported import DriverMemory, ImportedFrom
from memtui.session.records.learning import COLUMNS as LEARNING
from memtui.session.records.learning import KINDS as LEARNING_KINDS
from memtui.session.records.learning import About, LearningPoint, about_of
from memtui.session.records.tensors import decode_map
from memtui.session.records.training import KINDS as PROGRESS_KINDS
from memtui.session.records.training import SCALARS as PROGRESS
from memtui.session.records.training import ProgressRow, RecordedProgress, decode_progress


class ToldReader(Database):
    """The part of a session that came from inside the programs, or from another tool's file about one."""

    def allocation_steps(self) -> list[RecordedStep]:
        """Return the training steps whose allocations were recorded, in the order they came."""
        if not self._has("allocation_step"):
            return []
        rows = self._all(f"SELECT {SCALARS} FROM allocation_step ORDER BY id", STEP_KINDS)
        told = self._has("allocation_device")
        devices = dict(self._all("SELECT id, device FROM allocation_device", "it")) if told else {}
        try:
            steps = [recorded_step(row) for row in rows]
            return [step._replace(device=devices.get(step.id, MAIN_MEMORY)) for step in steps] if devices else steps
        except ValueError as error:
            raise self._damaged(str(error)) from None

    def step_trace(self, step: RecordedStep) -> StepTrace:
        """Every allocation of a recorded step."""
        rows = self._all("SELECT data FROM allocation_step WHERE id = ?", "b", step.id)
        try:
            return decode_step(step, rows[0][0])
        except (IndexError, ValueError) as error:
            raise self._damaged(f"allocations of step {step.step}: {error}") from None

    def tensor_maps(self) -> list[tuple[int, int, TensorMap]]:
        """(pid, from when on, where its lasting tensors lie until its next one), in the order they came."""
        if not self._has("tensor_ranges"):
            return []
        rows = self._all("SELECT pid, t_ns, data FROM tensor_ranges ORDER BY id", "iib")
        try:
            return [(pid, t_ns, decode_map(data)) for pid, t_ns, data in rows]
        except ValueError as error:
            raise self._damaged(f"places of tensors: {error}") from None

    def training(self, first_ns: int = 0, last_ns: int = 1 << 62, device: str = MAIN_MEMORY) -> list[ProgressRow]:
        """Training steps by the messages that told of them, of those that reach into a half-open time range.

        What tensors held in main memory is always told; in that of another device where it held any.
        """
        if not self._has("training_progress"):
            return []
        of_device = " LEFT JOIN progress_device USING(id)" if self._has("progress_device") else ""
        which = f"coalesce(device, '{MAIN_MEMORY}') = ?" if of_device else f"'{MAIN_MEMORY}' = ?"
        query = (
            f"SELECT {PROGRESS} FROM training_progress{of_device} "
            f"WHERE end_ns >= ? AND start_ns < ? AND {which} ORDER BY id"
        )
        return [
            ProgressRow(*row)._replace(device=device)
            for row in self._all(query, PROGRESS_KINDS, first_ns, last_ns, device)
        ]

    def training_devices(self) -> list[str]:
        """Whose memory the tensors of training steps were seen in, main memory first."""
        if not self._has("progress_device"):
            return [MAIN_MEMORY]
        return [
            MAIN_MEMORY,
            *(row[0] for row in self._all("SELECT DISTINCT device FROM progress_device ORDER BY 1", "t")),
        ]

    def training_progress(self, row: ProgressRow) -> RecordedProgress:
        """When those steps ended, and what tensors held."""
        rows = self._all("SELECT data FROM training_progress WHERE id = ?", "b", row.id)
        try:
            return decode_progress(row, rows[0][0])
        except (IndexError, ValueError) as error:
            raise self._damaged(f"training from step {row.first}: {error}") from None

    def imported(self) -> ImportedFrom | None:
        """Return the file of another tool that the session was made from; None where memtui recorded it."""
        plain = self._meta("hello").get("imported")
        try:
            return None if plain is None else ImportedFrom.from_plain(plain)
        except ValueError as error:
            raise self._damaged(str(error)) from None

    def driver_memory(self) -> list[DriverMemory]:
        """Return what the driver of a GPU said is free, in an imported log, by time."""
        if not self._has("driver_memory"):
            return []
        rows = self._all("SELECT t_ns, free_bytes, total_bytes FROM driver_memory ORDER BY t_ns", "iii")
        return [DriverMemory(*row) for row in rows]

    def learning(self, first_ns: int = 0, last_ns: int = 1 << 62) -> list[LearningPoint]:
        """Loss and accuracy in a half-open time range, in the order they came."""
        if not self._has("learning"):
            return []
        query = f"SELECT {LEARNING} FROM learning WHERE t_ns >= ? AND t_ns < ? ORDER BY id"
        return [LearningPoint(*row) for row in self._all(query, LEARNING_KINDS, first_ns, last_ns)]

    def trainings(self) -> list[About]:
        """Return what those processes train that tell how well they learn."""
        if not self._has("learning_about"):
            return []
        try:
            return [about_of(*row) for row in self._all("SELECT pid, about FROM learning_about ORDER BY pid", "it")]
        except ValueError as error:
            raise self._damaged(str(error)) from None

    def tensor_places(self, after: int) -> list[tuple[int, int, int]]:
        """Return (number, pid, from when on) of maps with higher numbers, rising: ``tensor_map`` has one of them."""
        if not self._has("tensor_ranges"):
            return []
        return self._all("SELECT id, pid, t_ns FROM tensor_ranges WHERE id > ? ORDER BY id", "iii", after)

    def tensor_map(self, number: int) -> TensorMap:
        """Where the tensors of a process lay from a moment on."""
        rows = self._all("SELECT data FROM tensor_ranges WHERE id = ?", "b", number)
        try:
            return decode_map(rows[0][0])
        except (IndexError, ValueError) as error:
            raise self._damaged(f"places of tensors: {error}") from None
