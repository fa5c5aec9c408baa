"""Owners of processes: a sampler that a user may start by a rule of sudo watches that user's processes only."""

from __future__ import annotations

import os
import re
from pathlib import Path

from memtui.core.procfs import PROC, read_status

_IDS = re.compile(r"^(Uid|Gid):\t(\d+)\t(\d+)\t(\d+)\t(\d+)$", re.M)
_CAPABILITIES = re.compile(r"^CapPrm:\t([0-9a-f]+)$", re.M)


class NotOwn(Exception):
    """The process does not belong to the user. The text says why."""


def check_owner(pid: int, uid: int, proc: Path = PROC, status: str | None = None) -> None:
    """Accept a process that the user could trace without being root (``__ptrace_may_access`` of the kernel).

    The same user id is not enough: a program that gained other rights by its file (set-user-ID, set-group-ID,
    capabilities) still has its user's id, but the user may not read it. ``status``: its /proc/PID/status, where the
    caller has just read it.

    Raises:
        ProcessLookupError: the process ended.
        NotOwn: it belongs to another user, or has other rights than its user.
    """
    folder = proc / str(pid)
    try:
        status = read_status(pid, proc) if status is None else status
        owner = folder.stat().st_uid  # root where the process may not be read
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(f"process {pid} ended") from None
    ids = {name: set(map(int, numbers)) for name, *numbers in _IDS.findall(status)}
    if ids.get("Uid") != {uid}:
        raise NotOwn(f"process {pid} belongs to another user")
    permitted = _CAPABILITIES.search(status)
    if owner != uid or len(ids.get("Gid", ())) != 1 or permitted is None or int(permitted[1], 16):
        raise NotOwn(f"process {pid} has rights that its user has not")


def looks_own(pid: int, uid: int, proc: Path = PROC) -> bool:
    """Whether the kernel shows the user as owner of the process: a faster check, for a paused process."""
    try:
        return os.stat(proc / str(pid)).st_uid == uid  # noqa: PTH116 (in a pause, and Path.stat takes longer)
    except OSError:
        return False
