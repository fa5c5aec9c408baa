"""The captures of a session: blocks of memory and the call stacks that allocated them."""

from __future__ import annotations

from memtui.analysis.stack_capture import StackCapture
from memtui.session.allocation_reader import AllocationReader
from memtui.session.connection import SessionFile
from memtui.session.tables.captures import CaptureBlocksRecord, CaptureRecord, decode_capture


class CaptureReader:
    """Reads captures. The methods raise SessionError."""

    def __init__(self, file: SessionFile, allocations: AllocationReader) -> None:
        self._file, self._allocations = file, allocations

    def pids(self) -> list[int]:
        """Return the processes of which there is a capture."""
        if not self._file.has(CaptureRecord):
            return []
        return [pid for (pid,) in self._file.rows(CaptureRecord, "ORDER BY pid", names=["pid"])]

    def next_id(self) -> int:
        """Return a number above those of all blocks."""
        if not self._file.has(CaptureRecord):
            return 0
        rows = self._file.rows(CaptureBlocksRecord, "ORDER BY id DESC LIMIT 1", names=["id"])
        return rows[0][0] + 1 if rows else 0

    def all(self) -> list[StackCapture]:
        """Return all captures, by pid."""
        captures = []
        for record in self._file.records(CaptureRecord, "ORDER BY pid"):
            rest = "WHERE pid = ? ORDER BY id"
            blocks = [data for (data,) in self._file.rows(CaptureBlocksRecord, rest, record.pid, names=["data"])]
            try:
                captures.append(decode_capture(record, blocks, self._allocations.call_stacks()))
            except ValueError as error:
                raise self._file.damaged(f"capture of process {record.pid}: {error}") from None
        return captures
