"""Windows with known addresses of the tensors of a process: pages as seen from outside, addresses from inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.non_tensor_pages import Mapped, rest_bytes
from memtui.analysis.tensor_pages import TensorMap
from memtui.analysis.tensor_sums import TensorNumbers, Window
from memtui.reports.source import ReportSource
from memtui.session.vma_row import VmaRow


@dataclass(frozen=True, slots=True)
class TensorHistory:
    """The tensors that one process reported.

    Attributes:
        pid: the process.
        starts_ns: i8[n], rising: the start of each map's validity.
        maps: the maps, each valid until the next.
    """

    pid: int
    starts_ns: np.ndarray
    maps: tuple[TensorMap, ...]


def tensor_histories(reader: ReportSource) -> list[TensorHistory]:
    """Return the history of every process that reported tensors, the latest at the end. Raises SessionError."""
    by_process: dict[int, list[tuple[int, TensorMap]]] = {}
    for pid, t_ns, tensors in reader.tensor_maps():
        by_process[pid] = [*by_process.pop(pid, []), (t_ns, tensors)]
    return [_history(pid, maps) for pid, maps in by_process.items()]


def _history(pid: int, maps: list[tuple[int, TensorMap]]) -> TensorHistory:
    maps.sort(key=lambda entry: entry[0])
    return TensorHistory(pid, np.array([t_ns for t_ns, _ in maps]), tuple(tensors for _, tensors in maps))


class TracedWindows:
    """Counts the windows of one process, without windows in which every tensor moved or that have no stored pages.

    A tensor that moved within a window is not counted there.

    Attributes:
        moved: windows of those asked for in which every tensor moved.
    """

    def __init__(self, reader: ReportSource, history: TensorHistory) -> None:
        self.numbers = TensorNumbers()
        self.moved = 0
        self._reader, self._history = reader, history
        self._keys = [process.key for process in reader.processes() if process.pid == history.pid]
        self._numbers = [self.numbers.of(tensors) for tensors in history.maps]
        self._stayed: dict[tuple[int, int], NDArray[np.bool_]] = {}
        # At their true addresses, also of a session that is redacted: only sums leave this class.
        self._rows = {key: reader.drawn_rows(key) for key in self._keys}
        self._mapped: tuple[tuple[int, ...], Mapped] | None = None  # as of the last window

    @property
    def inside(self) -> np.ndarray:
        """Return the indices of the samples that started after the first report of tensors."""
        return np.flatnonzero(self._reader.samples.start_ns >= self._history.starts_ns[0])

    def count(self, indices: Sequence[int] | np.ndarray) -> Iterator[Window]:
        """Yield the touched pages of the samples at some indices. Raises SessionError."""
        samples, starts_ns = self._reader.samples, self._history.starts_ns
        for index in indices:
            first = int(np.searchsorted(starts_ns, samples.start_ns[index], side="right")) - 1
            last = int(np.searchsorted(starts_ns, samples.end_ns[index])) - 1
            if first < 0:
                continue
            sample, tensors, numbers = int(samples.sample[index]), self._history.maps[first], self._numbers[first]
            if last > first:
                stayed = self._those_that_stayed(first, last)
                if not stayed.any():
                    self.moved += 1
                    continue
                tensors, numbers = tensors.part(stayed), numbers[stayed]
            for key in reversed(self._keys):
                pages = self._reader.page_set(sample, key)
                if pages is not None:
                    rest = rest_bytes(pages, tensors, self._mapped_in(key, sample))
                    yield Window(sample, numbers, tensors.touched_each(pages), rest)
                    break

    def _those_that_stayed(self, first: int, last: int) -> NDArray[np.bool_]:
        """Return which tensors of one map lie at the same place in all maps up to another: bool[n]."""
        if (first, last) not in self._stayed:
            rows = list(_rows(self._history.maps[first]))
            everywhere = set(rows)
            for tensors in self._history.maps[first + 1 : last + 1]:  # the rows of one map at a time are in memory
                everywhere.intersection_update(_rows(tensors))
            self._stayed[first, last] = np.array([row in everywhere for row in rows], bool)
        return self._stayed[first, last]

    def _mapped_in(self, key: int, sample: int) -> Mapped:
        rows: list[VmaRow] = [r for r in self._rows[key] if r.first_sample <= sample <= r.last_sample]
        ids = tuple(row.id for row in rows)
        if self._mapped is None or self._mapped[0] != ids:
            self._mapped = ids, Mapped.of(rows)
        return self._mapped[1]


def _rows(tensors: TensorMap) -> Iterator[tuple[int, int, int, str, str]]:
    return zip(*tensors.columns.tolist(), tensors.names, tensors.parts, strict=True)
