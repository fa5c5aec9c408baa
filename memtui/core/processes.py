"""Child processes: one that exchanges JSON lines with its parent, and work that runs behind a screen.

``JsonLineProcess`` starts a program that is asked and answers. ``BackgroundTask`` forks a process for work that a
screen shows: neither holds up the other. What it reports comes over a pipe, one JSON object a line; when the pipe is
closed, or on SIGINT, the work ends.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from memtui.core.errors import FAILURE, UserError

_PR_SET_PDEATHSIG = 1
STARTING_S = 120.0  # torch alone takes a while on a slow disk


class WorkerEnded(Exception):
    """It is gone; the text says how."""


class JsonLineProcess:
    """Started at once, in a session of its own, so that keys of the terminal do not reach it.

    Attributes:
        ready: what it said of itself when it was ready.
    """

    def __init__(self, argv: Sequence[str], starting_s: float = STARTING_S) -> None:
        """Start it and wait until it is ready. Raises WorkerEnded."""
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._buffer = b""
        self.ready: dict[str, Any] = {}
        try:
            message = self.receive_message(starting_s)
        except BaseException:
            self.close()
            raise
        if message is None or message.get("at") != "ready":
            self.close()
            raise WorkerEnded(str((message or {}).get("text", "it did not start")))
        self.ready = message

    @property
    def pid(self) -> int:
        return self._process.pid

    def send_message(self, message: dict[str, Any]) -> None:
        """Tell it something. Raises WorkerEnded."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerEnded(self._how_it_ended()) from None

    def receive_message(self, seconds: float) -> dict[str, Any] | None:
        """Return its next word; None when it said nothing for so long. Raises WorkerEnded."""
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
        message: dict[str, Any] = json.loads(line)
        return message

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


ENDING_S = 10.0
Send = Callable[[dict[str, Any]], None]
Work = Callable[[Send], list[str]]


class BackgroundTask:
    """Starts at once.

    Attributes:
        over: nothing more will come.
        finished: the work came to its own end.
        error: why it ended early.
        conclusion: lines to be said at the end, once it is over.
    """

    def __init__(self, work: Work) -> None:
        """``work`` says words and returns its conclusion. It runs in a child; no thread may run yet."""
        self._read_fd, write_fd = os.pipe()
        self._buffer = b""
        self._early: list[dict[str, Any]] = []  # heard before the screen was there
        self.over = self.finished = False
        self.error: UserError | None = None
        self.conclusion: list[str] = []
        sys.stdout.flush()
        self._pid = os.fork()
        if not self._pid:
            code = 130
            try:
                os.close(self._read_fd)
                code = _child(work, write_fd)
            finally:
                os._exit(code)  # whenever ^C comes: nothing of the parent may run twice
        os.close(write_fd)

    def wait_for_start(self) -> bool:
        """Wait until the work proper begins; False when it does not, and ``error`` says why."""
        while not self.over and self.error is None:
            messages = self._read(1.0)
            self._early += messages
            if any(message.get("phase", "start") != "start" or "over" in message for message in messages):
                return True
        return False

    def receive_messages(self, seconds: float) -> list[dict[str, Any]]:
        """Return the messages that came meanwhile, with the first of them, or with none after so long."""
        if self._early:
            early, self._early = self._early, []
            return early
        return self._read(seconds)

    def note(self, word: dict[str, Any]) -> None:
        """Take every word as it comes."""
        if "error" in word:
            self.error = UserError(word["error"], word["code"])
        self.finished |= "over" in word
        self.conclusion = word.get("over", self.conclusion)

    def _read(self, seconds: float) -> list[dict[str, Any]]:
        if self.over:
            time.sleep(seconds)
            return []
        if select.select([self._read_fd], [], [], seconds)[0]:
            chunk = os.read(self._read_fd, 1 << 16)
            self.over = not chunk
            self._buffer += chunk
        *lines, self._buffer = self._buffer.split(b"\n")
        messages = [json.loads(line) for line in lines]
        for message in messages:
            self.note(message)
        return messages

    def end(self) -> None:
        """End the work, if it still goes on, and wait for that."""
        deadline = time.monotonic() + ENDING_S
        _send(self._pid, signal.SIGINT)
        os.close(self._read_fd)
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                _send(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                return
            time.sleep(0.02)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _child(work: Work, write_fd: int) -> int:
    """Do the child's work and return its exit status."""
    os.setsid()  # keys and the end of the terminal are the screen's
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nothing, fd)

    def send(message: dict[str, Any]) -> None:
        os.write(write_fd, json.dumps(message, separators=(",", ":")).encode() + b"\n")

    try:
        send({"over": work(send)})
    except UserError as error:
        send({"error": str(error), "code": error.code})
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    except Exception as error:
        send({"error": f"{type(error).__name__}: {error}", "code": FAILURE})
    return 0
