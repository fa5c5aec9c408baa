"""Reads a session: whole, growing, or left behind by a recorder that was killed."""

from __future__ import annotations

import platform
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.access_counts import SUMMED_SAMPLES, TouchSum, add_up
from memtui.analysis.fast_numpy import ranked
from memtui.analysis.reuse_distance import ReuseSample
from memtui.analysis.reuse_histogram import ReuseHistogram
from memtui.analysis.row_states import RowState
from memtui.core.page_set import PageSet
from memtui.core.samples import End, Event, GpuMemory, Hello, PowerReading
from memtui.session.blobs import decode_pairs, decode_reuse, decode_touch_sum
from memtui.session.file_format import SessionError, row_id, size_on_disk, split_row_id
from memtui.session.held_vmas import HeldVmas
from memtui.session.process_reader import ProcessReader
from memtui.session.row_cache import Pairs, RowCache, Rows
from memtui.session.sample_table import SampleTableBuilder
from memtui.session.stored_rows import StoredRows
from memtui.session.tables import (
    PageSetRecord,
    ProcessSampleRecord,
    ReuseCheckpointRecord,
    ReuseRecord,
    SampleRecord,
    TouchSumRecord,
    VmaAliasRecord,
    VmaRecord,
    VmaSharedRecord,
    VmaStateRecord,
    VmaWssRecord,
    columns_of,
)
from memtui.session.validation import MAX_INTEGER, MAX_PID, MAX_SAMPLE, check_fields, check_vma
from memtui.session.vma_row import VmaRow

_MANY, _GLANCE, _LAST = 4096, 1024, 128  # samples: more than these are glanced at; so many of them, and the last ones
_SAMPLES_AT_ONCE = 8192  # rows of scalars that are Python objects together
_REUSE_AT_ONCE = 256  # windows whose distances are in memory together
_FEW_ROWS = 1000  # of VMAs
_SUMS_AT_ONCE = 64  # sums of touches likewise
_MAX_PAIR_BYTES = 64 << 20  # of one answer about VMAs
_RESIDENT_SAMPLES = 2048  # what was resident is told about once a second: it was longer ago for nobody who is there


