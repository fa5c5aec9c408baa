"""The captures of a session: blocks of memory and the call stacks that allocated them."""

from __future__ import annotations

from memtui.analysis.stack_capture import StackCapture
from memtui.session.allocation_reader import AllocationReader
from memtui.session.connection import SessionFile
from memtui.session.records.captures import decode_capture
from memtui.session.schema import CaptureBlocksRecord, CaptureRecord


class CaptureReader:
    """Reads captures. The methods raise SessionError."""

    def __init__(self, file: SessionFile, allocations: AllocationReader) -> None:
        self._file, self._allocations = file, allocations

    def pids(self) -> list[int]:
        """Return the processes of which there is a capture."""
        if not self._file.has(CaptureRecord):
            return []
        return [pid for (pid,) in self._file.rows(CaptureRecord, "ORDER BY pid", names=["pid"])]

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
