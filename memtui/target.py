"""Whether a process may and can be observed, before anything is started."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from memtui.errors import UserError
from memtui.probes.process import read_stat


def sudo_line(*words: str) -> str:
    """The exact command that runs memtui as root: sudo's secure_path does not find a virtual environment."""
    program = Path(sys.argv[0]).absolute()
    installed = program.name == "memtui" and program.is_file() and os.access(program, os.X_OK)
    return shlex.join(["sudo", *([str(program)] if installed else [sys.executable, "-m", "memtui"]), *words])


def parse_pid(text: str) -> int:
    """A process id from the command line. Raises UserError."""
    try:
        pid = int(text)
    except ValueError:
        raise UserError(f"PID must be a number, not {text!r}") from None
    if pid <= 0:
        raise UserError(f"PID must be above 0, not {pid}")
    return pid


def check_target(pid: int, command: str) -> int:
    """Return the start time (ticks) of a process that can be observed by this user; otherwise raise UserError.

    Args:
        pid: the process.
        command: the memtui command that asks, for the line that says what to do.
    """
    if pid == 1:
        raise UserError("PID 1 is init: memtui does not observe it; name the training process")
    try:
        stat = read_stat(pid)
    except ProcessLookupError:
        raise UserError(f"no process has PID {pid}; `memtui doctor` and `ps aux` show what runs") from None
    if pid == os.getpid():
        raise UserError(f"PID {pid} is memtui itself; name another process")
    if pid in ancestors(os.getpid()):
        raise UserError(f"PID {pid} started this memtui (shell or terminal): pausing it would stop memtui too")
    if stat.kernel_thread:
        raise UserError(f"PID {pid} is a kernel thread: it has no memory of its own to observe")
    if stat.ended:
        raise UserError(f"PID {pid} has ended already and waits for its parent (zombie)")
    if os.geteuid() != 0 and os.stat(f"/proc/{pid}").st_uid != os.geteuid():
        raise UserError(f"PID {pid} belongs to another user; run: {sudo_line(command, str(pid))}")
    return stat.start_ticks


def ancestors(pid: int) -> set[int]:
    """The parent of a process, its parent, and so on up to 1."""
    found: set[int] = set()
    while pid > 1:
        pid = read_stat(pid).parent_pid
        found.add(pid)
    return found
