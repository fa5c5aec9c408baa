"""Page sets of one process, window after window, each read when it is indexed: all at once may be too many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, overload

from memtui.core.page_set import PageSet
from memtui.core.samples import Hello, Process
from memtui.session.sample_arrays import SampleArrays

_SAMPLES_AT_ONCE = 64  # of which all columns are in memory


@dataclass(frozen=True, slots=True)
class Window:
    """A window of a process: numbers of its sample and process, and when it was."""

    sample: int
    process: int
    start_ns: int
    end_ns: int


class PageSource(Protocol):
    """A source of page sets: a session, or the redacted view of one."""

    @property
    def hello(self) -> Hello: ...
    @property
    def samples(self) -> SampleArrays: ...
    def processes(self) -> list[Process]: ...
    def process_samples(self, first_sample: int, last_sample: int) -> list[dict[str, Any]]: ...
    def page_set(self, sample: int, process: int) -> PageSet | None: ...


def windows_of(
    process_samples: Callable[[int, int], list[dict[str, Any]]], samples: SampleArrays, processes: Collection[int]
) -> Iterator[Window]:
    """Yield the windows of some processes. Raises SessionError."""
    numbers = samples.sample
    for first in range(0, len(numbers), _SAMPLES_AT_ONCE):
        some = numbers[first : first + _SAMPLES_AT_ONCE]
        for row in process_samples(int(some[0]), int(some[-1])):
            if row["process"] in processes:
                yield Window(row["sample"], row["process"], row["start_ns"], row["end_ns"])


def busiest(reader: PageSource) -> Process | None:
    """Return the process with the most accessed pages, which is the one that trains; None without stored page sets.

    Raises SessionError.
    """
    if not reader.hello.pages.ok or not len(reader.samples):
        return None
    total: dict[int, int] = defaultdict(int)
    for row in reader.process_samples(0, reader.samples.newest):
        total[row["process"]] += row["stored_bytes"] or 0
    candidates = [process for process in reader.processes() if total[process.key]]
    return max(candidates, key=lambda process: total[process.key], default=None)


class PageWindows(Sequence[PageSet | None]):
    """Page sets by window, from the first of the session on; a window that was lost, or has no page set, is None.

    Raises SessionError when an item is read.
    """

    def __init__(self, reader: PageSource, process: int) -> None:
        self._reader, self._process = reader, process
        samples = reader.samples
        self._first = int(samples.sample[0]) if len(samples) else 0
        self._count = samples.newest + 1 - self._first if len(samples) else 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[PageSet | None]:
        return (self[index] for index in range(self._count))

    @overload
    def __getitem__(self, index: int) -> PageSet | None: ...
    @overload
    def __getitem__(self, index: slice) -> list[PageSet | None]: ...
    def __getitem__(self, index: int | slice) -> PageSet | list[PageSet | None] | None:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(index)
        return self._reader.page_set(self._first + index % self._count, self._process)
