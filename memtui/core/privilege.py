"""Under sudo only the sampler stays root; everything else becomes the invoking user again.

Three things follow from a user's wish to be asked for a password once, or not at all: who the user is (``invoker``),
how a process stops being root for good (``become``), and what that user's environment was before sudo emptied it.
"""

from __future__ import annotations

import json
import os
import pwd
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from memtui.core import capabilities
from memtui.core.errors import FAILURE, UserError
from memtui.core.procfs import read_stat

_LARGEST_ID = (1 << 32) - 2  # -1 means "leave it" to the system calls that set ids
# What sudo sets for the program it runs; none of it is the user's.
_SET_BY_SUDO = {"HOME", "LOGNAME", "MAIL", "PATH", "SHELL", "USER"}
_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Invoker:
    """The user who typed the command."""

    uid: int
    gid: int
    name: str
    home: Path
    shell: str = "/bin/sh"
    in_user_database: bool = True  # and so may have supplementary groups


def invoker() -> Invoker:
    """Return the user behind sudo, or the current one. Raises UserError when sudo's variables name nobody possible."""
    behind_sudo = os.geteuid() == 0 and "SUDO_UID" in os.environ
    uid = _id_of("SUDO_UID") if behind_sudo else os.geteuid()
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        if behind_sudo:
            return Invoker(uid, _id_of("SUDO_GID"), str(uid), Path("/"), in_user_database=False)
        return Invoker(uid, os.getegid(), str(uid), Path(os.environ.get("HOME") or "/"), in_user_database=False)
    return Invoker(uid, entry.pw_gid, entry.pw_name, Path(entry.pw_dir), entry.pw_shell or "/bin/sh")


def borrows_root() -> bool:
    """Whether this process is root for a user who is not."""
    return os.geteuid() == 0 and invoker().uid != 0


def root_notice() -> str:
    """Return one line when root works for no one else; empty otherwise."""
    if os.geteuid() != 0 or "SUDO_UID" in os.environ:
        return ""
    return "root, and no SUDO_UID names another user: recorder, screen, program and session are root's"


def become(user: Invoker) -> None:
    """Give up root for good and verify it; no effect when this process is that user already.

    The environment becomes the one that user had before sudo, as far as it can be known. Programs started from here
    may still use set-user-ID programs (a training may need apptainer or fusermount): ``forbid_new_privileges`` is
    called once the last of them runs.
    """
    if os.geteuid() != 0 or user.uid == 0:
        return
    environment = users_environment(user)
    groups = groups_of(user)
    os.setgroups(groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    # It holds the pipe on which the sampler, which is root, takes orders.
    capabilities.forbid_tracing()
    _verify(user, groups)
    os.environ.clear()
    os.environ.update(environment)


def groups_of(user: Invoker) -> list[int]:
    """Return all that the user is in."""
    return os.getgrouplist(user.name, user.gid) if user.in_user_database else [user.gid]


def as_invoker(work: Callable[[], Any]) -> Any:
    """Return what ``work`` returns with the rights of the user who typed the command, whose files it reads.

    Raises:
        UserError, OSError: see ``run_as``.
    """
    return run_as(invoker(), work) if borrows_root() else work()


def run_as(user: Invoker, work: Callable[[], Any]) -> Any:
    """Return what ``work`` returns, plain data, in a child that became the user: rights given up do not come back.

    Raises:
        UserError: that of ``work``, or one that says how it failed.
        OSError: that of ``work``.
    """
    environment_of_sudo()  # which is this process's parent, and not the child's
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            try:
                become(user)
                answer = {"is": work()}
            except UserError as error:
                answer = {"error": str(error), "code": error.code}
            except OSError as error:
                answer = {"system": [error.errno, error.strerror, error.filename and os.fsdecode(error.filename)]}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}", "code": FAILURE}
            with os.fdopen(writing, "w") as pipe:
                json.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    answer = json.loads(text) if text else {"error": f"a child that became {user.name} was killed", "code": FAILURE}
    if "system" in answer:
        raise OSError(*answer["system"])
    if "error" in answer:
        raise UserError(answer["error"], answer["code"])
    return answer["is"]


