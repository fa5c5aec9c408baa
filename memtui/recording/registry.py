"""Which recordings this user has running: a small file for each, locked for as long as the recording runs.

The file lies in the user's own state directory, so no other user can put one there. The lock belongs to the process
that supervises the recording and goes with it, however it ends; a file without a lock is a leftover and is removed.
Homes are shared between machines: what another machine wrote is left alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from memtui.core.json_fields import from_json, to_json

FOLDER = "running"
CALIBRATION = "memtui-calibrate-"  # prefix of the names of sessions that are thrown away
_FILE_BYTES = 1 << 16
_ID_LETTERS = "abcdefghjkmnpqrstuvwxyz"  # without those that look like others
_ID_LENGTH = 4


@dataclass(frozen=True, slots=True)
class Running:
    """A recording that runs now."""

    pid: int  # of the target
    start_ticks: int
    memtui_pid: int  # of the supervisor, which ends it
    sampler_pid: int
    path: str  # the session
    command: str = ""
    began_s: float = 0.0  # seconds since the epoch
    control: str = ""  # the socket that takes requests; empty when there is none
    host: str = ""
    told: str = ""  # the socket over which the target reports its training; empty when there is none

    @property
    def id(self) -> str:
        """A short name to type. Letters only, so that it is never taken for a PID."""
        number = int.from_bytes(hashlib.blake2s(f"{self.host} {self.pid} {self.start_ticks}".encode()).digest()[:8])
        letters = []
        for _ in range(_ID_LENGTH):
            number, digit = divmod(number, len(_ID_LETTERS))
            letters.append(_ID_LETTERS[digit])
        return "".join(letters)


class Entry:
    """Announces a recording until the entry is closed."""

    def __init__(self, state: Path, running: Running) -> None:
        """Raise OSError where the file cannot be made; nobody then finds the recording, and nothing else is lost."""
        folder = state / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = _entry_path(state, running.pid, running.start_ticks)
        # Written under another name first: whoever sees the final name sees a whole file, and a lock on it.
        draft = self._path.with_suffix(f".{os.getpid()}.new")
        self._fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._fd, json.dumps(to_json(running)).encode())
            draft.rename(self._path)
        except OSError:
            os.close(self._fd)
            draft.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


def host_name() -> str:
    """Return the name of this machine, as entries have it."""
    return os.uname().nodename


def find(state: Path, pid: int, start_ticks: int) -> Running | None:
    """Return the running recording of a process, if this user has one."""
    running = _read(_entry_path(state, pid, start_ticks))
    return running if running is not None and (running.pid, running.start_ticks) == (pid, start_ticks) else None


def find_all(state: Path) -> list[Running]:
    """Return every recording that this user has running on this machine, the oldest first."""
    try:
        names = sorted((state / FOLDER).glob("*.json"))
    except OSError:
        return []
    recordings = [running for name in names if (running := _read(name)) is not None]
    return sorted((r for r in recordings if r.host == host_name()), key=lambda running: running.began_s)


def _read(path: Path) -> Running | None:
    """Return the recording of an entry if its lock is held; a leftover is removed."""
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
            return from_json(Running, json.loads(os.read(fd, _FILE_BYTES)))
        sockets: tuple[str, ...] = ()
        try:
            running = from_json(Running, json.loads(os.read(fd, _FILE_BYTES)))
            if running.host not in ("", host_name()):  # over NFS a lock may be seen on its own machine only
                return None
            sockets = running.control, running.told
        except ValueError:
            pass
        path.unlink(missing_ok=True)  # its memtui was killed
        for left in filter(None, sockets):
            with suppress(FileNotFoundError):
                if stat.S_ISSOCK(os.lstat(left).st_mode):
                    Path(left).unlink()
    except (OSError, ValueError):
        pass
    finally:
        os.close(fd)
    return None


def _entry_path(state: Path, pid: int, start_ticks: int) -> Path:
    return state / FOLDER / f"{pid}-{start_ticks}.json"
