"""A user of this machine who exists for as long as a test, and who may or may not use sudo."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import pattern_argv

NOBODY = 65534
PASSWORD = "correct horse 7"
_DROP_IN = Path("/etc/sudoers.d")
GATE = "MEMTUI_GATE"  # .ci/run sets it: what needs another user may not be left out there


@dataclass(frozen=True)
class User:
    """Somebody with a home of their own."""

    name: str
    uid: int
    gid: int
    home: Path

    def words(self, **environment: str) -> list[str]:
        """What to put before a command so that this user runs it, with a clean environment."""
        plain = {
            "HOME": str(self.home),
            "USER": self.name,
            "LOGNAME": self.name,
            "SHELL": "/bin/sh",
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "TERM": "xterm-256color",
            "XDG_CONFIG_HOME": os.environ.get("XDG_CONFIG_HOME", f"{self.home}/.config"),  # see conftest.py
        } | environment
        return [
            *("setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--init-groups", "env", "-i"),
            *(f"{name}={value}" for name, value in plain.items()),
        ]

    def start(self, *words: object, cwd: Path | None = None, **environment: str) -> subprocess.Popen[str]:
        """Run a command as this user, without a terminal."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [*self.words(**environment), *map(str, words)]
        return subprocess.Popen(command, cwd=cwd or self.home, text=True, start_new_session=True, **streams)

    def run(self, *words: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        child = self.start(*words, cwd=cwd, **environment)
        out, err = child.communicate(timeout=60)
        return subprocess.CompletedProcess(words, child.returncode, out, err)

    def memtui(self, *words: object, **more: Any) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "memtui", *words, **more)


def ran_as_nobody(run: Callable[[], object]) -> bool:
    """Run a function in a child process, as nobody where this is root; return whether it raised nothing."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            run()
            code = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def unless_gate(why: str) -> str:
    """Return why there is no other user here. Where there is a reason, that fails in the gate."""
    if why and os.environ.get(GATE):
        pytest.fail(f"the gate needs another user for this: {why}")
    return why


def why_not() -> str:
    """Empty, or why no such user can be made here."""
    if os.geteuid() != 0:
        return "needs root to make a user"
    for program in ("sudo", "useradd", "userdel", "chpasswd", "setpriv", "visudo"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    return can_run_as_other()


def why_no_fork() -> str:
    """Empty, or why a fork of a process of root cannot become another user here, and go on to import modules."""
    why = why_not()
    if not why:
        # An interpreter that cannot reach its own library may find another one.
        ours = [sys.executable, "-I", "-c", "import sys; sys.exit(sys.base_prefix != sys.argv[1])", sys.base_prefix]
        if subprocess.run(ours, user=OTHER, group="nogroup", capture_output=True, cwd="/", check=False).returncode:
            why = "another user cannot reach the library of this interpreter"
    return unless_gate(why)


@contextmanager
def temporary_user(sudo: str = "") -> Iterator[User]:
    """Make a user and take everything of them away afterwards.

    Args:
        sudo: what they may do, as sudoers says it after the user's name: ``ALL=(ALL:ALL) NOPASSWD: ALL``.
    """
    if why := unless_gate(why_not()):
        pytest.skip(why)
    name = f"memtui-t{os.getpid()}"
    rules = _DROP_IN / name.replace("-", "_")
    subprocess.run(["useradd", "-m", "-s", "/bin/sh", name], check=True, capture_output=True)
    try:
        subprocess.run(["chpasswd"], input=f"{name}:{PASSWORD}", text=True, check=True)
        if sudo:
            rules.write_text(f"{name} {sudo}\n")
            rules.chmod(0o440)
            subprocess.run(["visudo", "-cqf", rules], check=True)
        entry = pwd.getpwnam(name)
        yield User(name, entry.pw_uid, entry.pw_gid, Path(entry.pw_dir))
    finally:
        rules.unlink(missing_ok=True)
        subprocess.run(["userdel", "-r", "-f", name], check=False, capture_output=True)
        for left in ("/run/sudo/ts", "/var/lib/sudo/lectured"):
            Path(left, name).unlink(missing_ok=True)


@contextmanager
def as_other():
    """(folder of theirs, how to run something as another user)."""
    if why := unless_gate(can_run_as_other()):
        pytest.skip(why)
    home = Path(tempfile.mkdtemp())
    shutil.chown(home, OTHER, "nogroup")
    try:
        yield home, {"user": OTHER, "group": "nogroup", "cwd": home}
    finally:
        shutil.rmtree(home)


OTHER = "nobody"


def can_run_as_other() -> str:
    """Empty, or why another user cannot run this interpreter and this checkout."""
    if os.geteuid() != 0:
        return "needs root to become another user"
    words = [sys.executable, "-P", "-c", "import memtui.cli.main, numpy"]
    try:
        done = subprocess.run(words, user=OTHER, group="nogroup", capture_output=True, check=False)
    except PermissionError:
        return "the interpreter lies where another user cannot reach it"
    return "" if done.returncode == 0 else "this checkout lies where another user cannot read it"


NO_PASSWORD = "ALL=(ALL:ALL) NOPASSWD: ALL"


@contextmanager
def own_process(user: User, *words: object) -> Iterator[dict]:
    """A pattern that runs as this user, and what it says of itself."""
    with user.start(*pattern_argv(*words)) as child:
        try:
            assert child.stdout is not None
            yield json.loads(child.stdout.readline())
        finally:
            child.kill()
