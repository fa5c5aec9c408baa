"""The accessed pages of a session: page sets by sample and process, and their sums over many samples."""

from __future__ import annotations

from bisect import bisect_right

from memtui.analysis.access_counts import SUMMED_SAMPLES, TouchSum, add_up
from memtui.core.page_set import PageSet
from memtui.session.blobs import decode_touch_sum
from memtui.session.connection import SessionFile
from memtui.session.file_format import row_id, row_ids, split_row_id
from memtui.session.tables.samples import PageSetRecord, ResidentSetRecord, TouchSumRecord

_BATCH_SUMS = 64  # sums of accesses that are in memory together


class PageReader:
    """Reads page sets. The methods raise SessionError, also on damage."""

    def __init__(self, file: SessionFile) -> None:
        self._file = file

    def page_set(self, sample: int, process: int) -> PageSet | None:
        """Return the accessed pages that the filter included; None when none are stored."""
        return self._set(PageSetRecord, sample, process)

    def resident_set(self, sample: int, process: int) -> PageSet | None:
        """Return the resident pages at the end of a sample; None when they are not stored."""
        if not self._file.has(ResidentSetRecord):
            return None
        return self._set(ResidentSetRecord, sample, process)

    def _set(self, record: type, sample: int, process: int) -> PageSet | None:
        rows = self._file.rows(record, "WHERE id = ?", row_id(sample, process), names=["data"])
        try:
            return PageSet.decode(rows[0][0]) if rows else None
        except ValueError as error:
            raise self._file.damaged(f"sample {sample}: {error}") from None

    def resident_samples(self, process: int) -> list[int]:
        """Return the samples at whose end the resident pages of a process are stored, rising."""
        if not self._file.has(ResidentSetRecord):
            return []
        keys = self._file.rows(ResidentSetRecord, "ORDER BY id", names=["id"])
        return [sample for sample, key in (split_row_id(row) for (row,) in keys) if key == process]

    def processes(self, sample: int) -> frozenset[int]:
        """Return the processes of which page sets of a sample are stored."""
        rows = self._file.rows(PageSetRecord, "WHERE id >= ? AND id < ?", *row_ids(sample, sample), names=["id"])
        return frozenset(split_row_id(row[0])[1] for row in rows)

    def stored_sample(self, first_sample: int, last_sample: int) -> int | None:
        """Return the first sample of an inclusive range whose page sets are stored: a downsampled file lacks some."""
        rest = "WHERE id >= ? AND id < ? ORDER BY id LIMIT 1"
        rows = self._file.rows(PageSetRecord, rest, *row_ids(first_sample, last_sample), names=["id"])
        return split_row_id(rows[0][0])[0] if rows else None

    def sums(self, first_sample: int, last_sample: int) -> dict[int, TouchSum]:
        """Return all page sets added up, by process, as far as a stored sum of them ends in an inclusive range.

        The largest sums that are not larger than the range are taken. The result is empty where none ends there, even
        if pages were accessed.
        """
        span = last_sample - first_sample + 1
        for level in range(bisect_right(SUMMED_SAMPLES, span) - 1, -1, -1):
            if sums := self.sums_of_level(level, first_sample, last_sample):
                return sums
        return {}

    def sums_of_level(self, level: int, first_sample: int, last_sample: int) -> dict[int, TouchSum]:
        """Return the sums of one level that end in an inclusive range of samples, added up by process."""
        low, high = row_ids(first_sample, last_sample)
        rest = f"WHERE level = ? AND id >= ? AND id < ? ORDER BY id LIMIT {_BATCH_SUMS}"
        sums: dict[int, TouchSum] = {}
        while rows := self._file.rows(TouchSumRecord, rest, level, low, high, names=["id", "data"]):
            parts: dict[int, list[TouchSum]] = {}
            for row, data in rows:
                sample, process = split_row_id(row)
                before = [sums[process]] if process in sums else []
                try:
                    parts.setdefault(process, before).append(decode_touch_sum(data))
                except ValueError as error:
                    raise self._file.damaged(f"touches up to sample {sample}: {error}") from None
            sums |= {process: add_up(some) for process, some in parts.items()}
            low = self._file.key_after(rows, low)
        return sums
