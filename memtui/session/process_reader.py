"""The processes of a session: all of them, or the few that are asked for. There may be thousands that ended."""

from __future__ import annotations

from collections.abc import Iterable

from memtui.core.samples import Process
from memtui.session.file_format import row_id
from memtui.session.tracer_reader import ToldReader
from memtui.session.validation import MAX_PID, MAX_PROCESS

_AT_ONCE = 4096


class ProcessReader(ToldReader):
    """The part of a session that tells who was there."""

    def processes(self) -> list[Process]:
        """Every process of the tree, every exec a new one, in the order they appeared."""
        return self._processes("1 ORDER BY key")

    def processes_after(self, key: int) -> list[Process]:
        """Return the next ones behind a key, some thousands at most; empty where there are no more."""
        return self._processes(f"key > ? ORDER BY key LIMIT {_AT_ONCE}", key)

    def processes_of(self, keys: Iterable[int]) -> list[Process]:
        """Those with these keys."""
        return self._processes(f"key IN ({', '.join(map(str, sorted(keys)))}) ORDER BY key")

    def processes_in(self, first_sample: int, last_sample: int) -> set[int]:
        """Keys of the processes that were there in an inclusive range of samples."""
        query = "SELECT DISTINCT id & 1048575 FROM process_sample WHERE id >= ? AND id < ?"
        low, high = row_id(max(first_sample, 0), 0), row_id(max(last_sample, -1) + 1, 0)
        return {key for (key,) in self._all(query, "i", low, high)}

    def _processes(self, which: str, *values: int) -> list[Process]:
        processes = self._records(Process, f"WHERE {which}", *values)
        if processes and (processes[-1].key >= MAX_PROCESS or max(process.pid for process in processes) > MAX_PID):
            raise self._damaged("a process has no possible number")
        return processes
