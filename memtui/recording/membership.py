"""Finds the running recording that watches a process: as its target, or as a member of the target's tree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memtui.core.procfs import read_stat
from memtui.recording.registry import Running
from memtui.session.file_format import SessionError
from memtui.session.summary import members

_MOST_ANCESTORS = 64
_Id = tuple[int, int]  # PID and start time in ticks


class RecordedTrees:
    """Answers for one list of recordings after the other; what a session said of a process is kept."""

    def __init__(self) -> None:
        self._members: dict[str, frozenset[_Id]] = {}

    def by(self, running: Sequence[Running], pid: int, start_ticks: int) -> Running | None:
        """Return the recording among these that watches a process, the innermost where several could; None: none does.

        A process is a member when it descends from the target now and the session tells of it. A child of a target
        that is recorded without its children is none.
        """
        targets = {(one.pid, one.start_ticks): one for one in running}
        process = pid, start_ticks
        if found := targets.get(process):
            return found
        ancestor = pid
        for _ in range(_MOST_ANCESTORS if targets else 0):
            try:
                ancestor = read_stat(ancestor).parent_pid
                above = (ancestor, read_stat(ancestor).start_ticks) if ancestor > 1 else None
            except ProcessLookupError:
                return None
            if above is None:
                return None
            if (found := targets.get(above)) and self._has(found, process):
                return found
        return None

    def _has(self, running: Running, process: _Id) -> bool:
        if process not in self._members.get(running.path, ()):
            try:
                self._members[running.path] = members(Path(running.path))
            except SessionError:
                return False  # not begun yet, or taken away
        return process in self._members[running.path]
