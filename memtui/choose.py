"""Shows the home screen as the invoking user, whoever this process is, and says what was chosen."""

from __future__ import annotations

import os

from memtui.app import run_home
from memtui.home import Home
from memtui.privilege import Invoker, invoker, run_as, sessions_directory, state_directory
from memtui.terminal import prepare, require_terminal

Choice = tuple[str, str]  # a command and its argument


def choose_from_home() -> tuple[int, Choice | None]:
    """The exit code of the screen, and what was chosen, if anything. Raises UserError without a terminal."""
    require_terminal()
    user = invoker()
    # Under sudo in a child: what is chosen may need the rights.
    code, chosen = _show(user) if os.geteuid() or not user.uid else run_as(user, lambda: _show(user))
    return code, (chosen[0], chosen[1]) if chosen else None


def _show(user: Invoker) -> tuple[int, Choice | None]:
    prepare()
    return run_home(Home(state_directory(user), sessions_directory(user)).look)