def _verify(user: Invoker, groups: list[int]) -> None:
    """Raise UserError when anything of root is left."""
    left = ""
    if os.getresuid() != (user.uid,) * 3:
        left = f"user ids {os.getresuid()}"
    elif os.getresgid() != (user.gid,) * 3:
        left = f"group ids {os.getresgid()}"
    elif set(os.getgroups()) != set(groups):
        left = f"groups {os.getgroups()}"
    elif mask := capabilities.effective():
        left = f"capabilities {', '.join(capabilities.names(mask))}"
    else:
        try:
            os.setuid(0)
            left = "the way back to root"
        except PermissionError:
            return
    raise UserError(f"root could not be given up: {left} remained; nothing was started", FAILURE)


def users_environment(user: Invoker, outer: dict[str, str] | None = None) -> dict[str, str]:
    """Return the environment of the user for whom sudo runs this process.

    Args:
        user: whose.
        outer: the environment sudo was started with; by default it is looked up.
    """
    outer = environment_of_sudo() if outer is None else outer
    now = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
    if outer:  # ``sudo NAME=value memtui ...`` adds to it
        return outer | {k: v for k, v in now.items() if k not in _SET_BY_SUDO}
    environment = now | {"HOME": str(user.home), "USER": user.name, "LOGNAME": user.name, "SHELL": user.shell}
    environment.pop("MAIL", None)
    environment["PATH"] = now.get("PATH") or _PATH
    if sys.prefix != sys.base_prefix:
        # sudo's secure_path leaves out a virtual environment that was active; this one is the best guess at it.
        environment["PATH"] = f"{sys.prefix}/bin:{environment['PATH']}"
        environment["VIRTUAL_ENV"] = sys.prefix
    return environment


@cache
def environment_of_sudo() -> dict[str, str]:
    """Return what the user's shell gave to the sudo that started this process; empty when that cannot be seen.

    sudo empties the environment of what it runs, but it waits for it, and keeps its own. Asked once, so that a process
    that is forked from this one still knows it.
    """
    try:
        parent = read_stat(os.getpid()).parent_pid
        if Path(f"/proc/{parent}/exe").readlink().name != "sudo":
            return {}
        raw = Path(f"/proc/{parent}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in raw.split(b"\0") if b"=" in entry)
    return {name: value for name, _, value in pairs if name}


def state_directory(user: Invoker) -> Path:
    """Return where that user's sessions live by default."""
    base = os.environ.get("XDG_STATE_HOME", "") if os.getuid() == user.uid else ""
    # The XDG specification: a relative path is to be ignored.
    return (Path(base) if base.startswith("/") else user.home / ".local" / "state") / "memtui"


def sessions_directory(user: Invoker) -> Path:
    """Return where sessions go that were given no name."""
    return state_directory(user) / "sessions"


def runtime_directory(user: Invoker) -> Path | None:
    """Where that user's sockets may lie when the state directory cannot hold one; None when there is no such place."""
    own = os.environ.get("XDG_RUNTIME_DIR", "") if os.getuid() == user.uid else ""
    for base in (own, f"/run/user/{user.uid}"):
        try:
            status = os.lstat(base) if base.startswith("/") else None
        except OSError:
            continue
        if status and stat.S_ISDIR(status.st_mode) and status.st_uid == user.uid and not status.st_mode & 0o077:
            return Path(base) / "memtui"
    return None


def _id_of(variable: str) -> int:
    """Return a user or group id that sudo passed on. Raises UserError."""
    text = os.environ.get(variable, "")
    if not (text.isascii() and text.isdigit() and int(text) <= _LARGEST_ID):
        raise UserError(f"{variable} is {text!r}, which is no user or group: unset it, or start memtui through sudo")
    return int(text)
