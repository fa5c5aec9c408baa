"""Child processes: one that exchanges JSON lines with its parent, and work that runs behind a screen.

``JsonLineProcess`` starts a program that answers requests. ``BackgroundTask`` forks a process for work whose progress a
screen shows, so that neither delays the other. The child reports over a pipe, one JSON object a line: messages about
the progress, then ``WorkEnded`` or ``WorkFailed``. The work ends when the pipe is closed, or on SIGINT.
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
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from memtui.core.errors import FAILURE, UserError
from memtui.core.json_fields import from_json_union, to_json

_PR_SET_PDEATHSIG = 1
STARTING_S = 120.0  # importing torch is slow from a slow disk


class WorkerEnded(Exception):
    """The child process has ended; the text says how."""


class JsonLineProcess:
    """A child process in a session of its own, so that keys of the terminal send it no signals.

    Attributes:
        ready: the child's first message.
    """

    def __init__(self, argv: Sequence[str], starting_s: float = STARTING_S) -> None:
        """Start the child and wait until it is ready. Raises WorkerEnded."""
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

    def send_message(self, message: object) -> None:
        """Send a message, a dataclass, to the child. Raises WorkerEnded."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(to_json(message)).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerEnded(self._how_it_ended()) from None

    def receive_message(self, seconds: float) -> dict[str, Any] | None:
        """Return the next message; None when none came within that many seconds. Raises WorkerEnded."""
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
        """End the child, whatever it does."""
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
    """Have the kernel send SIGTERM to this process when its parent ends, so that no run stays behind.

    For the kernel, the parent is the thread that started this process.

    Args:
        parent: the pid that the parent should have; another one means that it ended before this call. 0: not checked.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if parent and os.getppid() != parent:
        raise SystemExit(0)


ENDING_S = 10.0
Send = Callable[[object], None]
Work = Callable[[Send], list[str]]
Progress = TypeVar("Progress")  # the message about the progress of a work, a dataclass


@dataclass(frozen=True, slots=True)
class WorkStarted:
    """Reports that the preparation is over, of work that has no other progress to report."""

    at: str = field(default="start", init=False)


@dataclass(frozen=True, slots=True)
class WorkEnded:
    """Reports that the work is done; ``lines`` are its conclusion."""

    at: str = field(default="end", init=False)
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WorkFailed:
    """Reports that the work ended early: why, and the exit code of the command."""

    at: str = field(default="failure", init=False)
    text: str
    code: int


class BackgroundTask(Generic[Progress]):
    """Work in a child process, which starts at once.

    Attributes:
        over: no more messages will come.
        finished: the work is done.
        error: why the work ended early.
        conclusion: lines to print once the work is done.
    """

    def __init__(self, work: Work, progress: type[Progress]) -> None:
        """Start the work.

        Args:
            work: sends messages and returns its conclusion; runs in a child, so no thread may run yet.
            progress: the type of the messages that it sends.
        """
        self._types: tuple[type[Progress | WorkEnded | WorkFailed], ...] = (WorkEnded, WorkFailed, progress)
        self._read_fd, write_fd = os.pipe()
        self._buffer = b""
        self._early: list[Progress | WorkEnded | WorkFailed] = []  # received before the screen was there
        self.over = self.finished = False
        self.error: UserError | None = None
        self.conclusion: tuple[str, ...] = ()
        sys.stdout.flush()
        self._pid = os.fork()
        if not self._pid:
            code = 130
            try:
                os.close(self._read_fd)
                code = _child(work, write_fd)
            finally:
                os._exit(code)  # also after a ^C at any moment: no code of the parent may run in the child
        os.close(write_fd)

    def wait_for_start(self) -> bool:
        """Wait until the preparation is over and the work starts; False when it does not: ``error`` says why."""
        while not self.over and self.error is None:
            messages = self._read(1.0)
            self._early += messages
            if any(not isinstance(message, WorkFailed) and self.is_start(message) for message in messages):
                return True
        return False

    def is_start(self, message: Progress | WorkEnded) -> bool:
        """Whether the preparation is over with a message."""
        return True

    def receive_messages(self, seconds: float) -> list[Progress | WorkEnded | WorkFailed]:
        """Return the messages that came since the last call; wait at most that many seconds for the first."""
        if self._early:
            early, self._early = self._early, []
            return early
        return self._read(seconds)

    def receive_all(self, seconds: float) -> None:
        """Receive messages until the end of the work, at most that many seconds. Those of its progress are lost."""
        deadline_s = time.monotonic() + seconds
        while not self.over and (left_s := deadline_s - time.monotonic()) > 0:
            self._read(left_s)

    def note(self, message: Progress | WorkEnded | WorkFailed) -> None:
        """Process a message when it comes."""
        if isinstance(message, WorkFailed):
            self.error = UserError(message.text, message.code)
        elif isinstance(message, WorkEnded):
            self.finished, self.conclusion = True, message.lines

    def _read(self, seconds: float) -> list[Progress | WorkEnded | WorkFailed]:
        if self.over:
            time.sleep(seconds)
            return []
        if select.select([self._read_fd], [], [], seconds)[0]:
            chunk = os.read(self._read_fd, 1 << 16)
            self.over = not chunk
            self._buffer += chunk
        *lines, self._buffer = self._buffer.split(b"\n")
        messages = [from_json_union(self._types, json.loads(line)) for line in lines]
        for message in messages:
            self.note(message)
        return messages

    def end(self) -> None:
        """End the work, if it is not done, and wait for the child's end."""
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
    os.setsid()  # signals of the terminal are for the screen's process
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nothing, fd)

    def send(message: object) -> None:
        os.write(write_fd, json.dumps(to_json(message), separators=(",", ":")).encode() + b"\n")

    try:
        send(WorkEnded(tuple(work(send))))
    except UserError as error:
        send(WorkFailed(str(error), error.code))
    except (KeyboardInterrupt, BrokenPipeError):
        return 130
    except Exception as error:
        send(WorkFailed(f"{type(error).__name__}: {error}", FAILURE))
    return 0
