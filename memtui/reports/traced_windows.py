"""Windows in which it is known where the tensors of a process lie: pages from outside, places from inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from memtui.analysis.non_tensor_pages import Mapped, rest_bytes
from memtui.analysis.tensor_pages import TensorMap
from memtui.analysis.tensor_sums import TensorNumbers, Window
from memtui.reports.source import ReportSource
from memtui.session.vma_row import VmaRow


@dataclass(frozen=True, slots=True)
class TensorHistory:
    """What one process told of its tensors.

    Attributes:
        pid: the process.
        begins_ns: i8[n], rising: from when on each map holds.
        maps: until the next one.
    """

    pid: int
    begins_ns: np.ndarray
    maps: tuple[TensorMap, ...]


def told_by_process(reader: ReportSource) -> list[TensorHistory]:
    """Of every process that told of any, the one that spoke last at the end. Raises SessionError."""
    found: dict[int, list[tuple[int, TensorMap]]] = {}
    for pid, t_ns, tensors in reader.tensor_maps():
        found[pid] = [*found.pop(pid, []), (t_ns, tensors)]
    made = []
    for pid, some in found.items():
        some.sort(key=lambda one: one[0])
        made.append(TensorHistory(pid, np.array([t_ns for t_ns, _ in some]), tuple(tensors for _, tensors in some)))
    return made


class TracedWindows:
    """Counts the windows of one process; those in which tensors moved, or without stored pages, are left out."""

    def __init__(self, reader: ReportSource, told: TensorHistory) -> None:
        self.numbers = TensorNumbers()
        self._reader, self._told = reader, told
        self._keys = [process.key for process in reader.processes() if process.pid == told.pid]
        self._number = [self.numbers.of(tensors) for tensors in told.maps]
        # At their true addresses, also of a session that is redacted: only sums leave this class.
        self._rows = {key: reader.drawn_rows(key) for key in self._keys}
        self._mapped: tuple[tuple[int, ...], Mapped] | None = None  # as of the last window

    @property
    def inside(self) -> np.ndarray:
        """Places of the samples that begin when something was known already."""
        return np.flatnonzero(self._reader.samples.start_ns >= self._told.begins_ns[0])

    def count(self, places: Sequence[int] | np.ndarray) -> Iterator[Window]:
        """Yield what was touched in the samples at some places. Raises SessionError."""
        samples, begins = self._reader.samples, self._told.begins_ns
        for at in places:
            which = int(np.searchsorted(begins, samples.start_ns[at], side="right")) - 1
            if which < 0 or (which + 1 < len(begins) and begins[which + 1] < samples.end_ns[at]):
                continue  # some moved in the middle of it
            sample, tensors = int(samples.sample[at]), self._told.maps[which]
            for key in reversed(self._keys):
                pages = self._reader.page_set(sample, key)
                if pages is not None:
                    rest = rest_bytes(pages, tensors, self._mapped_at(key, sample))
                    yield Window(sample, self._number[which], tensors.touched_each(pages), rest)
                    break

    def _mapped_at(self, key: int, sample: int) -> Mapped:
        rows: list[VmaRow] = [r for r in self._rows[key] if r.first_sample <= sample <= r.last_sample]
        ids = tuple(row.id for row in rows)
        if self._mapped is None or self._mapped[0] != ids:
            self._mapped = ids, Mapped.of(rows)
        return self._mapped[1]
