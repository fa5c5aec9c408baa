"""A program that memtui starts: in the terminal memtui runs in, or in one of its own whose output goes to a log.

Either way the program waits at the exec gate (``memtui.recording.supervisor.exec_gate``) until it is observed.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from memtui.core.errors import FAILURE, UserError

PR_SET_CHILD_SUBREAPER = 36  # include/uapi/linux/prctl.h
COLUMNS, ROWS = 120, 36  # where memtui has no terminal either
BORDER_COLUMNS = 2  # that the screen needs around the output
_NOTHING: Mapping[str, str] = MappingProxyType({})
_LEAST_COLUMNS, _LEAST_ROWS = 40, 10


@dataclass(frozen=True, slots=True)
class Launch:
    """A program to start and observe. Without a log its output goes where memtui's goes."""

    command: tuple[str, ...]
    name: str = ""  # for the session file; the program's name when empty
    log: bool = False  # the program gets a terminal of its own, and its output goes to a file beside the session
    dies_with_memtui: bool = False  # only with a log
    trace_every: int | None = None  # one training step in this many is recorded with every allocation, from inside

    @property
    def session_name(self) -> str:
        """Prefix of the session's name where no file was named."""
        return self.name or Path(self.command[0]).name


class Adopted:
    """A child of this process that another process forked, with the methods of ``subprocess.Popen``."""

    stdin = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code of the child, negative for a signal; None while it runs."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, 0  # SIGCHLD is ignored here: the status is lost
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(0.01)
        return code

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:  # until then the pid is not reused
            os.kill(self.pid, number)


def start_here(
    command: Sequence[str], exec_gate_fd: int, extra_environment: Mapping[str, str] = _NOTHING
) -> subprocess.Popen[bytes]:
    """Start a program with streams, terminal and process group of this process, and ``extra_environment``."""
    argv = [sys.executable, "-P", "-m", "memtui.recording.supervisor.exec_gate", str(exec_gate_fd), *command]
    return subprocess.Popen(argv, pass_fds=(exec_gate_fd,), env={**os.environ, **extra_environment})


def start_apart(
    command: Sequence[str],
    exec_gate_fd: int,
    log: int,
    extra_environment: Mapping[str, str] = _NOTHING,
    *,
    dies_with_this: bool = False,
) -> tuple[Adopted, subprocess.Popen[bytes]]:
    """Start a program in a terminal of its own, and the logger of that terminal, which writes to ``log``.

    The logger is ``memtui.recording.supervisor.pty_logger``. Nobody types there: a read sees the end of the input at
    once.

    Raises UserError.
    """
    try:
        master, slave = os.openpty()
    except OSError as error:
        raise UserError(f"no terminal can be made for the program: {error.strerror}", FAILURE) from None
    _prepare(slave)
    pid_read, pid_write = os.pipe()
    command_fd = os.memfd_create("command")
    os.write(command_fd, b"\0".join(map(os.fsencode, command)))
    os.lseek(command_fd, 0, os.SEEK_SET)
    fds = (master, log, command_fd, pid_write, exec_gate_fd)
    how = [*(["--with-parent"] if dies_with_this else []), *map(str, fds), str(os.getpid())]
    _adopt_orphans(True)
    try:
        pty_logger = subprocess.Popen(
            [sys.executable, "-P", "-m", "memtui.recording.supervisor.pty_logger", *how],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            pass_fds=fds,
            env={**os.environ, **extra_environment},
            start_new_session=True,
        )
        for fd in (command_fd, pid_write, slave):
            os.close(fd)
        with os.fdopen(pid_read) as pipe:
            pid = pipe.readline()
        if not pid:
            raise UserError(f"no terminal can be made for the program: {_last_line(master)}", FAILURE)
    finally:
        _adopt_orphans(False)
        os.close(master)
    return Adopted(int(pid)), pty_logger


def _prepare(terminal: int) -> None:
    """Make a terminal as large as the one memtui runs in, with output as it was printed and input at its end."""
    mode = termios.tcgetattr(terminal)
    mode[1] &= ~termios.OPOST  # or every line in the log would end with a carriage return
    mode[3] &= ~(termios.ICANON | termios.ECHO)
    mode[6][termios.VMIN] = mode[6][termios.VTIME] = 0  # a read that would have to wait sees the end of the input
    termios.tcsetattr(terminal, termios.TCSANOW, mode)
    columns, rows = COLUMNS, ROWS
    for fd in (2, 0, 1):
        with suppress(OSError):
            columns, rows = os.get_terminal_size(fd)
            break
    columns, rows = max(_LEAST_COLUMNS, columns - BORDER_COLUMNS), max(_LEAST_ROWS, rows)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _adopt_orphans(on: bool) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(on), ctypes.c_ulong(0), ctypes.c_ulong(0), 0)


def _last_line(master: int) -> str:
    os.set_blocking(master, False)
    with suppress(OSError):
        if lines := os.read(master, 1 << 16).decode(errors="replace").split("\n"):
            return next(
                (line for line in reversed(lines) if line.strip()), "the process that logs its output ended at once"
            )
    return "the process that logs its output ended at once"
