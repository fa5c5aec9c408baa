"""State that the recorder keeps for one address space of a process, and the records of each of its windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from memtui.analysis.access_counts import TouchLevels
from memtui.analysis.reuse_burst import part_distances
from memtui.analysis.reuse_distance import ReuseSample, ReuseTracker
from memtui.analysis.row_states import RowStates
from memtui.analysis.vma_filter import Filter
from memtui.analysis.vma_merger import RangeMerger, RangeOverTime
from memtui.analysis.working_set import bytes_by_range
from memtui.analysis.working_set import select as select_pages
from memtui.core.page_set import CODEC_ZLIB, PageSet
from memtui.core.samples import ProcessWindow, Status, Vma, VmaSizes, VmaTable
from memtui.session.blobs import UNKNOWN_BYTES, encode_burst, encode_pairs, encode_reuse, encode_touch_sum
from memtui.session.file_format import row_id
from memtui.session.tables.reuse import ReuseBurstRecord, ReuseRecord
from memtui.session.tables.samples import PageSetRecord, ProcessSampleRecord, ResidentSetRecord, TouchSumRecord
from memtui.session.tables.vmas import (
    VmaAliasRecord,
    VmaPrivateRecord,
    VmaRecord,
    VmaRssRecord,
    VmaSharedRecord,
    VmaStateRecord,
    VmaWssRecord,
)
from memtui.session.writer import SessionWriter

PairsRecord = type[VmaWssRecord | VmaSharedRecord | VmaRssRecord | VmaPrivateRecord]
_STILL_MAPPED = 1 << 40  # above every sample


class ObservedProcess:
    """Takes the tables and windows of one process."""

    def __init__(
        self,
        key: int,
        writer: SessionWriter,
        keep: Filter,
        row_numbers: Iterator[int],
        *,
        keep_resident: bool = False,
    ) -> None:
        """Begin.

        Args:
            key: of the process in the session.
            writer: of the session.
            keep: which ranges are stored.
            row_numbers: of VMA rows, unique in the session.
            keep_resident: store which pages of these ranges are resident, too.
        """
        self._keep_resident = keep_resident
        self._key, self._writer, self._filter, self._row_numbers = key, writer, keep, row_numbers
        self._starts = self._ends = np.empty(0, np.uint64)
        self._rows = np.empty(0, np.int64)  # vma row of each vma
        self._included = np.empty(0, bool)
        self._merger, self._reuse, self._touches = RangeMerger(), ReuseTracker(), TouchLevels()
        self._reasons: dict[int, tuple[Vma, str | None]] = {}  # each VMA of the newest table by start, its filter term
        self._row_ids: dict[int, int] = {}  # id of the merger -> id in the session
        self._states = RowStates()
        self._states_written: dict[int, int] = {}  # id of the merger -> how many states of it the session has
        self._written: dict[
            int, tuple[RangeOverTime, str]
        ] = {}  # id in the session -> row as last written, and its filter term
        self._last_sample = 0
        self._before: PageSet | None = None  # what is stored of the window before; None: not known

    def add_table(self, table: VmaTable) -> None:
        """Store a new table of mappings."""
        self._starts = np.array([v.start for v in table.vmas], np.uint64)
        self._ends = np.array([v.end for v in table.vmas], np.uint64)
        previous = self._reasons
        reasons = []
        for vma in table.vmas:
            before, reason = previous.get(vma.start, (None, None))
            reasons.append(reason if before == vma else self._filter.leaves_out(vma))
        self._reasons = {v.start: (v, reason) for v, reason in zip(table.vmas, reasons, strict=True)}
        self._included = np.array([r is None for r in reasons], bool)
        merged = self._merger.assign(table.vmas, table.sample).tolist()
        self._rows = np.array([self._session_row(row) for row in merged], np.int64)
        merged_rows = {old: new for old, new in self._merger.aliases.items() if old in self._row_ids}
        table_rows = zip(merged, table.vmas, reasons, strict=True)
        parts = ((row, v.end - v.start, v.perms, reason, v.name) for row, v, reason in table_rows)
        self._write_states(merged_rows, self._states.update(table.sample, parts, merged_rows))
        aliases = [(self._row_ids.pop(old), self._session_row(new)) for old, new in merged_rows.items()]
        for number, _ in aliases:
            self._written.pop(number, None)
        self._merger.aliases.clear()  # every row in it has its new row by now
        self._writer.insert(VmaAliasRecord(*alias) for alias in aliases)
        self._writer.delete(VmaRecord, (old for old, _ in aliases))
        self._write_rows(_STILL_MAPPED)

    def write_ended(self) -> None:
        """Store until when the ranges of an ended process were mapped."""
        self._write_rows(self._last_sample)

    def without_strays(self, window: ProcessWindow) -> ProcessWindow:
        """Return the window without pages outside the table: a target that ran on may have mapped memory since."""
        if window.status != Status.APPROXIMATE or window.pages is None:
            return window
        return replace(window, pages=self._select(window.pages, np.ones(len(self._starts), bool)))

    def add_window(self, sample: int, window: ProcessWindow) -> tuple[int | None, ReuseSample | None]:
        """Store the process's part of a window: (bytes that the filter includes, their reuse distances)."""
        self._last_sample = sample
        key = row_id(sample, self._key)
        stored = reuse = None
        if window.pages is None:
            self._before = None
        if window.pages is not None:
            self._store_by_vma(VmaWssRecord, key, window.pages, window.vma_wss_bytes or (), window.scale)
            included = self._stored(window.pages)
            self._writer.insert([PageSetRecord(key, CODEC_ZLIB, included.encode())])
            self._touches.tally.add(included)
            stored = round(included.size_bytes * (window.scale or 1))
            if window.scale is None:  # windows of random parts of the memory show no reuse
                reuse = self._reuse.touch(included)
                self._writer.insert([ReuseRecord(key, encode_reuse(reuse))])
                self._store_burst(key, window)
                self._before = included
        elif window.vma_wss_bytes is not None:
            self._store_counted(VmaWssRecord, key, window.vma_wss_bytes)
        if window.vma_shared_bytes:
            self._store_counted(VmaSharedRecord, key, window.vma_shared_bytes)
        if window.resident is not None:
            self._store_by_vma(VmaRssRecord, key, window.resident, scale=window.scale)
            if self._keep_resident:
                self._writer.insert([ResidentSetRecord(key, self._stored(window.resident).encode())])
        elif window.vma_rss_bytes is not None:
            self._store_counted(VmaRssRecord, key, window.vma_rss_bytes)
        if window.vma_private_bytes is not None:
            self._store_counted(VmaPrivateRecord, key, window.vma_private_bytes)
        self._writer.insert_from(ProcessSampleRecord, window, id=key, stored_bytes=stored)
        return stored, reuse

    def _store_burst(self, key: int, window: ProcessWindow) -> None:
        """Store the distances of the parts of a window that was cut, all but the first."""
        if window.part_lengths_ns and window.parts:
            whole = self._included.all()
            parts = [part if whole else self._select(part, self._included) for part in window.parts]
            distances = encode_burst(part_distances(self._before, parts, window.part_lengths_ns))
            self._writer.insert([ReuseBurstRecord(key, len(parts), window.part_lengths_ns[-1], distances)])

    def checkpoint(self, sample: int) -> None:
        """Store the sums of accessed pages that end with a sample."""
        key = row_id(sample, self._key)
        sums = self._touches.end(sample + 1)
        self._writer.insert(TouchSumRecord(level, key, encode_touch_sum(touched)) for level, touched in sums)

    def store_rest(self, sample: int) -> None:
        """Store the sums of all levels as they stand: nothing is added to them any more."""
        key = row_id(sample, self._key)
        sums = self._touches.end_all()
        self._writer.insert(TouchSumRecord(level, key, encode_touch_sum(touched)) for level, touched in sums)

    def _stored(self, pages: PageSet) -> PageSet:
        """Return the pages that the filter includes."""
        return pages if self._included.all() else self._select(pages, self._included)

    def _select(self, pages: PageSet, keep: np.ndarray) -> PageSet:
        return select_pages(pages, self._starts, self._ends, keep)

    def _write_rows(self, last_sample: int) -> None:
        """Bring the rows up to date; one that is still mapped has no last sample."""
        for row in self._merger.rows(last_sample):
            number, left_out = self._session_row(row.id), self._states.left_out(row.id)
            if self._written.get(number) != (row, left_out):
                self._written[number] = row, left_out
                last = None if row.last_sample == _STILL_MAPPED else row.last_sample
                self._writer.insert_from(
                    VmaRecord, row, id=number, process=self._key, last_sample=last, filtered=left_out
                )

    def _write_states(self, merged: Mapping[int, int], changed: Iterable[int]) -> None:
        """Write the states of rows over time, of rows that were not always the same."""
        other = [row for row in (*merged, *merged.values()) if self._states_written.pop(row, 0)]
        self._writer.delete(VmaStateRecord, map(self._session_row, other), by="row")
        for row in changed:
            states, written = self._states.history(row), self._states_written.get(row, 0)
            number = self._session_row(row) if written or len(states) > 1 else 0
            if written > len(states):  # the last one was of an earlier table of the same window
                self._writer.delete(VmaStateRecord, [number], by="row")
                written = self._states_written[row] = 0
            if len(states) > 1:
                for state in states[max(written - 1, 0) :]:
                    self._writer.insert_from(VmaStateRecord, state, row=number, filtered=state.left_out)
                self._states_written[row] = len(states)

    def _session_row(self, merger_row: int) -> int:
        number = self._row_ids.get(merger_row)
        if number is None:
            number = self._row_ids[merger_row] = next(self._row_numbers)
        return number

    def _store_by_vma(
        self, record: PairsRecord, key: int, pages: PageSet, unseen: VmaSizes = (), scale: float | None = None
    ) -> None:
        """Store sizes by VMA. ``unseen``: VMAs whose pages cannot be seen; ``scale``: see ``ProcessWindow``."""
        sizes = bytes_by_range(pages, self._starts, self._ends)
        if scale is not None:
            sizes = np.rint(sizes * scale).astype(np.int64)
        used = np.flatnonzero(sizes)
        if unseen:
            counted = zip(self._starts[used].tolist(), sizes[used].tolist(), strict=True)
            self._store_counted(record, key, (*counted, *unseen))
            return
        rows, index = np.unique(self._rows[used], return_inverse=True)
        summed = np.zeros(len(rows), np.int64)
        np.add.at(summed, index, sizes[used])
        self._writer.insert([record(key, encode_pairs(rows, summed))])

    def _store_counted(self, record: PairsRecord, key: int, sizes: VmaSizes) -> None:
        """Store sizes by the start of their VMA. A row whose size cannot be measured has -1."""
        summed: dict[int, int] = {}
        row_of = dict(zip(self._starts.tolist(), self._rows.tolist(), strict=True))
        for start, size in sizes:
            row = row_of.get(start)  # none: mapped in the moment between the two tables
            if row is not None:
                sum_bytes = summed.get(row, UNKNOWN_BYTES)
                summed[row] = sum_bytes if size is None else max(sum_bytes, 0) + size
        rows = sorted(summed)
        values = [summed[row] for row in rows]
        self._writer.insert([record(key, encode_pairs(np.array(rows, np.int64), np.array(values, np.int64)))])
