"""Shows the home screen as the invoking user, whoever this process is, and says what was chosen."""

from __future__ import annotations

import json
import os

from memtui.app import run_home
from memtui.errors import FAILURE
from memtui.home import Home
from memtui.privilege import Invoker, become, invoker, sessions_directory, state_directory
from memtui.terminal import prepare, require_terminal

Choice = tuple[str, str]  # a command and its argument


def choose_from_home() -> tuple[int, Choice | None]:
    """The exit code of the screen, and what was chosen, if anything. Raises UserError without a terminal."""
    require_terminal()
    user = invoker()
    return _show(user) if os.geteuid() or not user.uid else _show_in_child(user)


def _show(user: Invoker) -> tuple[int, Choice | None]:
    prepare()
    return run_home(Home(state_directory(user), sessions_directory(user)).look)


def _show_in_child(user: Invoker) -> tuple[int, Choice | None]:
    """Under sudo: rights that are given up do not come back, and what is chosen may need them."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        code = FAILURE
        try:
            os.close(read_end)
            become(user)
            code, chosen = _show(user)
            os.write(write_end, json.dumps(chosen).encode())
        finally:
            os._exit(code)
    os.close(write_end)
    with open(read_end, "rb") as answer:
        words = answer.read(1 << 16)
    _, status = os.waitpid(child, 0)
    plain = json.loads(words) if words else None
    chosen = (str(plain[0]), str(plain[1])) if isinstance(plain, list) and len(plain) == 2 else None
    return os.waitstatus_to_exitcode(status), chosen
