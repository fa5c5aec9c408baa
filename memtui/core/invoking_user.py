"""Gives up root for commands that do not need it under ``sudo memtui``. Imports POSIX modules only when needed."""

from __future__ import annotations

import os


def drop_root() -> None:
    """Become the invoking user under sudo: a session may come from anybody, and files are written for the user."""
    if "SUDO_UID" in os.environ and os.geteuid() == 0:
        from memtui.core.privilege import become, invoker

        become(invoker())