class SessionReader(ProcessReader):
    """One session. ``refresh`` picks up what was committed since; everything else answers from that state.

    Raises SessionError when the file is missing, foreign, truncated, newer or empty.
    """

    def __init__(self, path: Path, *, glance: bool = False) -> None:
        """Open it.

        Args:
            path: the file.
            glance: of a long session read only some of the samples, spread over all of it, and the last ones: soon is
                better than whole. ``partial`` says that it was so; ``refresh`` reads them all.
        """
        super().__init__(path)
        self._touched = RowCache(self._read_touched)
        self._resident: tuple[int, dict[int, tuple[int, Pairs]]] = -1, {}
        self._aliases: dict[int, int] | None = None  # as of the last look
        self._known_aliases: tuple[int, dict[int, int]] = 0, {}  # how many, and which
        self._stored_rows = StoredRows()
        self._held_vmas = HeldVmas(self._vma_rows, self._newest_vma)
        self.hello: Hello
        self.end: End | None = None
        self.recorder_pid = 0
        self.thinned_to_bytes: int | None = None  # the size that page sets had to make room for, if they had to
        self._growing = SampleTableBuilder()
        self.samples = self._growing.table
        self.partial = False
        self._open()
        meta = self._meta()
        if "hello" not in meta:
            self.release()
            raise SessionError(f"{path}: holds no recording yet, or its recorder died before the first sample")
        try:
            self.hello = Hello.from_dict(meta["hello"])
            check_fields(self.hello)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            self.release()
            raise SessionError(f"{path}: damaged description: {error}") from None
        if not (glance and self._glance()):
            self.refresh()

    @property
    def file_bytes(self) -> int:
        """Size on disk, with what is not folded in yet."""
        return size_on_disk(self.path)

    @property
    def alive(self) -> bool:
        """True while somebody still records it."""
        if self.end is not None or self.hello.clock.boot_id != _boot_id():
            return False
        try:
            command = Path(f"/proc/{self.recorder_pid}/cmdline").read_bytes()
        except OSError:
            return False
        return b"memtui" in command

    def refresh(self) -> bool:
        """Look for newly committed rows; True when there are any, or when the recording ended meanwhile."""
        self._aliases = None
        if self.partial:
            self._growing = SampleTableBuilder()
        rest = f"WHERE sample > ? ORDER BY sample LIMIT {_SAMPLES_AT_ONCE}"
        found = False
        while new := self._rows(SampleRecord, rest, self._growing.table.newest):
            self._take(new)
            found = True
            if len(new) < _SAMPLES_AT_ONCE:
                break
        self.partial = False
        return self._look_at_recorder() or found

    def _glance(self) -> bool:
        """Read some of very many samples; False where there are not so many."""
        # Each by itself: SQLite goes through the whole table for both at once.
        query = "SELECT (SELECT min(sample) FROM sample), (SELECT max(sample) FROM sample)"
        ((first, last),) = self._all(query, "II")
        if first is None or last - first < _MANY:
            return False
        wanted = [*range(first, last - _LAST, (last - first) // _GLANCE), *range(last - _LAST, last + 1)]
        numbers = ", ".join(map(str, wanted))
        self._take(self._rows(SampleRecord, f"WHERE sample IN ({numbers}) ORDER BY sample"))
        self._look_at_recorder()
        self.partial = True
        return True

    def _take(self, rows: list[tuple[Any, ...]]) -> None:
        if not rows:
            return
        if rows[-1][0] >= MAX_SAMPLE:
            raise self._damaged("a sample has no possible number")
        try:
            self.samples = self._growing.add(rows)
        except ValueError as error:
            raise self._damaged(str(error)) from None

    def _look_at_recorder(self) -> bool:
        """Who records it, and what became of that; True when it ended since the last look."""
        if self.end is not None:
            return False
        meta = self._meta("hello")
        pid = meta.get("recorder_pid", 0)
        if type(pid) is not int or not 0 <= pid <= MAX_PID:
            raise self._damaged("the recorder's pid is none")
        self.recorder_pid = pid
        self.thinned_to_bytes = self._read_thinned(meta.get("thinned"))
        if "end" not in meta:
            return False
        self.end = self._read_end(meta["end"])
        return True

    def _read_thinned(self, plain: Any) -> int | None:
        if plain is None:
            return None
        found = plain.get("max_bytes") if isinstance(plain, dict) else None
        if type(found) is not int or not 0 < found < MAX_INTEGER:
            raise self._damaged("the size it was thinned to is none")
        return found

    def _read_end(self, plain: Any) -> End:
        try:
            end = End(**plain)
            check_fields(end)
        except (TypeError, ValueError) as error:
            raise self._damaged(f"its end: {error}") from None
        return end

    def release_if_ended(self) -> None:
        """Let go of the file where its recording has ended and is not folded yet: that is what the recorder waits for.

        Until then it stays open: opening it takes longer than all that a screen asks of it in a second.
        """
        if self.end is not None and self._has_log:
            self.release()

    def vma_rows(self, process: int | None = None) -> list[VmaRow]:
        """Return the merged VMAs by process and address."""
        return self._vma_rows("? IS NULL OR vma.process = ?", process, process)

    def vma_rows_of(self, processes: Collection[int]) -> list[VmaRow]:
        """Those of some processes, in the same order: asked for again, only what may have changed is read."""
        return self._held_vmas.of(processes)

    def _vma_rows(self, which: str, *values: int | None) -> list[VmaRow]:
        self._aliases = None  # what was merged since the last look belongs to these
        columns, kinds = self._selection(VmaRecord)
        query = (
            f"SELECT {columns}, process.pid FROM vma JOIN process ON process.key = vma.process WHERE {which} "
            "ORDER BY vma.process, vma.start"
        )
        pairs = [(VmaRecord(*row[:-1]), row[-1]) for row in self._all(query, f"{kinds}i", *values)]
        try:
            for vma, _ in pairs:
                check_vma(vma.start, vma.end, vma.first_sample, vma.last_sample)
        except ValueError as error:
            raise self._damaged(str(error)) from None
        newest, states = max(self.samples.newest, 0), self._row_states([vma.id for vma, _ in pairs])
        rows = [VmaRow.of(vma, pid, newest, states.get(vma.id, ())) for vma, pid in pairs]
        return rows if self._has(VmaStateRecord) else self._stored_rows.marks_mended(self, rows)

    def _newest_vma(self) -> tuple[int, int]:
        """Return the highest number of a row, and of a process that has any."""
        ((row, process),) = self._all("SELECT coalesce(max(id), 0), coalesce(max(process), 0) FROM vma", "ii")
        return row, process

    def _row_states(self, ids: Sequence[int]) -> dict[int, tuple[RowState, ...]]:
        """Return what rows were in which windows, of those that changed: few are asked for by number."""
        which = f"row IN ({', '.join(map(str, ids))})" if len(ids) <= _FEW_ROWS else "1"
        records = self._records(VmaStateRecord, f"WHERE {which} ORDER BY row, sample") if ids else []
        return {
            row: tuple(RowState(state.sample, state.perms, state.filtered, state.name) for state in states)
            for row, states in groupby(records, key=lambda record: record.row)
        }

    def vma_wss(
        self, first_sample: int, last_sample: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Touched bytes by VMA row in an inclusive range of samples: (samples, row ids, bytes), each i8[n].

        Bytes of -1 (``blobs.UNKNOWN_BYTES``): the tracker cannot know them.
        """
        rows = self._touched.between(*_span(first_sample, last_sample), row_id(self.samples.newest + 1, 0))
        if not rows:
            none = np.empty(0, np.int64)
            return none, none, none
        samples = np.repeat([split_row_id(row)[0] for row, _ in rows], [len(ids) for _, (ids, _) in rows])
        ids = self._unalias(np.concatenate([ids for _, (ids, _) in rows]))
        return samples.astype(np.int64), ids, np.concatenate([values for _, (_, values) in rows])

    def vma_rss(self, sample: int) -> dict[int, int]:
        """Resident bytes by VMA row, the newest known at or before a sample. Rows of processes without any: absent."""
        until, by_process = self._resident
        least = max(sample - _RESIDENT_SAMPLES, 0)
        if not least <= until <= sample:
            until, by_process = least - 1, {}
        by_process = {process: held for process, held in by_process.items() if held[0] >= least}
        # The newest of each process. Following a live session, these are the few since the last look.
        rows = self._all(
            "SELECT max(id), data FROM vma_rss WHERE id >= ? AND id < ? GROUP BY id & 1048575",
            "ib",
            *_span(until + 1, sample),
        )
        for (row, _), pairs in zip(rows, self._pairs(rows), strict=True):
            at, process = split_row_id(row)
            by_process[process] = at, pairs
        self._resident = sample, by_process
        there = self.processes_in(sample, sample) or by_process.keys()  # what ended has nothing resident
        return self._by_row(pairs for process, (_, pairs) in by_process.items() if process in there)

    def vma_shared(self, sample: int) -> dict[int, int]:
        """By VMA row, the part of its touched bytes that other processes touched, too; without rows that have none.

        Whether that is known of a process is told by its ``process_samples``.
        """
        rows = self._rows(VmaSharedRecord, "WHERE id >= ? AND id < ?", *_span(sample, sample))
        return self._by_row(self._pairs(rows))

    def page_set(self, sample: int, process: int) -> PageSet | None:
        """Return the touched pages that filters kept.

        Return None when there are none stored. Raises SessionError on damage.
        """
        rows = self._rows(PageSetRecord, "WHERE id = ?", row_id(sample, process), names=["data"])
        try:
            return PageSet.decode(rows[0][0]) if rows else None
        except ValueError as error:
            raise self._damaged(f"sample {sample}: {error}") from None

    def processes_with_pages(self, sample: int) -> frozenset[int]:
        """Return the processes of which page sets of a sample are stored. Raises SessionError on damage."""
        rows = self._rows(PageSetRecord, "WHERE id >= ? AND id < ?", *_span(sample, sample), names=["id"])
        return frozenset(split_row_id(row[0])[1] for row in rows)

    def touch_sums(self, first_sample: int, last_sample: int) -> dict[int, TouchSum]:
        """By process, all page sets added up, as far as a stored sum of them ends in an inclusive range of samples.

        Taken are the largest sums that are not larger than the range. Empty where none ends there, which says nothing
        of what was touched.
        """
        span = last_sample - first_sample + 1
        for level in range(bisect_right(SUMMED_SAMPLES, span) - 1, -1, -1):
            if found := self.touch_sums_of(level, first_sample, last_sample):
                return found
        return {}

    def touch_sums_of(self, level: int, first_sample: int, last_sample: int) -> dict[int, TouchSum]:
        """By process, the sums of one level that end in an inclusive range of samples, added up."""
        low, high = _span(first_sample, last_sample)
        rest = f"WHERE level = ? AND id >= ? AND id < ? ORDER BY id LIMIT {_SUMS_AT_ONCE}"
        found: dict[int, TouchSum] = {}
        while rows := self._rows(TouchSumRecord, rest, level, low, high, names=["id", "data"]):
            parts = {process: [one] for process, one in found.items()}
            for row, data in rows:
                sample, process = split_row_id(row)
                try:
                    parts.setdefault(process, []).append(decode_touch_sum(data))
                except ValueError as error:
                    raise self._damaged(f"touches up to sample {sample}: {error}") from None
            found = {process: add_up(some) for process, some in parts.items()}
            low = self._next_row(rows, low)
        return found

    def stored_sample(self, first_sample: int, last_sample: int) -> int | None:
        """Return the first sample of an inclusive range whose page sets are there: in a thinned file, not all are."""
        rest = "WHERE id >= ? AND id < ? ORDER BY id LIMIT 1"
        rows = self._rows(PageSetRecord, rest, *_span(first_sample, last_sample), names=["id"])
        return split_row_id(rows[0][0])[0] if rows else None

    def process_samples(self, first_sample: int, last_sample: int) -> list[dict[str, Any]]:
        """Return each process's scalars in a closed range of samples: dicts with the schema's names and ``sample``."""
        found, names = [], columns_of(ProcessSampleRecord)
        for row in self._rows(
            ProcessSampleRecord, "WHERE id >= ? AND id < ? ORDER BY id", *_span(first_sample, last_sample)
        ):
            values = dict(zip(names, row, strict=True))
            values["sample"], values["process"] = split_row_id(values.pop("id"))
            found.append(values)
        return found

    def reuse_between(self, first_sample: int, last_sample: int) -> list[tuple[int, int, ReuseSample]]:
        """Exact reuse distances of an inclusive range of samples: (sample, process, distances)."""
        return list(self.iterate_reuse(first_sample, last_sample))

    def iterate_reuse(self, first_sample: int, last_sample: int) -> Iterator[tuple[int, int, ReuseSample]]:
        """``reuse_between`` for any number of samples: a part of them is in memory at a time."""
        rest = f"WHERE id >= ? AND id < ? ORDER BY id LIMIT {_REUSE_AT_ONCE}"
        low, high = _span(first_sample, last_sample)
        while rows := self._rows(ReuseRecord, rest, low, high):
            for row, data in rows:
                sample, process = split_row_id(row)
                try:
                    # A window has one distance for every earlier window and page size, and no more.
                    reuse = decode_reuse(data, 3 * (self.samples.newest + 1))
                except ValueError as error:
                    raise self._damaged(f"reuse distances of sample {sample}: {error}") from None
                yield sample, process, reuse
            low = self._next_row(rows, low)

    def reuse_until(self, sample: int) -> ReuseHistogram:
        """Return the histogram of all windows up to and including ``sample``: the checkpoint before it and the rest."""
        rows = self._rows(ReuseCheckpointRecord, "WHERE sample <= ? ORDER BY sample DESC LIMIT 1", sample)
        try:
            histogram = ReuseHistogram.from_bytes(rows[0][1]) if rows else ReuseHistogram()
        except ValueError as error:
            raise self._damaged(str(error)) from None
        for _, _, reuse in self.iterate_reuse(rows[0][0] + 1 if rows else 0, sample):
            histogram.add(reuse)
        return histogram

    def power(self, first_ns: int, last_ns: int) -> list[PowerReading]:
        """Return the readings of a half-open time range. An absent source says so once, when that is found."""
        return self._records(PowerReading, "WHERE t_ns >= ? AND t_ns < ? ORDER BY t_ns", first_ns, last_ns)

    def gpu_memory(self, first_ns: int, last_ns: int) -> list[GpuMemory]:
        """Return what processes held on GPUs, in a half-open time range: one a change, which holds until the next."""
        return self._records(GpuMemory, "WHERE t_ns >= ? AND t_ns < ? ORDER BY t_ns, process", first_ns, last_ns)

    def gpu_memory_at(self, t_ns: int) -> dict[int, GpuMemory]:
        """Return what each process held on GPUs at a moment, by its key.

        Processes that had not been asked for by then are left out.
        """
        columns, kinds = self._selection(GpuMemory)
        query = (
            f"SELECT {columns} FROM process JOIN gpu_memory ON gpu_memory.process = process.key AND gpu_memory.t_ns = "
            "(SELECT max(t_ns) FROM gpu_memory WHERE process = process.key AND t_ns <= ?)"
        )
        return {memory.process: memory for memory in (GpuMemory(*row) for row in self._all(query, kinds, t_ns))}

    def events(self, first_ns: int, last_ns: int) -> list[Event]:
        """Events of a half-open time range."""
        return self._records(Event, "WHERE t_ns >= ? AND t_ns < ? ORDER BY t_ns", first_ns, last_ns)

    def _next_row(self, rows: list[tuple[Any, ...]], low: int) -> int:
        """Return the key behind a part of an answer in the order of its keys, which began at ``low``."""
        if rows[-1][0] < low:
            raise self._damaged("its rows are not in order")
        return int(rows[-1][0]) + 1

    def _pairs(self, rows: list[tuple[Any, ...]]) -> list[Pairs]:
        """Return the decoded blobs of (row key, pairs)."""
        found, size_bytes = [], 0
        for row, data in rows:
            found.append(self._decoded(row, data))
            size_bytes += _nbytes(found[-1])
            if size_bytes > _MAX_PAIR_BYTES:
                raise self._damaged(f"its ranges unpack to more than {_MAX_PAIR_BYTES} bytes")
        return found

    def _read_touched(self, low: int, high: int) -> Rows:
        rows = self._rows(VmaWssRecord, "WHERE id >= ? AND id < ? ORDER BY id", low, high)
        return list(zip((row for row, _ in rows), self._pairs(rows), strict=True))

    def _decoded(self, row: int, data: bytes) -> Pairs:
        try:
            return decode_pairs(data)
        except ValueError as error:
            raise self._damaged(f"ranges of sample {split_row_id(row)[0]}: {error}") from None

    def _by_row(self, pairs: Iterable[Pairs]) -> dict[int, int]:
        """Return the sums by VMA row."""
        found: dict[int, int] = {}
        for ids, values in pairs:
            for row, value in zip(self._unalias(ids).tolist(), values.tolist(), strict=True):
                found[row] = found.get(row, 0) + value
        return found

    def _read_aliases(self) -> dict[int, int]:
        """Which rows were merged into which. None is ever taken back: where none is new, nothing is read."""
        count, known = self._all("SELECT count(*) FROM vma_alias", "i")[0][0], self._known_aliases
        if count != known[0]:
            known = self._known_aliases = count, dict(self._rows(VmaAliasRecord, "", names=["id", "row"]))
        return known[1]

    def _unalias(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Replace ids of merged rows by the row that took them in."""
        if self._aliases is None:
            self._aliases = self._read_aliases()
        aliases = self._aliases
        if not aliases:
            return ids

        def follow(row: int) -> int:
            way = []
            while row in aliases:
                way.append(row)
                row = aliases[row]
                if len(way) > len(aliases):
                    raise self._damaged("ranges were merged in a circle")
            aliases.update(dict.fromkeys(way[:-1], row))  # the next one goes straight there
            return row

        values, place = ranked(ids)
        return np.array([follow(int(row)) for row in values], np.int64)[place]


def _nbytes(pairs: Pairs) -> int:
    return pairs[0].nbytes + pairs[1].nbytes


def _span(first_sample: int, last_sample: int) -> tuple[int, int]:
    return row_id(first_sample, 0), row_id(last_sample + 1, 0)


@cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()  # no Linux: what is recorded elsewhere is never alive here
