"""The terminal of a program that memtui started behind a screen: takes in what it prints and writes it to the log.

Run as ``python -m memtui.recording.supervisor.pty_logger [--with-parent] MASTER LOG WORDS TELL GATE PARENT``, with the
terminal as its standard streams, at the head of a session of its own, by the process PARENT, which adopts orphans. The
program (its words lie in the file WORDS: who looks for it by its command line must not find this) becomes PARENT's
child, so that its exit status is known there, and its pid is told on TELL. ``--with-parent``: it ends when PARENT does,
however that comes.

A keeper belongs to the program and not to memtui: whatever of memtui dies, it goes on reading, or the program would
wait for ever on a terminal that is full. It is the head of the session in the program's place, because the kernel hangs
up on all who are left when that one ends: helpers of a training (such as the one of ``multiprocessing`` that clears up
shared memory) end after it. It ends when nobody has the terminal any more.
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
LOOK_SECONDS = 0.5  # where nobody has the terminal open, but somebody may open it again
ADOPTION_SECONDS = 10.0
BLOCK_BYTES = 1 << 16
FAILURE = 1
_DEAF = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class Log:
    """A file that may be full for a while: what it could not take is counted, and told once it takes some again."""

    def __init__(self, fd: int) -> None:
        self._fd, self._lost, self._why = fd, 0, ""

    def write(self, data: bytes) -> None:
        """Append; never raises."""
        if self.report_loss():
            self._lost = self._put(data)
        else:
            self._lost += len(data)

    def report_loss(self) -> bool:
        """Say what is missing, if anything is; False when there is no room for that either."""
        if not self._lost:
            return True
        note = f"\n[memtui: {self._lost} bytes of output are missing here: {self._why}]\n"
        if self._put(note.encode()):
            return False
        self._lost = 0
        return True

    def _put(self, data: bytes) -> int:
        """Return how many bytes it did not take."""
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as error:
            self._why = error.strerror or str(error)
        return len(data)


def main() -> int:
    words = sys.argv[1:]
    if with_parent := words[0] == "--with-parent":
        words = words[1:]
    master, log, command, tell, go, parent = map(int, words)
    with os.fdopen(command, "rb") as file:
        program = [os.fsdecode(word) for word in file.read().split(b"\0")]
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    between = os.fork()
    if not between:
        if os.fork():
            os._exit(0)  # and the other one is an orphan, which PARENT adopts
        code = FAILURE
        try:
            os.close(master)
            os.close(log)
            if _adopted(parent):
                _become_foreground()
                if with_parent:
                    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
                os.write(tell, b"%d\n" % os.getpid())
                os.close(tell)
                code = exec_gate.become(go, program)
            sys.stderr.flush()
        finally:
            os._exit(code)
    for number in _DEAF:
        signal.signal(number, signal.SIG_IGN)
    os.waitpid(between, 0)
    for fd in (tell, go):
        os.close(fd)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):  # the terminal is open as long as anybody has it open, and this one is not to count
        os.dup2(nothing, fd)
    os.close(nothing)
    os.chdir("/")  # no file system is in use by this
    keep(master, Log(log))
    return 0


def keep(master: int, log: Log) -> None:
    """Write what comes to the log until nobody has the terminal any more."""
    while True:
        try:
            data = os.read(master, BLOCK_BYTES)
        except OSError:  # EIO: nobody has it open now
            if not _members():
                log.report_loss()
                return
            time.sleep(LOOK_SECONDS)
            continue
        log.write(data)


def _members() -> bool:
    """Whether anybody else is in this session, who could open the terminal again, and whom its end would hang up."""
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
    """Make a process group in the foreground of the terminal, as a shell starts a program."""
    os.setpgid(0, 0)
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, before)


if __name__ == "__main__":
    sys.exit(main())
