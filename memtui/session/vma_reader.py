"""The VMAs of a session: merged rows, and their accessed, resident and shared bytes by sample."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.row_states import RowState
from memtui.session.blobs import decode_pairs
from memtui.session.connection import Row, SessionFile, one_of
from memtui.session.file_format import row_id, row_ids, split_row_id
from memtui.session.filter_correction import FilterCorrection
from memtui.session.page_reader import PageReader
from memtui.session.process_reader import ProcessReader
from memtui.session.row_cache import Pairs, RowCache, Rows
from memtui.session.sample_reader import SampleReader
from memtui.session.tables.vmas import VmaPrivateRecord, VmaRecord, VmaSharedRecord, VmaStateRecord, VmaWssRecord
from memtui.session.validation import check_vma
from memtui.session.vma_aliases import VmaAliases
from memtui.session.vma_row import VmaRow
from memtui.session.vma_row_cache import VmaRowCache

_FEW_ROWS = 1000  # of VMAs
_MAX_PAIR_BYTES = 64 << 20  # of one answer about VMAs
# Resident bytes are recorded about once a second: those of a running process are not older than this.
_RESIDENT_SAMPLES = 2048


class VmaReader:
    """Reads VMA rows and their sizes. The methods raise SessionError."""

    def __init__(self, file: SessionFile, samples: SampleReader, processes: ProcessReader, pages: PageReader) -> None:
        self._file, self._samples, self._processes = file, samples, processes
        self._accessed = RowCache(self._read_accessed)
        self._resident: tuple[int, dict[int, tuple[int, Pairs]]] = -1, {}  # until which sample; by process
        self._aliases = VmaAliases(file)
        self._filters = FilterCorrection(samples, pages)
        self._cache = VmaRowCache(self._rows_where, self._newest_row, self._spans_after)

    def refresh(self) -> None:
        """Forget what may have changed since the last answer."""
        self._aliases.refresh()

    def rows(self, process: int | None = None) -> list[VmaRow]:
        """Return the merged VMAs, of one process or of all, by process and address."""
        return self._rows_where("? IS NULL OR vma.process = ?", process, process)

    def rows_of(self, processes: Collection[int]) -> list[VmaRow]:
        """Return the rows of some processes, in the same order. The next call reads only what may have changed."""
        return self._cache.of(processes, self._samples.table.newest)

    def wss(
        self, first_sample: int, last_sample: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return accessed bytes by VMA row in an inclusive range of samples: (samples, row ids, bytes), each i8[n].

        Bytes of -1 (``blobs.UNKNOWN_BYTES``): the tracker cannot know them.
        """
        final = row_id(self._samples.table.newest + 1, 0)
        rows = self._accessed.between(*row_ids(first_sample, last_sample), final)
        if not rows:
            none = np.empty(0, np.int64)
            return none, none, none
        samples = np.repeat([split_row_id(row)[0] for row, _ in rows], [len(ids) for _, (ids, _) in rows])
        ids = self._aliases.resolve(np.concatenate([ids for _, (ids, _) in rows]))
        return samples.astype(np.int64), ids, np.concatenate([values for _, (_, values) in rows])

    def rss(self, sample: int) -> dict[int, int]:
        """Return resident bytes by VMA row, the newest known at or before a sample.

        Rows of processes without any are left out.
        """
        until, by_process = self._resident
        least = max(sample - _RESIDENT_SAMPLES, 0)
        if not least <= until <= sample:
            until, by_process = least - 1, {}
        by_process = {process: resident for process, resident in by_process.items() if resident[0] >= least}
        # The newest of each process. Following a live session, these are the few since the last answer.
        rows = self._file.query(
            "SELECT max(id), data FROM vma_rss WHERE id >= ? AND id < ? GROUP BY id & 1048575",
            "ib",
            *row_ids(until + 1, sample),
        )
        for (row, _), pairs in zip(rows, self._decoded(rows), strict=True):
            newest_sample, process = split_row_id(row)
            by_process[process] = newest_sample, pairs
        self._resident = sample, by_process
        running = self._processes.present(sample, sample) or by_process.keys()  # ended processes have nothing resident
        return self._by_row(pairs for process, (_, pairs) in by_process.items() if process in running)

    def shared(self, sample: int) -> dict[int, int]:
        """Return by VMA row the part of its accessed bytes that other processes accessed, too; only where above 0.

        The process's scalars (``ProcessReader.samples``) show whether that was measured.
        """
        rows = self._file.rows(VmaSharedRecord, "WHERE id >= ? AND id < ?", *row_ids(sample, sample))
        return self._by_row(self._decoded(rows))

    def private(self, first_sample: int, last_sample: int) -> list[tuple[int, int, dict[int, int]]]:
        """Return the readings of bytes by VMA row that no other process maps, in an inclusive range of samples.

        Each is (sample, process, bytes by row), in the order of time; rows without any are left out.
        """
        rows = self._file.rows(
            VmaPrivateRecord, "WHERE id >= ? AND id < ? ORDER BY id", *row_ids(first_sample, last_sample)
        )
        readings = zip(rows, self._decoded(rows), strict=True)
        return [(*split_row_id(row), self._by_row([pairs])) for (row, _), pairs in readings]

    def _rows_where(self, condition: str, *values: int | None) -> list[VmaRow]:
        self._aliases.refresh()  # what was merged since the last answer belongs to these
        columns, kinds = self._file.selection(VmaRecord)
        statement = (
            f"SELECT {columns}, process.pid FROM vma JOIN process ON process.key = vma.process WHERE {condition} "
            "ORDER BY vma.process, vma.start"
        )
        pairs = [(VmaRecord(*row[:-1]), row[-1]) for row in self._file.query(statement, f"{kinds}i", *values)]
        try:
            for vma, _ in pairs:
                check_vma(vma.start, vma.end, vma.first_sample, vma.last_sample)
        except ValueError as error:
            raise self._file.damaged(str(error)) from None
        newest, states = max(self._samples.table.newest, 0), self._states([vma.id for vma, _ in pairs])
        rows = [VmaRow.of(vma, pid, newest, states.get(vma.id, ())) for vma, pid in pairs]
        return rows if self._file.has(VmaStateRecord) else self._filters.corrected(rows)

    def _newest_row(self) -> tuple[int, int]:
        """Return the highest number of a row, and of a process that has any."""
        statement = "SELECT coalesce(max(id), 0), coalesce(max(process), 0) FROM vma"
        ((row, process),) = self._file.query(statement, "ii")
        return row, process

    def _spans_after(self, row: int) -> list[tuple[int, int, int]]:
        """Return (process, first row, last row) of the rows after a number."""
        statement = "SELECT process, min(id), max(id) FROM vma WHERE id > ? GROUP BY process"
        return [(process, first, last) for process, first, last in self._file.query(statement, "iii", row)]

    def _states(self, ids: Sequence[int]) -> dict[int, tuple[RowState, ...]]:
        """Return the states of rows over the windows, of rows that changed. Few rows are selected by number."""
        conditions = one_of("row", ids) if len(ids) <= _FEW_ROWS else [("1", [])]
        parts = (
            self._file.records(VmaStateRecord, f"WHERE {which} ORDER BY row, sample", *of) for which, of in conditions
        )
        records = [record for part in parts for record in part]
        return {
            row: tuple(RowState(state.sample, state.perms, state.filtered, state.name) for state in states)
            for row, states in groupby(records, key=lambda record: record.row)
        }

    def _read_accessed(self, low: int, high: int) -> Rows:
        rows = self._file.rows(VmaWssRecord, "WHERE id >= ? AND id < ? ORDER BY id", low, high)
        return list(zip((row for row, _ in rows), self._decoded(rows), strict=True))

    def _decoded(self, rows: list[Row]) -> list[Pairs]:
        """Return the decoded blobs of (row key, blob)."""
        decoded, size_bytes = [], 0
        for row, data in rows:
            try:
                pairs = decode_pairs(data)
            except ValueError as error:
                raise self._file.damaged(f"ranges of sample {split_row_id(row)[0]}: {error}") from None
            decoded.append(pairs)
            size_bytes += pairs[0].nbytes + pairs[1].nbytes
            if size_bytes > _MAX_PAIR_BYTES:
                raise self._file.damaged(f"its ranges unpack to more than {_MAX_PAIR_BYTES} bytes")
        return decoded

    def _by_row(self, pairs: Iterable[Pairs]) -> dict[int, int]:
        """Return the sums by VMA row."""
        sums: dict[int, int] = {}
        for ids, values in pairs:
            for row, value in zip(self._aliases.resolve(ids).tolist(), values.tolist(), strict=True):
                sums[row] = sums.get(row, 0) + value
        return sums
