"""The machine of a session: power, limits of memory, and what processes allocated on GPUs and used of them."""

from __future__ import annotations

from typing import TypeVar

from memtui.core.readings import GpuMemory, GpuUse, MemoryLimit, MemoryUse, NumaUse, PowerReading
from memtui.session.connection import SessionFile
from memtui.session.schema import TABLES

Reading = TypeVar("Reading", GpuMemory, GpuUse)


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

    def gpu_use(self, first_ns: int, last_ns: int) -> list[GpuUse]:
        """Return how busy processes kept GPUs, in a half-open time range: a row a change, valid until the next."""
        return self._file.records(GpuUse, "WHERE t_ns >= ? AND t_ns < ? ORDER BY t_ns, process", first_ns, last_ns)

    def memory_limits(self, first_ns: int, last_ns: int) -> list[MemoryLimit]:
        """Return the limits of memory in a half-open time range: at each moment the one that leaves least."""
        return self._file.records(MemoryLimit, "WHERE t_ns >= ? AND t_ns < ? ORDER BY t_ns", first_ns, last_ns)

    def memory_use(self, first_ns: int, last_ns: int) -> list[MemoryUse]:
        """Return the resident memory of the tree in a half-open time range; it is read every two seconds."""
        return self._file.records(MemoryUse, "WHERE t_ns >= ? AND t_ns < ? ORDER BY t_ns", first_ns, last_ns)

    def numa_use(self, first_ns: int, last_ns: int) -> list[NumaUse]:
        """Return on which nodes touched pages lie, in a half-open time range; none on a machine with one node."""
        rest = "WHERE t_ns >= ? AND t_ns < ? ORDER BY t_ns, process, node"
        return self._file.records(NumaUse, rest, first_ns, last_ns)

    def gpu_memory_at(self, t_ns: int) -> dict[int, GpuMemory]:
        """Return what each process had allocated on GPUs at a moment, by its key; only those measured by then."""
        return {memory.process: memory for memory in self._at(GpuMemory, t_ns)}

    def gpu_use_at(self, t_ns: int) -> dict[int, GpuUse]:
        """Return how busy each process kept GPUs at a moment, by its key; only those measured by then."""
        return {use.process: use for use in self._at(GpuUse, t_ns)}

    def _at(self, record: type[Reading], t_ns: int) -> list[Reading]:
        """Return the last row of each process until a moment."""
        if not self._file.has(record):
            return []
        table, (columns, kinds) = TABLES[record], self._file.selection(record)
        statement = (
            f"SELECT {columns} FROM process JOIN {table} ON {table}.process = process.key AND {table}.t_ns = "
            f"(SELECT max(t_ns) FROM {table} WHERE process = process.key AND t_ns <= ?)"
        )
        return [record(*row) for row in self._file.query(statement, kinds, t_ns)]
