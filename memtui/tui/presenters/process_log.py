"""The processes of a view. Of thousands that ended, few are in sight and fewer are cached."""

from __future__ import annotations

from collections.abc import Iterable

from memtui.core.lru_cache import LruCache
from memtui.core.samples import Process
from memtui.session.session import Session

FEW = 64  # processes: up to this number all are in every view
KEEP_PROCESSES = 1024


class ProcessLog:
    """Reads each process once, and caches those that were used last."""

    def __init__(self) -> None:
        self._first: list[Process] = []  # up to FEW of them
        self._other: Process | None = None  # the newest of another pid than the first one's
        self._target: Process | None = None  # its newest generation
        self._cached: LruCache[int, Process] = LruCache(KEEP_PROCESSES)
        self._newest = -1
        self.count = 0

    def update(self, reader: Session) -> None:
        """Read new processes."""
        while new := reader.processes.after(self._newest):
            self._newest = new[-1].key
            self.count += len(new)
            self._first += new[: FEW - len(self._first)]
            for process in new:
                self._cached.put(process.key, process)
                if process.pid == reader.hello.target.pid:
                    self._target = process
                if process.pid != self._first[0].pid:
                    self._other = process

    @property
    def all(self) -> frozenset[int] | None:
        """Return the keys of all processes; None where there are more than ``FEW``."""
        return frozenset(process.key for process in self._first) if self.count <= FEW else None

    def of(self, reader: Session, keys: Iterable[int]) -> list[Process]:
        """Return the processes with these keys and the target; of another pid at least one, if there ever was any."""
        if self.count <= FEW:
            return list(self._first)
        always = (self._first[0], self._other, self._target)
        processes = {process.key: process for process in always if process is not None}
        wanted = set(keys) - processes.keys()
        processes |= {key: self._cached[key] for key in wanted if key in self._cached}
        if missing := wanted - processes.keys():
            processes |= {process.key: process for process in reader.processes.with_keys(missing)}
        return [processes[key] for key in sorted(processes)]
