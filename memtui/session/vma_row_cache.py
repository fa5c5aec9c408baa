"""VMA rows of the processes on the screen: of a growing session only what may have changed is read again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from memtui.session.connection import one_of
from memtui.session.vma_row import VmaRow

_MOST_SPANS = 1024  # of processes: those of the last minute of a program that starts twenty a second


class VmaRowCache:
    """Caches rows by process. The rows of a process that ended, and is no longer requested, are dropped.

    Finding the rows of a process scans those of the whole session, of which there may be millions. So it is noted where
    the rows of new processes lie as they come; a program may start twenty processes a second, most of which are never
    requested.
    """

    def __init__(
        self,
        read: Callable[..., list[VmaRow]],
        newest: Callable[[], tuple[int, int]],
        spans: Callable[[int], list[tuple[int, int, int]]],
    ) -> None:
        """Begin.

        Args:
            read: returns the rows that a condition in SQL is true of.
            newest: returns the highest number of a row, and of a process that has any; called once, as it scans all
                rows.
            spans: returns (process, first row, last row) of the rows after a number.
        """
        self._read, self._read_newest, self._read_spans = read, newest, spans
        self._rows: dict[int, dict[int, VmaRow]] = {}  # by process and id; all rows of each
        self._newest = -1  # number of the last row that was seen
        self._reread_sample = -1  # the newest sample when rows were read again: they change with windows only
        self._spans: dict[int, tuple[int, int]] = {}  # first and last row, by process; of an old one perhaps not
        self._complete_after = -1  # of every process with a higher number that has rows the span is here

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def of(self, wanted: Collection[int], newest_sample: int) -> list[VmaRow]:
        """Return all rows of some processes, as they are now, by process and address.

        ``newest_sample`` is the last one that the caller knows: rows may have been written since, of processes that
        came and went meanwhile, and that are requested next.
        """
        before = self._newest
        if before < 0:
            self._newest, self._complete_after = self._read_newest()
        unwanted = self._rows.keys() - set(wanted)
        if before >= 0:
            self._add_new()
        # Rows of a process of which nothing is mapped any more do not change, and new ones have just been read.
        living: list[dict[int, VmaRow]] = []
        if self._reread_sample != newest_sample:
            living = [own for own in self._rows.values() if any(row.open for row in own.values())]
        self._reread_sample = newest_sample
        cached = tuple(row for own in living for row in own if row <= before)
        if missing := set(wanted) - self._rows.keys():
            self._rows.update({process: {} for process in missing})
            self._add_whole(missing)
        self._reread(cached, living)
        for process in unwanted:  # a new one may be requested by the next call, of windows before these
            if not any(row.open or row.last_sample > newest_sample for row in self._rows[process].values()):
                del self._rows[process]
        return [
            row
            for process in sorted(self._rows.keys() & set(wanted))
            for row in sorted(self._rows[process].values(), key=lambda row: row.start)
        ]

    def _add_whole(self, processes: set[int]) -> None:
        """Add all rows of processes of which none is here."""
        for process in self._spans.keys() & processes:
            self._add(self._read("vma.id BETWEEN ? AND ? AND vma.process = ?", *self._spans[process], process))
        scanned = {process for process in processes if process <= self._complete_after} - self._spans.keys()
        for condition, keys in one_of("vma.process", scanned):
            self._add(self._read(condition, *keys))

    def _reread(self, cached: Collection[int], living: Sequence[dict[int, VmaRow]]) -> None:
        for condition, ids in one_of("vma.id", cached):
            current = self._read(condition, *ids)
            merged = set(ids) - {row.id for row in current}  # into another one
            for own in living if merged else ():
                for row_id in merged & own.keys():
                    del own[row_id]
            self._add(current)

    def _add_new(self) -> None:
        """Add the new rows of the processes that are here, and note where those of new ones lie."""
        spans = self._read_spans(self._newest)
        own = {process for process, _, _ in spans} & self._rows.keys()
        for condition, keys in one_of("vma.process", own):
            self._add(self._read(f"vma.id > ? AND {condition}", self._newest, *keys))
        for process, first, last in spans:
            if process > self._complete_after or process in self._spans:
                self._spans[process] = self._spans.get(process, (first, last))[0], last
            self._newest = max(self._newest, last)
        while len(self._spans) > _MOST_SPANS:
            process = next(iter(self._spans))
            del self._spans[process]
            self._complete_after = max(self._complete_after, process)

    def _add(self, rows: Iterable[VmaRow]) -> None:
        for row in rows:
            self._rows[row.process][row.id] = row
