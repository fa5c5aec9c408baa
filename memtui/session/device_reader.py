"""The devices of a session: readings of their power, and what processes allocated of the memory of GPUs."""

from __future__ import annotations

from memtui.core.samples import GpuMemory, PowerReading
from memtui.session.connection import SessionFile


class DeviceReader:
    """Reads what was measured of devices. The methods raise SessionError."""

    def __init__(self, file: SessionFile) -> None:
        self._file = file

    def power(self, first_ns: int, last_ns: int) -> list[PowerReading]:
        """Return the readings of a half-open time range. An absent source has one row, from when that is detected."""
        return self._file.records(PowerReading, "WHERE t_ns >= ? AND t_ns < ? ORDER BY t_ns", first_ns, last_ns)

    def gpu_memory(self, first_ns: int, last_ns: int) -> list[GpuMemory]:
        """Return what processes allocated on GPUs, in a half-open time range: a row a change, valid until the next."""
        rest = "WHERE t_ns >= ? AND t_ns < ? ORDER BY t_ns, process"
        return self._file.records(GpuMemory, rest, first_ns, last_ns)

    def gpu_memory_at(self, t_ns: int) -> dict[int, GpuMemory]:
        """Return what each process had allocated on GPUs at a moment, by its key; only those measured by then."""
        columns, kinds = self._file.selection(GpuMemory)
        statement = (
            f"SELECT {columns} FROM process JOIN gpu_memory ON gpu_memory.process = process.key AND gpu_memory.t_ns = "
            "(SELECT max(t_ns) FROM gpu_memory WHERE process = process.key AND t_ns <= ?)"
        )
        return {
            memory.process: memory for memory in (GpuMemory(*row) for row in self._file.query(statement, kinds, t_ns))
        }
