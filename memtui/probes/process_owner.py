"""Whose a process is: the sampler that a rule of sudo lets a user start watches that user's processes only."""

from __future__ import annotations

import os
import re
from pathlib import Path

from memtui.core.procfs import PROC

_IDS = re.compile(r"^(Uid|Gid):\t(\d+)\t(\d+)\t(\d+)\t(\d+)$", re.M)
_CAPABILITIES = re.compile(r"^CapPrm:\t([0-9a-f]+)$", re.M)


class NotOwn(Exception):
    """A process that is not the user's. The text says whose."""


def check_owner(pid: int, uid: int, proc: Path = PROC) -> None:
    """Let pass what a user could trace without being root (``__ptrace_may_access`` of the kernel).

    Not only the user's number has to be the same: a program that got other rights by its file (set-user-ID,
    set-group-ID, capabilities) is everything it was before to its user, and none of the user's business.

    Raises:
        ProcessLookupError: it ended.
        NotOwn: it is another user's, or has other rights than its user.
    """
    folder = proc / str(pid)
    try:
        status = (folder / "status").read_text(errors="replace")
        owner = folder.stat().st_uid  # root's where the process may not be looked into
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(f"process {pid} ended") from None
    ids = {name: set(map(int, numbers)) for name, *numbers in _IDS.findall(status)}
    if ids.get("Uid") != {uid}:
        raise NotOwn(f"process {pid} belongs to another user")
    permitted = _CAPABILITIES.search(status)
    if owner != uid or len(ids.get("Gid", ())) != 1 or permitted is None or int(permitted[1], 16):
        raise NotOwn(f"process {pid} has rights that its user has not")


def looks_own(pid: int, uid: int, proc: Path = PROC) -> bool:
    """Whether the kernel calls the process that user's: in a fraction of the time, for a process that is held."""
    try:
        return os.stat(proc / str(pid)).st_uid == uid  # noqa: PTH116 (in a pause, and Path.stat takes longer)
    except OSError:
        return False
