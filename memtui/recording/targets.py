"""The process that is to be observed, by its number: which one is meant, and whether it may and can be observed.

That is checked before anything is started. What it is called by name or rank: ``recording/target_search.py``.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from memtui.core import procfs
from memtui.core.errors import UserError
from memtui.core.procfs import PROC, Stat, command_of, read_stat
from memtui.core.secrets import mask_secrets
from memtui.core.text import short_command, some_of

_MOST_NAMED = 8
_NAME_CHARACTERS = 40
_OWN = re.compile(
    r"\s-m memtui\b(?!\.(?:study\.)?workloads)|(?:^|/)memtui(?:\s|$)|\bmemtui\.(?:recording|sampler|recorder|gate)\b"
)


def sudo_line(*arguments: str) -> str:
    """Return the exact command that runs memtui as root: sudo's secure_path does not find a virtual environment."""
    program = Path(sys.argv[0]).absolute()
    installed = program.name == "memtui" and program.is_file() and os.access(program, os.X_OK)
    return shlex.join(["sudo", *([str(program)] if installed else [sys.executable, "-m", "memtui"]), *arguments])


def parse_pid(text: str) -> int:
    """Return a process id from the command line. Raises UserError."""
    try:
        pid = int(text)
    except ValueError:
        raise UserError(f"PID must be a number, not {text!r}") from None
    if pid <= 0:
        raise UserError(f"PID must be above 0, not {pid}")
    return pid


def find_target(pid: int) -> tuple[int, str]:
    """Return the process that a number names: (pid here, one line when it is not the number that was given).

    Of a thread, as top and htop show them, that is its process. Where nothing here has that number, a process that has
    it inside a container is meant, if there is only one. Raises UserError.
    """
    if (PROC / str(pid)).exists():
        process = _process_of(pid)
        if process == pid:
            return pid, ""
        return process, f"{pid} is a thread of process {process} ({recognisable(process)})"
    pids = pids_inside(pid)
    if not pids:
        raise UserError(f"no process has PID {pid}, here or in a container; `ps aux` shows what runs")
    if len(pids) > 1:
        some = some_of(pids, _MOST_NAMED, lambda outer: f"{outer} ({recognisable(outer)})")
        raise UserError(f"PID {pid} exists in {len(pids)} containers only; name one by its PID here: {some}")
    return pids[0], f"PID {pid} exists in a container only; out here it is {pids[0]} ({recognisable(pids[0])})"


def _process_of(thread: int) -> int:
    """Return the process that a thread belongs to, by their numbers; of a process that is itself."""
    try:
        status = (PROC / str(thread) / "status").read_text(errors="replace")
    except OSError:
        return thread  # it ended, which is reported later
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("Tgid:")), thread)


def pids_inside(pid: int, proc: Path = PROC) -> list[int]:
    """Return the processes that have this number in a PID namespace below this one, by their number here."""
    pids = []
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
            pids.append(int(entry.name))
    return sorted(pids)


def recognisable(pid: int, characters: int = _NAME_CHARACTERS) -> str:
    """Return enough of a command line to recognise it by, without secrets, and nothing that a terminal would act on."""
    try:
        command = command_of(pid)
    except ProcessLookupError:
        return "ended"
    return short_command(mask_secrets(command), characters)


def check_target(pid: int) -> int:
    """Return the start time (ticks) of a process that can be observed; otherwise raise UserError."""
    if pid == 1 and procfs.in_initial_pid_namespace():  # in a container it may well be the training
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
        return os.geteuid() not in (0, Path(f"/proc/{pid}").stat().st_uid)
    except FileNotFoundError:
        return False


def others(proc: Path = PROC) -> Iterator[tuple[int, Stat]]:
    """Return every process that runs and is neither this one, nor what it was started from, nor the kernel's."""
    hidden = ancestors(os.getpid()) | {os.getpid()}
    for folder in proc.iterdir():
        if folder.name.isdigit() and (pid := int(folder.name)) not in hidden:
            try:
                stat = read_stat(pid, proc)
            except OSError:
                continue
            if not (stat.kernel_thread or stat.ended):
                yield pid, stat


def ancestors(pid: int) -> set[int]:
    """Return the parent of a process, its parent, and so on up to 1, or up to one that has ended."""
    pids: set[int] = set()
    with suppress(ProcessLookupError):
        while pid > 1:
            pid = read_stat(pid).parent_pid
            pids.add(pid)
    return pids


def is_own(command: str) -> bool:
    """Whether a command line is memtui's."""
    return bool(_OWN.search(command))
