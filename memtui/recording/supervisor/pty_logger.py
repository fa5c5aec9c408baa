"""The terminal of a program that memtui started behind a screen: reads what the program prints and writes it to a log.

Run as ``python -m memtui.recording.supervisor.pty_logger [--with-parent] MASTER LOG COMMAND PID GATE PARENT``, with the
terminal as its standard streams, as leader of a session of its own, by the process PARENT, which adopts orphans. The
program's command line lies in the file COMMAND, so that a search by command line does not find the logger. The program
becomes PARENT's child, so that PARENT can wait for its exit status, and its pid is written to PID. ``--with-parent``:
the program ends when PARENT does, for whatever reason.

A logger belongs to the program and not to memtui: whatever of memtui dies, the logger goes on reading, or the program
would wait for ever on a terminal that is full. The logger leads the session in the program's place, because the kernel
hangs up on the remaining processes when the leader ends: helpers of a training (such as the one of ``multiprocessing``
that cleans up shared memory) end after the program. The logger ends when no process has the terminal open any more.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import sys
import termios
import time

from memtui.recording.supervisor import exec_gate

PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
POLL_SECONDS = 0.5  # where no process has the terminal open, but one may open it again
ADOPTION_SECONDS = 10.0
BLOCK_BYTES = 1 << 16
FAILURE = 1
_DEAF = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class Log:
    """A file whose disk may be full for a while: lost bytes are counted, and reported once writing works again."""

    def __init__(self, fd: int) -> None:
        self._fd, self._lost, self._why = fd, 0, ""

    def write(self, data: bytes) -> None:
        """Append data; never raises."""
        if self.report_loss():
            self._lost = self._put(data)
        else:
            self._lost += len(data)

    def report_loss(self) -> bool:
        """Write how many bytes are missing, if any are; return False when that does not fit either."""
        if not self._lost:
            return True
        note = f"\n[memtui: {self._lost} bytes of output are missing here: {self._why}]\n"
        if self._put(note.encode()):
            return False
        self._lost = 0
        return True

    def _put(self, data: bytes) -> int:
        """Write data, and return how many bytes could not be written."""
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            self._why = error.strerror or str(error)
        return len(data)


def main() -> int:
    arguments = sys.argv[1:]
    if with_parent := arguments[0] == "--with-parent":
        arguments = arguments[1:]
    master, log, command, pid_fd, go, parent = map(int, arguments)
    with os.fdopen(command, "rb") as file:
        program = [os.fsdecode(word) for word in file.read().split(b"\0")]
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    between = os.fork()
    if not between:
        if os.fork():
            os._exit(0)  # and the new child is an orphan, which PARENT adopts
        code = FAILURE
        try:
            os.close(master)
            os.close(log)
            if _adopted(parent):
                _become_foreground()
                if with_parent:
                    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
                os.write(pid_fd, b"%d\n" % os.getpid())
                os.close(pid_fd)
                code = exec_gate.become(go, program)
            sys.stderr.flush()
        finally:
            os._exit(code)
    for number in _DEAF:
        signal.signal(number, signal.SIG_IGN)
    os.waitpid(between, 0)
    for fd in (pid_fd, go):
        os.close(fd)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):  # the terminal is open as long as any process has it open, and this one is not to count
        os.dup2(nothing, fd)
    os.close(nothing)
    os.chdir("/")  # so that this process keeps no file system in use
    keep(master, Log(log))
    return 0


def keep(master: int, log: Log) -> None:
    """Write output to the log until no process has the terminal open any more."""
    while True:
        try:
            data = os.read(master, BLOCK_BYTES)
        except OSError:  # EIO: no process has the terminal open now
            if not _members():
                log.report_loss()
                return
            time.sleep(POLL_SECONDS)
            continue
        log.write(data)


def _members() -> bool:
    """Whether another process is in this session: it could open the terminal again, and would get a hang-up."""
    own = os.getpid()
    for name in os.listdir("/proc"):  # noqa: PTH208 (pathlib would be loaded for this alone)
        if not name.isdigit() or int(name) == own:
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 (as above)
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == own and fields[0] not in (b"Z", b"X"):
            return True
    return False


def _adopted(parent: int) -> bool:
    """Wait until this process is PARENT's child."""
    deadline = time.monotonic() + ADOPTION_SECONDS
    while os.getppid() != parent:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def _become_foreground() -> None:
    """Create a process group in the foreground of the terminal, as a shell starts a program."""
    os.setpgid(0, 0)
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, before)


if __name__ == "__main__":
    sys.exit(main())
