"""Starts the sampler: as this user, or through sudo, which then asks for the password before there is a screen.

Only the sampler is ever run through sudo, never the screen or the recorder. It reports its pid when it runs, so that
a password may be typed at leisure, and a refusal of sudo differs from one of the sampler. A sampler that is root cannot
be signalled from here; it ends when its input does, and sudo with it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from memtui.core.errors import UserError
from memtui.recording.network_power.credentials import without_credentials
from memtui.recording.sampler.commands import OWN, READY, REPORT_READY
from memtui.recording.targets import sudo_line

SAMPLER = "memtui.recording.sampler"
_READY_BYTES = 16
PROMPT = "[sudo] password for %p (only memtui's sampler will be root): "
WITHOUT_ROOT = ("rss", "referenced")  # trackers that see an own process without root
_NO_RIGHTS = ("is not in the sudoers file", "may not run sudo", "is not allowed to execute", "is not allowed to run")
_ADMINISTRATOR = "whoever administers this machine can grant the sudo rule in docs/reference/security.md"
_NOT_INSTALLED = "it is not installed"
_SAFE_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


@dataclass(frozen=True, slots=True)
class Started:
    """A sampler that runs, the reading end of its stream, and a line for the user, if there is one."""

    process: subprocess.Popen[bytes]  # the sampler, or the sudo around it
    stream: int
    pid: int
    notice: str = ""

    def pidfd(self) -> int:
        """Return a pidfd of a sampler under sudo, which is not a child of this process; -1 for any other."""
        if self.pid != self.process.pid:
            with suppress(OSError):
                return os.pidfd_open(self.pid)
        return -1


class _Refused(Exception):
    """sudo did not start the sampler; the text says why.

    Attributes:
        for_good: another try changes nothing: this user has no right to sudo, or sudo is not installed.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.for_good = why == _NOT_INSTALLED or any(phrase in why for phrase in _NO_RIGHTS)


def start_sampler(
    says: IO[bytes], *, sudo: bool | None, tracker: str, foreign: int = 0, verb: str = "attach"
) -> Started:
    """Start the sampler with the rights that the work needs, as far as they are granted.

    Args:
        says: a file for what it writes to standard error.
        sudo: True: only through sudo; False: never; None: where root is of use and sudo grants it, asking for the
            password when there is a terminal to ask on.
        tracker: the one that was requested.
        foreign: the pid of the target when only root may observe it; otherwise 0.
        verb: the command of the user, for the error that says what to do.

    Raises:
        UserError: root is needed and is not granted.
    """
    if os.geteuid() == 0:
        return _direct(says)
    of_use = bool(foreign) or tracker not in WITHOUT_ROOT
    why, for_good = "--no-sudo was given", False
    if sudo or (sudo is None and of_use):
        try:
            return _through_sudo(says, own=not foreign)
        except _Refused as refused:
            why, for_good = f"sudo: {refused}", refused.for_good
    elif not foreign:
        return _direct(says)
    if foreign and for_good:
        raise UserError(f"PID {foreign} belongs to another user ({why}); {_ADMINISTRATOR}, or watch a process of yours")
    if foreign:
        raise UserError(f"PID {foreign} belongs to another user ({why}); run: {sudo_line(verb, str(foreign))}")
    if sudo:
        raise UserError(f"no root ({why}); leave --sudo out to go on without")
    if tracker != "auto" and of_use:
        raise UserError(f"tracker {tracker} needs root ({why}); --tracker auto takes what works without")
    way_out = f"; {_ADMINISTRATOR}" if for_good else ""
    return _direct(says, f"without root, so pages are not seen one by one ({why}; --no-sudo does not ask{way_out})")


def _direct(says: IO[bytes], notice: str = "") -> Started:
    """Start the sampler with the rights of this process."""
    stream, stream_write = os.pipe()
    # Root works for another user: neither that user's variables nor site-packages may decide what code runs.
    for_another = os.geteuid() == 0 and "SUDO_UID" in os.environ
    try:
        process = subprocess.Popen(
            [sys.executable, "-I" if for_another else "-P", "-m", SAMPLER],
            stdin=subprocess.PIPE,
            stdout=stream_write,
            stderr=says,
            env=_SAFE_ENVIRONMENT if for_another else without_credentials(os.environ),
            start_new_session=True,  # signals of the terminal do not reach it
        )
    except BaseException:
        os.close(stream)
        raise
    finally:
        os.close(stream_write)
    return Started(process, stream, process.pid, notice)


def _through_sudo(says: IO[bytes], *, own: bool) -> Started:
    """Start the sampler for processes of this user, or for all. Raises _Refused."""
    sudo = shutil.which("sudo")
    if sudo is None:
        raise _Refused(_NOT_INSTALLED)
    prompt_options = ["-p", PROMPT] if _can_prompt() else ["-n"]
    argv = [sudo, *prompt_options, "--", sys.executable, "-I", "-m", SAMPLER, REPORT_READY, *([OWN] if own else [])]
    stream, stream_write = os.pipe()
    with _interrupts_noted() as interrupts:  # sudo may ask before Popen returns, and would be lost
        try:
            # In this session, because sudo asks on its terminal; the sampler leaves the session by itself.
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=stream_write,
                stderr=says,
                env=without_credentials(os.environ),
            )
        except BaseException:
            os.close(stream)
            raise
        finally:
            os.close(stream_write)
    try:
        pid = 0 if interrupts else _read_pid(stream)
        why = "interrupted" if interrupts else ""
    except KeyboardInterrupt:
        pid, why = 0, "interrupted"
    except BaseException:
        give_up(process, stream)
        raise
    if pid:
        return Started(process, stream, pid)
    give_up(process, stream)
    raise _Refused(why or _reason(says))


@contextmanager
def _interrupts_noted() -> Iterator[list[int]]:
    """Note ^C in the list, which raises nothing meanwhile; one that is ignored stays so, also in sudo."""
    interrupts: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if callable(before):
        signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)


def _read_pid(stream: int) -> int:
    """Return the pid that the sampler reports before anything else; 0 when it ended before that."""
    line = b""
    while not line.endswith(b"\n") and len(line) < _READY_BYTES:
        byte = os.read(stream, 1)
        if not byte:
            return 0
        line += byte
    digits = line[1:-1]
    return int(digits) if digits.isdigit() and line == READY % int(digits) else 0


def give_up(process: subprocess.Popen[bytes], stream: int) -> None:
    """Abandon a sampler: without input and without a reader, it ends by itself."""
    os.close(stream)
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(1.0)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        try:
            process.terminate()  # sudo, which still asks
            process.wait(1.0)
        except (PermissionError, subprocess.TimeoutExpired):
            pass


def _can_prompt() -> bool:
    """Whether the user can type a password: there is a terminal, and this process is in its foreground."""
    try:
        if not os.isatty(0):
            return False
        fd = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(fd)


def _reason(says: IO[bytes]) -> str:
    """Return the last line that sudo, or the Python under it, printed."""
    says.seek(0)
    lines = [line.strip() for line in says.read().decode(errors="replace").splitlines() if line.strip()]
    says.seek(0)
    says.truncate()
    last = lines[-1] if lines else "it ended without a word"
    if "No module named" in last:
        return f"root cannot import memtui from {sys.prefix}; install it where root finds it (a virtual environment)"
    return last.removeprefix("sudo: ").rstrip(".")
