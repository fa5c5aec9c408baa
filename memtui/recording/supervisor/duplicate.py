"""A process is recorded once: a second recording by the same user is refused with an error that names the first."""

from __future__ import annotations

import time

from memtui.core.errors import UserError
from memtui.core.privilege import Invoker, state_directory
from memtui.recording.registry import Running, find_all


class AlreadyRunning(UserError):
    """This user records that process already: by itself, or as a member of the tree of another one.

    Attributes:
        running: the recording.
        pid: the process that was requested.
    """

    def __init__(self, running: Running, pid: int) -> None:
        tree = "" if pid == running.pid else f" in the tree of process {running.pid}"
        super().__init__(
            f"process {pid} is recorded already{tree}, by sampler {running.sampler_pid} of memtui "
            f"{running.memtui_pid}, into {running.path}; memtui attach {pid} shows it, memtui stop {running.id} ends it"
        )
        self.running, self.pid = running, pid


def refuse_second(user: Invoker, pid: int, start_ticks: int, seconds: float = 0.0) -> None:
    """Raise AlreadyRunning when this user records the process already, or does so within some time."""
    deadline = time.monotonic() + seconds
    while True:
        if recordings := find_all(state_directory(user)):
            from memtui.recording.membership import RecordedTrees  # reads sessions, which nothing else here does

            if running := RecordedTrees().by(recordings, pid, start_ticks):
                raise AlreadyRunning(running, pid)
        if time.monotonic() >= deadline:
            return
        time.sleep(0.05)
