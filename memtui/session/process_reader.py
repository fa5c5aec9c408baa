"""The processes of a session, and the scalars of each by sample. There may be thousands that ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from memtui.core.samples import Process
from memtui.session.columns import columns_of
from memtui.session.connection import SessionFile, one_of
from memtui.session.file_format import row_id, row_ids, split_row_id
from memtui.session.tables.samples import ProcessSampleRecord
from memtui.session.validation import MAX_PID, MAX_PROCESS

ProcessSample = dict[str, Any]
"""The scalars of one process in one sample, by the names of the schema."""
_BATCH_ROWS = 4096


class ProcessReader:
    """Reads which processes there were. The methods raise SessionError."""

    def __init__(self, file: SessionFile) -> None:
        self._file = file

    def all(self) -> list[Process]:
        """Return every process of the tree, every exec a new one, in the order they appeared."""
        return self._where("1 ORDER BY key")

    def after(self, key: int) -> list[Process]:
        """Return the processes after a key, some thousands at most; empty where there are no more."""
        return self._where(f"key > ? ORDER BY key LIMIT {_BATCH_ROWS}", key)

    def with_keys(self, keys: Iterable[int]) -> list[Process]:
        """Return the processes with these keys."""
        some = (self._where(f"{which} ORDER BY key", *values) for which, values in one_of("key", keys))
        return [process for part in some for process in part]

    def present(self, first_sample: int, last_sample: int) -> set[int]:
        """Return the keys of the processes that ran in an inclusive range of samples."""
        query = "SELECT DISTINCT id & 1048575 FROM process_sample WHERE id >= ? AND id < ?"
        low, high = row_id(max(first_sample, 0), 0), row_id(max(last_sample, -1) + 1, 0)
        return {key for (key,) in self._file.query(query, "i", low, high)}

    def samples(self, first_sample: int, last_sample: int) -> list[ProcessSample]:
        """Return each process's scalars in a closed range of samples, by the schema's names.

        ``sample`` and ``process`` are there in place of ``id``.
        """
        samples, names = [], columns_of(ProcessSampleRecord)
        low, high = row_ids(first_sample, last_sample)
        for row in self._file.rows(ProcessSampleRecord, "WHERE id >= ? AND id < ? ORDER BY id", low, high):
            values = dict(zip(names, row, strict=True))
            values["sample"], values["process"] = split_row_id(values.pop("id"))
            samples.append(values)
        return samples

    def _where(self, condition: str, *values: int) -> list[Process]:
        processes = self._file.records(Process, f"WHERE {condition}", *values)
        if processes and (processes[-1].key >= MAX_PROCESS or max(process.pid for process in processes) > MAX_PID):
            raise self._file.damaged("a process has no possible number")
        return processes
