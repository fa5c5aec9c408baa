"""Under sudo only the sampler stays root; everything else becomes the invoking user again.

This module finds out who that user is (``invoker``), gives up root for good (``become``), and restores the environment
that the user had before sudo emptied it (``users_environment``).
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

_LARGEST_ID = (1 << 32) - 2  # for the system calls that set ids, -1 means "no change"
# What sudo sets for the program it runs; none of it is the user's.
_SET_BY_SUDO = {"HOME", "LOGNAME", "MAIL", "PATH", "SHELL", "USER"}
_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Invoker:
    """The user who ran the command."""

    uid: int
    gid: int
    name: str
    home: Path
    shell: str = "/bin/sh"
    in_user_database: bool = True  # and so may have supplementary groups


def invoker() -> Invoker:
    """Return the user behind sudo, or the current one. Raises UserError when sudo's variables name no valid user."""
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
    """Whether this process is root on behalf of a user who is not."""
    return os.geteuid() == 0 and invoker().uid != 0


def root_notice() -> str:
    """Return one line when this is root and not on behalf of another user; otherwise an empty text."""
    if os.geteuid() != 0 or "SUDO_UID" in os.environ:
        return ""
    return "root, and no SUDO_UID names another user: recorder, screen, program and session are root's"


def become(user: Invoker) -> None:
    """Give up root for good and verify that; no effect when this process is that user already.

    The environment becomes the one that the user had before sudo, where it is known. Programs that this process starts
    may still use set-user-ID programs (a training may need apptainer or fusermount): callers call
    ``forbid_new_privileges`` after they started the last one.
    """
    if os.geteuid() != 0 or user.uid == 0:
        return
    environment = users_environment(user)
    groups = groups_of(user)
    os.setgroups(groups)
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    # This process has the pipe on which the sampler, which is root, takes orders.
    capabilities.forbid_tracing()
    _verify(user, groups)
    os.environ.clear()
    os.environ.update(environment)


def groups_of(user: Invoker) -> list[int]:
    """Return all groups of the user."""
    return os.getgrouplist(user.name, user.gid) if user.in_user_database else [user.gid]


def as_invoker(work: Callable[[], Any]) -> Any:
    """Call ``work`` with the rights of the user who ran the command, whose files it reads; return its result.

    Raises:
        UserError, OSError: see ``run_as``.
    """
    return run_as(invoker(), work) if borrows_root() else work()


def run_as(user: Invoker, work: Callable[[], Any]) -> Any:
    """Call ``work`` in a child that became the user, and return its result, which is JSON data.

    A child, because rights that a process gave up do not come back.

    Raises:
        UserError: that of ``work``, or one that says how it failed.
        OSError: that of ``work``.
    """
    environment_of_sudo()  # sudo is the parent of this process, and not of the child
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
    """Raise UserError when any right of root is left."""
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
        user: of whom.
        outer: the environment with which sudo was started; by default it is read.
    """
    outer = environment_of_sudo() if outer is None else outer
    now = {k: v for k, v in os.environ.items() if not k.startswith("SUDO_")}
    if outer:  # ``sudo NAME=value memtui ...`` adds to it
        return outer | {k: v for k, v in now.items() if k not in _SET_BY_SUDO}
    environment = now | {"HOME": str(user.home), "USER": user.name, "LOGNAME": user.name, "SHELL": user.shell}
    environment.pop("MAIL", None)
    environment["PATH"] = now.get("PATH") or _PATH
    if sys.prefix != sys.base_prefix:
        # sudo's secure_path leaves out a virtual environment that was active; that of this Python is the best guess.
        environment["PATH"] = f"{sys.prefix}/bin:{environment['PATH']}"
        environment["VIRTUAL_ENV"] = sys.prefix
    return environment


@cache
def environment_of_sudo() -> dict[str, str]:
    """Return the environment of the sudo that started this process; empty when it cannot be read.

    sudo empties the environment of the program that it runs, but it waits for the program, and its own environment
    stays as it was. The result is cached, so that a process that is forked from this one has it, too.
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
    """Return the folder of that user's state, with the sessions."""
    base = os.environ.get("XDG_STATE_HOME", "") if os.getuid() == user.uid else ""
    # The XDG specification: a relative path is to be ignored.
    return (Path(base) if base.startswith("/") else user.home / ".local" / "state") / "memtui"


def sessions_directory(user: Invoker) -> Path:
    """Return the folder for sessions without a given name."""
    return state_directory(user) / "sessions"


def runtime_directory(user: Invoker) -> Path | None:
    """Return a folder for that user's sockets where the state directory cannot hold one; None: there is no such one."""
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
        raise UserError(f"{variable} is {text!r}, which is not a user or group: unset it, or start memtui through sudo")
    return int(text)
