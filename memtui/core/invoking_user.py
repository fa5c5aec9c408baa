"""Gives up root where ``sudo memtui`` has no use for it. Imports nothing of POSIX until it is needed."""

from __future__ import annotations

import os


def drop_root() -> None:
    """Become the invoking user under sudo: a session may be a stranger's, and what is written is the user's."""
    if "SUDO_UID" in os.environ and os.geteuid() == 0:
        from memtui.core.privilege import become, invoker

        become(invoker())
