"""Under sudo only the sampler stays root; everything else becomes the invoking user again."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Invoker:
    """The user who typed the command."""

    uid: int
    gid: int
    name: str
    home: Path


def invoker() -> Invoker:
    """The user behind sudo, or the current one."""
    uid = int(os.environ.get("SUDO_UID", "0")) if os.geteuid() == 0 else os.geteuid()
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Invoker(uid, int(os.environ.get("SUDO_GID", os.getgid())), str(uid), Path("/"))
    return Invoker(uid, entry.pw_gid, entry.pw_name, Path(entry.pw_dir))


def become(user: Invoker) -> None:
    """Give up root for good; no effect when this process is that user already."""
    if os.geteuid() != 0 or user.uid == 0:
        return
    os.initgroups(user.name, user.gid)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    os.environ |= {"HOME": str(user.home), "USER": user.name, "LOGNAME": user.name}


def state_directory(user: Invoker) -> Path:
    """Where that user's sessions live by default."""
    base = os.environ.get("XDG_STATE_HOME", "") if os.getuid() == user.uid else ""
    return (Path(base) if base else user.home / ".local" / "state") / "memtui"
