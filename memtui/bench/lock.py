"""One measurement at a time on a device: a lock on a file of the kernel's, which is dropped with its holder."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from memtui.claim import lock_holder
from memtui.errors import FAILURE, UserError


class DeviceLock:
    """Use as a context manager. Raises UserError when another bench holds it."""

    def __init__(self, path: Path, device: str) -> None:
        self._path, self._device = path, device
        self._fd = -1

    def __enter__(self) -> DeviceLock:
        self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = lock_holder(self._fd)
            self.__exit__()
            who = f"process {holder}" if holder else "another process"
            raise UserError(f"{self._device} is being measured by {who}: wait for its end", FAILURE) from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
