"""The training of a session, as its programs reported it: steps that ended, loss and accuracy."""

from __future__ import annotations

from collections import Counter

from memtui.core.tracer_messages import MAIN_MEMORY
from memtui.session.columns import columns_of
from memtui.session.connection import SessionFile
from memtui.session.tables.allocations import AllocationStepRecord
from memtui.session.tables.learning import (
    About,
    LearningAboutRecord,
    LearningColumns,
    LearningPoint,
    LearningRecord,
    about_of,
)
from memtui.session.tables.training import (
    ProgressDeviceRecord,
    ProgressRow,
    RecordedProgress,
    TrainingProgressColumns,
    TrainingProgressRecord,
    decode_progress,
)


class TrainingReader:
    """Reads training steps and learning. The methods raise SessionError."""

    def __init__(self, file: SessionFile) -> None:
        self._file = file

    def progress(self, first_ns: int = 0, last_ns: int = 1 << 62, device: str = MAIN_MEMORY) -> list[ProgressRow]:
        """Return the messages about training steps that reach into a half-open time range.

        Tensor memory is always reported for main memory; for another device where tensors used it.
        """
        if not self._file.has(TrainingProgressRecord):
            return []
        of_device = "LEFT JOIN progress_device USING(id)" if self._file.has(ProgressDeviceRecord) else ""
        which = f"coalesce(device, '{MAIN_MEMORY}') = ?" if of_device else f"'{MAIN_MEMORY}' = ?"
        rows = self._file.rows(
            TrainingProgressRecord,
            f"{of_device} WHERE end_ns >= ? AND start_ns < ? AND {which} ORDER BY training_progress.id",
            *(first_ns, last_ns, device),
            names=columns_of(TrainingProgressColumns),
        )
        return [ProgressRow(*(*row, device)) for row in rows]

    def traced_fraction(self, until_ns: int = 1 << 62) -> float | None:
        """Return what tracing took of the time of the process that it slowed most, an estimate; None: it took nothing.

        ``until_ns``: steps that began later do not count.
        """
        if not (self._file.has(TrainingProgressRecord) and self._file.has(AllocationStepRecord)):
            return None
        figures = "pid, min(start_ns), max(end_ns), max(cost_ns)"
        seen = self._file.query(
            f"SELECT {figures} FROM training_progress WHERE start_ns < ? GROUP BY pid", "iiii", until_ns
        )
        # A step is recorded in a row for each device, all with what it took in all.
        steps = self._file.query(
            "SELECT pid, max(cost_ns) FROM allocation_step WHERE start_ns < ? GROUP BY pid, start_ns", "ii", until_ns
        )
        taken_ns: Counter[int] = Counter()
        for pid, cost_ns in steps:
            taken_ns[pid] += cost_ns
        shares = ((cost_ns + taken_ns[pid]) / max(1, end_ns - start_ns) for pid, start_ns, end_ns, cost_ns in seen)
        return max(shares, default=0.0) or None

    def details(self, row: ProgressRow) -> RecordedProgress:
        """Return when the steps of a message ended, and their tensor memory."""
        rows = self._file.rows(TrainingProgressRecord, "WHERE id = ?", row.id, names=["data"])
        try:
            return decode_progress(row, rows[0][0])
        except (IndexError, ValueError) as error:
            raise self._file.damaged(f"training from step {row.first_step}: {error}") from None

    def devices(self) -> list[str]:
        """Return the devices in whose memory tensors of training steps were seen, main memory first."""
        if not self._file.has(ProgressDeviceRecord):
            return [MAIN_MEMORY]
        rows = self._file.query("SELECT DISTINCT device FROM progress_device ORDER BY 1", "t")
        return [MAIN_MEMORY, *(device for (device,) in rows)]

    def learning(self, first_ns: int = 0, last_ns: int = 1 << 62) -> list[LearningPoint]:
        """Return loss and accuracy in a half-open time range, in the order they came."""
        if not self._file.has(LearningRecord):
            return []
        rest, names = "WHERE t_ns >= ? AND t_ns < ? ORDER BY id", columns_of(LearningColumns)
        return [LearningPoint(*row) for row in self._file.rows(LearningRecord, rest, first_ns, last_ns, names=names)]

    def networks(self) -> list[About]:
        """Return what processes train, of those that report loss and accuracy."""
        try:
            return [about_of(row.pid, row.about) for row in self._file.records(LearningAboutRecord, "ORDER BY pid")]
        except ValueError as error:
            raise self._file.damaged(str(error)) from None
