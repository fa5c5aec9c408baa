"""The tensors of a session: where the lasting ones of each process lay, and when."""

from __future__ import annotations

from memtui.analysis.tensor_pages import TensorMap
from memtui.session.connection import SessionFile
from memtui.session.tables.tensors import TensorRangesRecord, decode_map


class TensorReader:
    """Reads maps of tensors. The methods raise SessionError."""

    def __init__(self, file: SessionFile) -> None:
        self._file = file

    def maps(self) -> list[tuple[int, int, TensorMap]]:
        """Return (pid, start time, places of its lasting tensors until its next map), in the order they came."""
        records = self._file.records(TensorRangesRecord, "ORDER BY id")
        try:
            return [(record.pid, record.t_ns, decode_map(record.data)) for record in records]
        except ValueError as error:
            raise self._file.damaged(f"places of tensors: {error}") from None

    def latest(self, pid: int, t_ns: int) -> TensorMap | None:
        """Return the places of a process's tensors at a time; None where they are not in the session."""
        if not self._file.has(TensorRangesRecord):
            return None
        rows = self._file.rows(
            TensorRangesRecord, "WHERE pid = ? AND t_ns <= ? ORDER BY id DESC LIMIT 1", pid, t_ns, names=["id"]
        )
        return self.map(rows[0][0]) if rows else None

    def starts(self, after: int) -> list[tuple[int, int, int]]:
        """Return (number, pid, start time) of maps with higher numbers, rising: ``map`` reads one of them."""
        if not self._file.has(TensorRangesRecord):
            return []
        return self._file.rows(TensorRangesRecord, "WHERE id > ? ORDER BY id", after, names=["id", "pid", "t_ns"])

    def map(self, number: int) -> TensorMap:
        """Return the map with a number: the places of a process's tensors from its start time on."""
        rows = self._file.rows(TensorRangesRecord, "WHERE id = ?", number, names=["data"])
        try:
            return decode_map(rows[0][0])
        except (IndexError, ValueError) as error:
            raise self._file.damaged(f"places of tensors: {error}") from None
