"""A child process that is told things, and tells things, one JSON object a line."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

_PR_SET_PDEATHSIG = 1
STARTING_S = 120.0  # torch alone takes a while on a slow disk


class WorkerEnded(Exception):
    """It is gone; the text says how."""


class Child:
    """Started at once, in a session of its own, so that keys of the terminal do not reach it.

    Attributes:
        ready: what it said of itself when it was ready.
    """

    def __init__(self, words: Sequence[str], starting_s: float = STARTING_S) -> None:
        """Start it and wait until it is ready. Raises WorkerEnded."""
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._buffer = b""
        self.ready: dict[str, Any] = {}
        try:
            found = self.hear(starting_s)
        except BaseException:
            self.close()
            raise
        if found is None or found.get("at") != "ready":
            self.close()
            raise WorkerEnded(str((found or {}).get("text", "it did not start")))
        self.ready = found

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, plain: dict[str, Any]) -> None:
        """Tell it something. Raises WorkerEnded."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(plain).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerEnded(self._how_it_ended()) from None

    def hear(self, seconds: float) -> dict[str, Any] | None:
        """Its next word; None when it said nothing for so long. Raises WorkerEnded."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            if not select.select([fd], [], [], seconds)[0]:
                return None
            chunk = os.read(fd, 1 << 16)
            if not chunk:
                raise WorkerEnded(self._how_it_ended())
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End it, whatever it does."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _how_it_ended(self) -> str:
        try:
            status = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return "the worker fell silent"
        return (
            f"the worker was killed by {signal.Signals(-status).name}" if status < 0 else f"the worker ended ({status})"
        )


def exit_with_parent(parent: int = 0) -> None:
    """Have the kernel send SIGTERM to this process when its parent ends, so that no run is left behind.

    The kernel's parent is the thread that started this process, not only its process.

    Args:
        parent: the pid that the parent should have; another one means that it ended before this call. 0: not checked.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if parent and os.getppid() != parent:
        raise SystemExit(0)
