"""Default places for the session and the sockets of a recording."""

from __future__ import annotations

import os
import re
import shutil
from datetime import datetime
from pathlib import Path

from memtui.core.errors import UserError
from memtui.core.files import check_place, ensure_folder
from memtui.core.privilege import Invoker, runtime_directory, sessions_directory, state_directory
from memtui.core.procfs import command_of
from memtui.core.text import program_name
from memtui.recording.control import FOLDER, Listener, open_listener

_NAME_CHARACTERS = 40


def default_session(user: Invoker, name: str) -> Path:
    """Return a named file under the user's state directory, which is created with mode 0700. Raises UserError."""
    folder = ensure_folder(sessions_directory(user), "name a file with -o")
    return folder / f"{name}-{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}.memtui"


def session_name(pid: int) -> str:
    """Return a prefix for the session of a process: its program and its PID, ``train.py-22880``."""
    try:
        command = command_of(pid)
    except ProcessLookupError:
        return str(pid)
    # A name in brackets is that of the task: the process has no command line.
    name = "" if command.startswith("[") else re.sub(r"[^\w.+]+", "-", program_name(command))
    name = name[:_NAME_CHARACTERS].strip("-.")
    return f"{name}-{pid}" if name else str(pid)


def check_inputs(program: str | None, output: Path | None, *, force: bool) -> None:
    """Raise UserError for a program that does not exist, or a session that could not be written."""
    if program is not None and shutil.which(program) is None:
        raise UserError(f"{program}: no such program (or not executable)")
    if output is not None:
        check_place(output, force=force)


def open_socket(user: Invoker, name: str) -> Listener | None:
    """Return a named socket that this user alone can reach; None where that cannot be created."""
    # The state directory first: the runtime directory is removed when its user logs out, and a recording may go on.
    folders = [folder / FOLDER for folder in (state_directory(user), runtime_directory(user)) if folder is not None]
    return open_listener(folders, name)
