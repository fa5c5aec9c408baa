"""The processes of the target's tree, each with a small key that is never used twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from memtui.core.procfs import PROC, children_of, command_of, ranks_of, read_stat
from memtui.core.samples import CHILD, LOADER, TARGET, Process

_LOADER_NAME = "pt_data_worker"  # which PyTorch (2.6) gives the first thread of a DataLoader's worker
_Id = tuple[int, int]  # pid and start time


class ProcessTree:
    """Follows the root process and, where wanted, all its descendants."""

    def __init__(self, root: int, *, children: bool = True, command: str = "", proc: Path = PROC) -> None:
        """``command``: of a root that waits before its exec and has another command line until then."""
        self._root, self._children, self._proc = root, children, proc
        self._command = command
        self._next_key = 1
        self._processes: dict[int, Process] = {}  # by pid
        self._zombies: dict[_Id, int] = {}  # ended children that are not reaped yet, and their parents
        self._reaped: dict[int, int] = {}  # minor faults of reaped children, by the pid of the parent
        self._names: dict[int, str] = {}  # of first threads, by pid
        self.unseen = 0
        self.become_loaders: list[int] = []

    @property
    def processes(self) -> tuple[Process, ...]:
        """The processes of the last ``refresh``, the root first."""
        return tuple(self._processes.values())

    def refresh(self) -> tuple[list[Process], list[Process]]:
        """Read the tree again; return (new processes, ended ones). Raises ProcessLookupError when the root is gone.

        ``unseen`` is then a lower bound of the count of children that were born and ended since the last call. What
        shows them is a zombie, or a parent that reaped a child: the faults of its reaped children rose.
        ``become_loaders`` are the pids of processes of before that are workers of a DataLoader now: started by "spawn"
        or "forkserver", one has its name after seconds.
        """
        processes: dict[int, Process] = {}
        new: list[Process] = []
        zombies: dict[_Id, int] = {}
        reaped: dict[int, int] = {}
        names: dict[int, str] = {}
        for pid in self.pids():
            try:
                stat = read_stat(pid, self._proc)
                process = self._processes.get(pid)
                if process is not None and process.start_ticks != stat.start_ticks:
                    process = None
                if stat.ended:
                    if pid != self._root:
                        zombies[pid, stat.start_ticks] = stat.parent_pid
                    raise ProcessLookupError(f"process {pid} ended")
                if process is None:
                    role = self._role(pid, stat.name)
                    process = self._keyed(
                        Process(0, pid, stat.parent_pid, stat.start_ticks, 0, self._first_command(pid), role)
                    )
                    new.append(process)
                processes[pid], names[pid] = process, stat.name
                reaped[pid] = stat.reaped_minor_faults
            except ProcessLookupError:
                if pid == self._root:
                    raise
        gone = [
            p
            for p in self._processes.values()
            if processes.get(p.pid, p).start_ticks != p.start_ticks or p.pid not in processes
        ]
        self.unseen = self._count_unseen(gone, zombies, reaped)
        self._processes, self._zombies, self._reaped, self._names = processes, zombies, reaped, names
        self.become_loaders = [
            pid
            for pid, process in processes.items()
            if process.role.partition(" ")[0] == CHILD and names[pid] == _LOADER_NAME
        ]
        return new, gone

    def _count_unseen(self, gone: list[Process], zombies: dict[_Id, int], reaped: dict[int, int]) -> int:
        if not self._children:
            return 0
        ended = {(p.pid, p.start_ticks): p.parent_pid for p in gone}
        came_and_went = zombies.keys() - self._zombies.keys() - ended.keys()
        # Of a parent that reaped a known child, the rise of the faults is explained.
        explained = {parent for child, parent in (self._zombies | ended).items() if child not in zombies}
        waited = {pid for pid, faults in reaped.items() if faults > self._reaped.get(pid, faults)}
        return len(came_and_went) + len(waited - explained)

    def new_generation(self, pid: int) -> Process:
        """Return the same process after exec, with a new key and its new command line; or with its new role."""
        old, role = self._processes[pid], self._role(pid, self._names.get(pid, ""))
        new = replace(old, generation=old.generation + 1, command=command_of(pid), role=role)
        self._processes[pid] = self._keyed(new)
        return self._processes[pid]

    def _first_command(self, pid: int) -> str:
        return self._command if self._command and pid == self._root else command_of(pid)

    def _role(self, pid: int, thread_name: str = "") -> str:
        ranks = (f"{name}={number}" for name, number in ranks_of(pid, self._proc).items())
        child = LOADER if thread_name == _LOADER_NAME else CHILD
        return " ".join((TARGET if pid == self._root else child, *ranks))

    def _keyed(self, process: Process) -> Process:
        key, self._next_key = self._next_key, self._next_key + 1
        return replace(process, key=key)

    def pids(self) -> Iterator[int]:
        """Yield the root and its descendants of this moment, those too that ended and were not reaped."""
        pending = [self._root]
        while pending:
            pid = pending.pop(0)
            yield pid
            if self._children:
                pending += children_of(pid, self._proc)
