"""Whether a process may and can be observed, before anything is started."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from memtui.errors import UserError
from memtui.foreign import short_command
from memtui.probes import pid_namespace
from memtui.probes.process import PROC, Stat, command_of, read_stat

_MOST_CANDIDATES = 8


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


def find_target(pid: int) -> tuple[int, str]:
    """The process somebody means by a number: (pid here, one line when it is not the number that was given).

    Of a thread, as top and htop show them, that is its process. Where nothing here has that number, a process that has
    it inside a container is meant, if there is only one. Raises UserError.
    """
    if (PROC / str(pid)).exists():
        process = _process_of(pid)
        if process == pid:
            return pid, ""
        return process, f"{pid} is a thread of process {process} ({_short_command(process)})"
    found = pids_inside(pid)
    if not found:
        raise UserError(f"no process has PID {pid}, here or in a container; `ps aux` shows what runs")
    if len(found) > 1:
        some = ", ".join(f"{outer} ({_short_command(outer)})" for outer in found[:_MOST_CANDIDATES])
        more = f" and {len(found) - _MOST_CANDIDATES} more" if len(found) > _MOST_CANDIDATES else ""
        raise UserError(f"PID {pid} exists in {len(found)} containers only; name one by its PID here: {some}{more}")
    return found[0], f"PID {pid} exists in a container only; out here it is {found[0]} ({_short_command(found[0])})"


def _process_of(thread: int) -> int:
    """The process that a thread belongs to, by their numbers; of a process that is itself."""
    try:
        status = (PROC / str(thread) / "status").read_text(errors="replace")
    except OSError:
        return thread  # it ended, which is told later
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("Tgid:")), thread)


def pids_inside(pid: int, proc: Path = PROC) -> list[int]:
    """Processes that have this number in a PID namespace below this one, by their number in this one."""
    found = []
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "status").read_text(errors="replace")
        except OSError:
            continue
        # NSpid: the number here, then in each namespace further inside. The name of the process cannot forge this
        # line, because the kernel writes line breaks in names as \n.
        numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
        if str(pid) in numbers[1:]:
            found.append(int(entry.name))
    return sorted(found)


def _short_command(pid: int) -> str:
    """Enough of a command line to know it by, and nothing that a terminal would act on."""
    try:
        command = command_of(pid)
    except ProcessLookupError:
        return "ended"
    return short_command(command, 40)


def check_target(pid: int) -> int:
    """Return the start time (ticks) of a process that can be observed; otherwise raise UserError."""
    if pid == 1 and pid_namespace.is_initial():  # in a container it may well be the training
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
    return stat.start_ticks


def belongs_to_another(pid: int) -> bool:
    """Whether only root may observe it: another user's, or one that gave up being traced (set-user-ID programs)."""
    try:
        return os.geteuid() not in (0, os.stat(f"/proc/{pid}").st_uid)
    except FileNotFoundError:
        return False


def others(proc: Path = PROC) -> Iterator[tuple[int, Stat]]:
    """Every process that runs and is neither this one, nor what it was started from, nor the kernel's."""
    hidden = ancestors(os.getpid()) | {os.getpid()}
    for name in os.listdir(proc):
        if name.isdigit() and int(name) not in hidden:
            try:
                stat = read_stat(int(name), proc)
            except OSError:
                continue
            if not (stat.kernel_thread or stat.ended):
                yield int(name), stat


def ancestors(pid: int) -> set[int]:
    """The parent of a process, its parent, and so on up to 1."""
    found: set[int] = set()
    while pid > 1:
        pid = read_stat(pid).parent_pid
        found.add(pid)
    return found
