"""The scalars of all samples of a session: read whole, or some of very many, and then as the session grows."""

from __future__ import annotations

from memtui.session.connection import Row, SessionFile
from memtui.session.sample_arrays import SampleArrays, SampleArraysBuilder
from memtui.session.tables.samples import SampleRecord
from memtui.session.validation import MAX_SAMPLE

_MANY, _SPREAD, _LAST = 4096, 1024, 128  # above _MANY samples, _SPREAD of them and the _LAST ones are read at first
_BATCH_ROWS = 8192  # rows that are Python objects together


class SampleReader:
    """Keeps the table of samples up to date. The methods raise SessionError."""

    def __init__(self, file: SessionFile) -> None:
        self._file = file
        self._builder = SampleArraysBuilder()
        self.table: SampleArrays = self._builder.table  # those that were read
        self.partial = False  # whether only some of them were

    def refresh(self) -> bool:
        """Read the samples committed since, and all where only some were read; return True when there are any."""
        if self.partial:
            self._builder = SampleArraysBuilder()
        rest = f"WHERE sample > ? ORDER BY sample LIMIT {_BATCH_ROWS}"
        any_new = False
        while rows := self._file.rows(SampleRecord, rest, self._builder.table.newest):
            self._add(rows)
            any_new = True
            if len(rows) < _BATCH_ROWS:
                break
        self.partial = False
        return any_new

    def glance(self) -> bool:
        """Read some of very many samples; return False where there are fewer."""
        # Each in a query of its own: SQLite scans the whole table for both at once.
        statement = "SELECT (SELECT min(sample) FROM sample), (SELECT max(sample) FROM sample)"
        ((first, last),) = self._file.query(statement, "II")
        if first is None or last - first < _MANY:
            return False
        wanted = [*range(first, last - _LAST, (last - first) // _SPREAD), *range(last - _LAST, last + 1)]
        numbers = ", ".join(map(str, wanted))
        self._add(self._file.rows(SampleRecord, f"WHERE sample IN ({numbers}) ORDER BY sample"))
        self.partial = True
        return True

    def _add(self, rows: list[Row]) -> None:
        if rows and rows[-1][0] >= MAX_SAMPLE:
            raise self._file.damaged("a sample has no possible number")
        try:
            self.table = self._builder.add(rows)
        except ValueError as error:
            raise self._file.damaged(str(error)) from None
