"""The processes of the target's tree, each with a small key that is never used twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from memtui.probes.process import PROC, children_of, command_of, read_stat
from memtui.samples import Process

TARGET, CHILD = "target", "child"


class ProcessTree:
    """Follows the root process and, when asked, everything below it."""

    def __init__(self, root: int, *, children: bool = True, proc: Path = PROC) -> None:
        self._root, self._children, self._proc = root, children, proc
        self._next_key = 1
        self._known: dict[int, Process] = {}  # by pid

    @property
    def processes(self) -> tuple[Process, ...]:
        """The processes of the last ``refresh``, the root first."""
        return tuple(self._known.values())

    def refresh(self) -> tuple[list[Process], list[Process]]:
        """Look again: (new processes, those that ended). Raises ProcessLookupError when the root is gone."""
        found: dict[int, Process] = {}
        new: list[Process] = []
        for pid in self._pids():
            try:
                stat = read_stat(pid, self._proc)
                if stat.state in "ZX":
                    raise ProcessLookupError(f"process {pid} ended")
                known = self._known.get(pid)
                if known is None or known.start_ticks != stat.start_ticks:
                    role = TARGET if pid == self._root else CHILD
                    known = self._keyed(Process(0, pid, stat.parent_pid, stat.start_ticks, 0, command_of(pid), role))
                    new.append(known)
                found[pid] = known
            except ProcessLookupError:
                if pid == self._root:
                    raise
        gone = [
            p for p in self._known.values() if found.get(p.pid, p).start_ticks != p.start_ticks or p.pid not in found
        ]
        self._known = found
        return new, gone

    def new_generation(self, pid: int) -> Process:
        """The same process after exec: a new address space, so a new key and its new command line."""
        old = self._known[pid]
        self._known[pid] = self._keyed(replace(old, generation=old.generation + 1, command=command_of(pid)))
        return self._known[pid]

    def _keyed(self, process: Process) -> Process:
        key, self._next_key = self._next_key, self._next_key + 1
        return replace(process, key=key)

    def _pids(self) -> Iterator[int]:
        pending = [self._root]
        while pending:
            pid = pending.pop(0)
            yield pid
            if self._children:
                pending += children_of(pid, self._proc)
