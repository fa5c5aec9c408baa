"""The rows of tables that programs get and ``memtui export`` does not write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from memtui.core.page_set import PageSet
from memtui.reports.export.tables import TABLES, Row, int_or_none
from memtui.reports.source import ReportSource
from memtui.session.blobs import UNKNOWN_BYTES

_BATCH_WINDOWS = 4096
Rows = Callable[[ReportSource], Iterable[Row]]
_NUMBERS = (
    *("sample", "start_ns", "end_ns", "wss_bytes", "wss_low_bytes", "wss_high_bytes", "shared_bytes", "stored_bytes"),
    *("faulted_in_bytes", "unknown_bytes", "rss_bytes", "pss_bytes", "pss_ns", "processes", "gaps", "paused_ns"),
    *("lost_ns",),
)
_TEXTS = ("disturbed", "status", "reason")
_PROCESS = ("pid", "parent_pid", "role", "command", "generation", "start_ticks")
_SAMPLES, _PROCESS_SAMPLES = TABLES["samples"]
_PID = _SAMPLES.index("pid")


def _windows(reader: ReportSource) -> Iterator[Row]:
    """Yield the windows of the whole tree."""
    samples = reader.samples
    for first in range(0, len(samples), _BATCH_WINDOWS):
        batch = slice(first, min(first + _BATCH_WINDOWS, len(samples)))
        numbers = ([int_or_none(value) for value in getattr(samples, name)[batch].tolist()] for name in _NUMBERS)
        yield from zip(*numbers, *(getattr(samples, name)[batch] for name in _TEXTS), strict=True)


def _processes(reader: ReportSource) -> Iterator[Row]:
    """Yield the processes that there were, every exec as a new one."""
    for process in reader.processes():
        yield tuple(getattr(process, name) for name in _PROCESS)


def _process_windows(reader: ReportSource) -> Iterator[Row]:
    """Yield the windows of each process."""
    return (row for row in _PROCESS_SAMPLES(reader) if row[_PID])


def _mapping_windows(reader: ReportSource) -> Iterator[Row]:
    """Yield each mapping in each window in which it was touched or resident."""
    samples, mappings = reader.samples, {row.id: row for row in reader.vma_rows()}
    for first in range(0, len(samples), _BATCH_WINDOWS):
        numbers = samples.sample[first : first + _BATCH_WINDOWS].tolist()
        ends_ns = samples.end_ns[first : first + _BATCH_WINDOWS].tolist()
        touched = reader.vma_wss(numbers[0], numbers[-1])
        bounds = np.searchsorted(touched[0], [*numbers, numbers[-1] + 1]).tolist()
        for index, (sample, end_ns) in enumerate(zip(numbers, ends_ns, strict=True)):
            here = slice(bounds[index], bounds[index + 1])
            wss = dict(zip(*(column[here].tolist() for column in touched[1:]), strict=True))
            rss = reader.vma_rss(sample)
            for key in sorted(wss.keys() | rss.keys()):
                row = mappings.get(key)
                if row is None or not row.first_sample <= sample <= row.last_sample:
                    continue
                state, wss_bytes = row.at(sample), wss.get(key, 0)
                where = row.pid, row.start, row.end, state.perms, state.name
                yield sample, end_ns, *where, None if wss_bytes == UNKNOWN_BYTES else wss_bytes, rss.get(key)


def _marks(reader: ReportSource) -> Iterator[Row]:
    return ((event.t_ns, event.text) for event in reader.events(0, 2**62) if event.kind == "mark")


OWN_TABLES: dict[str, tuple[tuple[str, ...], Rows]] = {
    "windows": ((*_NUMBERS, *_TEXTS), _windows),
    "processes": (_PROCESS, _processes),
    "process_windows": (_SAMPLES, _process_windows),
    "mapping_windows": (
        ("sample", "t_ns", "pid", "start", "end", "perms", "name", "wss_bytes", "rss_bytes"),
        _mapping_windows,
    ),
    "marks": (("t_ns", "text"), _marks),
}


def longer_windows(source: ReportSource, least_ns: int, pid: int | None) -> Iterator[Row]:
    """Yield (start, end, touched bytes, windows) of windows put together; bytes are None where pages are missing."""
    samples, keys = source.samples, keys_of(source, pid)
    touched: dict[int, PageSet] = {}
    first, complete = 0, True
    for index, sample in enumerate(samples.sample.tolist()):
        there = [(key, source.page_set(sample, key)) for key in keys]
        for key, pages in there:
            if pages is not None:
                touched[key] = touched[key].union(pages) if key in touched else pages
        complete &= any(pages is not None for _, pages in there)
        start_ns, end_ns = int(samples.start_ns[first]), int(samples.end_ns[index])
        if end_ns - start_ns >= least_ns:
            wss_bytes = sum(pages.size_bytes for pages in touched.values()) if complete else None
            yield start_ns, end_ns, wss_bytes, index + 1 - first
            touched, first, complete = {}, index + 1, True


def keys_of(source: ReportSource, pid: int | None) -> list[int]:
    """Return the keys of a process, one for each program it ran; those of all processes unless one is given."""
    return [process.key for process in source.processes() if pid in (None, process.pid)]
