"""Which recordings this user has running: a small file for each, locked for as long as it is true.

The file lies in the user's own state directory, so no other user can put one there. The lock belongs to the process
that started the recording and goes with it, however it ends; a file without a lock is a leftover and is taken away.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = "running"
_FILE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Running:
    """A recording that runs now."""

    pid: int  # of the target
    start_ticks: int
    memtui_pid: int  # who started it, and ends it
    sampler_pid: int
    path: str  # the session


class Entry:
    """Announces a recording until it is closed."""

    def __init__(self, state: Path, running: Running) -> None:
        """Raises OSError where the file cannot be made; nobody then finds the recording, and nothing else is lost."""
        folder = state / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = _place(state, running.pid, running.start_ticks)
        # Written under another name: whoever sees the name sees a whole file, and a lock on it.
        draft = self._path.with_suffix(f".{os.getpid()}.new")
        self._fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._fd, json.dumps(asdict(running)).encode())
            os.rename(draft, self._path)
        except OSError:
            os.close(self._fd)
            draft.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


def find(state: Path, pid: int, start_ticks: int) -> Running | None:
    """The running recording of a process, if this user has one."""
    path = _place(state, pid, start_ticks)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            running = Running(**json.loads(os.read(fd, _FILE_BYTES)))
            return running if (running.pid, running.start_ticks) == (pid, start_ticks) else None
        path.unlink(missing_ok=True)  # its memtui was killed
    except (OSError, ValueError, TypeError):
        pass
    finally:
        os.close(fd)
    return None


def _place(state: Path, pid: int, start_ticks: int) -> Path:
    return state / FOLDER / f"{pid}-{start_ticks}.json"
