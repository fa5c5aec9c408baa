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
    """Answers for one list of recordings after the other; the members that a session lists are cached."""

    def __init__(self) -> None:
        self._members: dict[str, frozenset[_Id]] = {}

    def by(self, running: Sequence[Running], pid: int, start_ticks: int) -> Running | None:
        """Return the recording among these that watches a process, the innermost where several could; None without one.

        A process is a member when it descends from the target now and the session lists it. A child of a target
        that is recorded without its children is not a member.
        """
        targets = {(r.pid, r.start_ticks): r for r in running}
        process = pid, start_ticks
        if recording := targets.get(process):
            return recording
        ancestor = pid
        for _ in range(_MOST_ANCESTORS if targets else 0):
            try:
                ancestor = read_stat(ancestor).parent_pid
                above = (ancestor, read_stat(ancestor).start_ticks) if ancestor > 1 else None
            except ProcessLookupError:
                return None
            if above is None:
                return None
            if (recording := targets.get(above)) and self._has(recording, process):
                return recording
        return None

    def _has(self, running: Running, process: _Id) -> bool:
        if process not in self._members.get(running.path, ()):
            try:
                self._members[running.path] = members(Path(running.path))
            except SessionError:
                return False  # not started yet, or removed
        return process in self._members[running.path]
