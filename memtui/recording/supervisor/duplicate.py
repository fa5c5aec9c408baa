"""A process is recorded once: a second recording of the same user is refused, and the first one named."""

from __future__ import annotations

import time

from memtui.core.errors import UserError
from memtui.core.privilege import Invoker, state_directory
from memtui.recording.registry import Running, find_all


class AlreadyRunning(UserError):
    """This user records that process already: by itself, or as a member of the tree of another one.

    Attributes:
        found: the recording.
        pid: the process that was asked for.
    """

    def __init__(self, found: Running, pid: int) -> None:
        tree = "" if pid == found.pid else f" in the tree of process {found.pid}"
        super().__init__(
            f"process {pid} is recorded already{tree}, by sampler {found.sampler_pid} of memtui {found.memtui_pid}, "
            f"into {found.path}; memtui attach {pid} shows it, memtui stop {found.id} ends it"
        )
        self.found, self.pid = found, pid


def refuse_second(user: Invoker, pid: int, start_ticks: int, seconds: float = 0.0) -> None:
    """Raise AlreadyRunning when this user records the process already, or does so within some time."""
    deadline = time.monotonic() + seconds
    while True:
        if running := find_all(state_directory(user)):
            from memtui.recording.membership import RecordedTrees  # reads sessions, which nothing else here does

            if found := RecordedTrees().by(running, pid, start_ticks):
                raise AlreadyRunning(found, pid)
        if time.monotonic() >= deadline:
            return
        time.sleep(0.05)
