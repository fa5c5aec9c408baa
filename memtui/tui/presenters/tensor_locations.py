"""The addresses of the tensors of traced processes at a moment, from a session."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass

from memtui.analysis.tensor_pages import TensorMap
from memtui.core.lru_cache import LruCache
from memtui.core.samples import Process, Status
from memtui.session.session import Session

KEEP_MAPS = 64
NOT_TRACED = "no tensor is known: memtui trace -- python train.py (or run --trace, record --trace) tells where they lie"


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """The addresses of the tensors of a process in a window. ``moved``: some moved within the window."""

    number: int  # of the map in the session
    tensors: TensorMap
    moved: bool

    def largest_in(self, start: int, end: int) -> str:
        """Return the name of the tensor with the most bytes in a piece of memory; empty where there is none."""
        number = self.tensors.largest_in(start, end)
        return "" if number is None else self.tensors.title(number)


@dataclass(frozen=True, slots=True)
class TracedProcess:
    """A process that reports its tensors, in one window."""

    key: int
    pid: int
    wss_bytes: int | None
    stored_bytes: int | None

    @property
    def not_stored_bytes(self) -> int | None:
        """Return the accessed bytes that the filter excluded; None: not known."""
        if self.wss_bytes is None or self.stored_bytes is None:
            return None
        return self.wss_bytes - self.stored_bytes


class TensorLocations:
    """The maps of a session, and a cache of those used last."""

    def __init__(self) -> None:
        self._newest = -1
        self._by_pid: dict[int, list[tuple[int, int]]] = {}  # (from when on, number), rising
        self._maps: LruCache[int, TensorMap] = LruCache(KEEP_MAPS)

    @property
    def pids(self) -> list[int]:
        """Return processes that report tensors, in the order of their first report."""
        return list(self._by_pid)

    def update(self, reader: Session) -> None:
        """Read new maps."""
        for number, pid, t_ns in reader.tensors.starts(self._newest):
            insort(self._by_pid.setdefault(pid, []), (t_ns, number))
            self._newest = number

    def since_ns(self, pid: int) -> int:
        """Return the time of the first map of a process."""
        return self._by_pid[pid][0][0]

    def locate(self, reader: Session, pid: int, index: int) -> Placed | None:
        """Return where tensors lay at the start of a window, given by its index; None where that is not known."""
        start_ns, end_ns = int(reader.samples.start_ns[index]), int(reader.samples.end_ns[index])
        maps = self._by_pid.get(pid, [])
        count = bisect_right(maps, start_ns, key=_start_ns)
        if not count:
            return None
        number = maps[count - 1][1]
        if number not in self._maps:
            self._maps.put(number, reader.tensors.map(number))
        moved = count < len(maps) and maps[count][0] < end_ns
        return Placed(number, self._maps[number], moved)

    def traced(
        self, reader: Session, index: int, processes: Sequence[Process], only: int | None
    ) -> list[TracedProcess]:
        """Return the processes of a window that report tensors; ``only``: the chosen pid, if any."""
        pids = {p.key: p.pid for p in processes if p.pid in self._by_pid and only in (None, p.pid)}
        if index < 0 or not pids:
            return []
        sample = int(reader.samples.sample[index])
        rows = [
            TracedProcess(row["process"], pids[row["process"]], row["wss_bytes"], row["stored_bytes"])
            for row in reader.processes.samples(sample, sample)
            if row["process"] in pids and row["status"] != Status.GONE
        ]
        return sorted(rows, key=lambda item: self.pids.index(item.pid))


def _start_ns(entry: tuple[int, int]) -> int:
    return entry[0]
