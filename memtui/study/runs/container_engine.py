"""A container by docker or podman: an empty image, with the files of this machine mounted into it.

So the program in it is the same one, with the same libraries and the same Python, and the only difference is the
container. What an engine starts is a child of its own monitor and not of memtui's. It is found by the PID that the
engine tells, waits until it is observed, and goes on then; only root may watch it in any case, so only root uses this.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memtui.core.errors import FAILURE, UserError
from memtui.core.privilege import invoker
from memtui.study.runs import program_launcher

ENGINES = ("docker", "podman")
PREFIX = "memtui-study"
_TRUSTED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ASK_SECONDS, _START_SECONDS, _END_SECONDS = 20.0, 60.0, 20.0
# The engine makes its own of them, nobody needs them, or (/var) the mounts of other containers are in them, which could
# not be taken away as long as they are in this one, too.
_LEFT_OUT = frozenset(("boot", "dev", "lost+found", "proc", "run", "sys", "var"))
_READ_ONLY = re.compile(r"bin|sbin|lib[\w.]*|usr|etc|opt|nix")
# Waits for the end of its input, however that comes, and takes away container and image of that name. An engine that is
# at it itself (--rm) says no for a while; the image goes when the container is gone.
_AT_END = """cat >/dev/null; name=$1; shift
"$@" kill "$name"
tries=0
while [ $tries -lt 60 ]; do "$@" rm -f "$name"; "$@" rmi "$name" && break; tries=$((tries + 1)); sleep 0.5; done"""


@dataclass(frozen=True, slots=True)
class Engine:
    """One that works here.

    Attributes:
        name: "docker" or "podman".
        version: of what runs the containers.
        cli: its command line, with global options.
        limits: options without which it would ask for more than this process may have.
    """

    name: str
    version: str
    cli: tuple[str, ...]
    limits: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """For a report."""
        return (
            f"{self.name} {self.version}, an empty image with the files of this machine mounted into it (system and "
            "Python read-only), on the network of this machine, with PID, mount, IPC and UTS namespaces and cgroups of "
            "its own"
        )

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> Engine:
        return cls(message["name"], message["version"], tuple(message["cli"]), tuple(message["limits"]))


def find() -> tuple[Engine | None, list[str]]:
    """Return the first engine that runs a program here, and why others do not.

    Nothing is said of one that is not there.
    """
    reasons = []
    for name in ENGINES:
        path = shutil.which(name, path=environment().get("PATH"))
        if path is None:
            continue
        if os.getuid() != 0:
            reasons.append(f"{name}: what it starts is no child of memtui, which only root may watch (sudo)")
            continue
        found, why = _tried(name, path)
        if found is not None:
            return found, reasons
        reasons.append(f"{name}: {why}")
    return None, reasons


def environment() -> dict[str, str]:
    """Return the environment of an engine's command line. Under sudo that is root's, and has nothing of the user."""
    if os.getuid() == 0 and invoker().uid != 0:
        return {"PATH": _TRUSTED, "HOME": "/root"}
    return dict(os.environ)


def _tried(name: str, path: str) -> tuple[Engine | None, str]:
    side = "Server" if name == "docker" else "Client"
    version, why = _asked((path, "version", "--format", f"{{{{.{side}.Version}}}}"))
    if version is None:
        return None, why
    for runtime in ((), ("--runtime", "runc")) if name == "podman" else ((),):
        engine = Engine(name, version, (path, *runtime), _limits() if name == "podman" else ())
        why = _trial(engine) or ""
        if not why:
            return engine, ""
        if shutil.which("runc", path=environment().get("PATH")) is None:
            break
    return None, why


def _limits() -> tuple[str, ...]:
    """Podman asks for the most that there is, which not every root may have."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    _, processes = resource.getrlimit(resource.RLIMIT_NPROC)
    most = int(Path("/proc/sys/kernel/pid_max").read_text())  # it lowers its own to that
    files = most if files == resource.RLIM_INFINITY else files
    processes = most if processes == resource.RLIM_INFINITY else min(processes, most)
    return ("--ulimit", f"nofile={files}:{files}", "--ulimit", f"nproc={processes}:{processes}")


def _asked(command: Sequence[str], seconds: float = _ASK_SECONDS, **more: Any) -> tuple[str | None, str]:
    """Return what a command printed, or None and its last line of complaint.

    The command runs as the worker will: as root, where this is.
    """
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=seconds,
            check=False,
            user=os.getuid(),
            group=os.getgid(),
            env=environment(),
            **({"stdin": subprocess.DEVNULL} | more if "input" not in more else more),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return None, lines[-1] if lines else f"it ended with status {done.returncode}"
    return done.stdout.decode(errors="replace").strip(), ""


def _trial(engine: Engine) -> str:
    """Return why a program cannot be run; empty where it can."""
    image = name = f"{PREFIX}-try-{os.getpid()}"
    _, why = _asked((*engine.cli, "import", "-", image), input=_empty_tar())
    if why:
        return why
    try:
        words = (sys.executable, "-P", "-c", "import memtui.study.runs.program_launcher")
        _, why = _asked(command(engine, name, image, words, (os.getuid(), os.getgid())))
        return why
    finally:
        _asked(("/bin/sh", "-c", _AT_END, "sh", name, *engine.cli), seconds=_START_SECONDS)


def command(engine: Engine, name: str, image: str, program: Sequence[str], user: tuple[int, int]) -> list[str]:
    """Return the command line that runs a program in a container. ``user``: uid and gid of the program."""
    shared = os.statvfs("/dev/shm")
    found = os.environ.get("PYTHONPATH")  # where memtui is; all else comes with the word to go on
    return [
        *(*engine.cli, "run", "--interactive", "--rm", "--name", name, "--network", "host", "--log-driver", "none"),
        *("--security-opt", "label=disable", "--shm-size", str(shared.f_blocks * shared.f_frsize)),
        *("--user", f"{user[0]}:{user[1]}", "--workdir", str(Path.cwd()), *engine.limits),
        *(word for mount in mounts() for word in ("--volume", mount)),
        *(("--env", f"PYTHONPATH={found}") if found else ()),
        *(image, *program),
    ]


def mounts(root: Path = Path("/")) -> list[str]:
    """Return what of this machine is seen in the container: system and Python read-only, everything else as it is."""
    found = []
    for folder in sorted(root.iterdir()):
        if folder.name in _LEFT_OUT or ":" in folder.name or not folder.is_dir():
            continue
        ending = ":ro" if _READ_ONLY.fullmatch(folder.name) else ""
        found.append(f"/{folder.name}:/{folder.name}{ending}")
    python = Path(sys.prefix)
    if not _READ_ONLY.fullmatch(python.parts[1]) and ":" not in sys.prefix:
        found.append(f"{python}:{python}:ro")
    return found


def _empty_tar() -> bytes:
    file = io.BytesIO()
    tarfile.open(fileobj=file, mode="w").close()
    return file.getvalue()


class Box:
    """A container with a program that waits.

    Attributes:
        pid: of the program, as this process sees it.
    """

    def __init__(self, engine: Engine, name: str, cpus: Sequence[int], program: Sequence[str], user: tuple[int, int]):
        self._engine, self._name = engine, name
        _, why = _asked((*engine.cli, "import", "-", name), input=_empty_tar())
        if why:
            raise UserError(f"{engine.name} took no image: {why}", FAILURE)
        words = program_launcher.words(cpus, "", program, f"{program_launcher.BOX}{name}")
        self._ender = subprocess.Popen(
            ["/bin/sh", "-c", _AT_END, "sh", name, *engine.cli],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
            start_new_session=True,  # ^C is not for it
        )
        self._client: subprocess.Popen[bytes] | None = None
        try:
            self._client = subprocess.Popen(
                command(engine, name, name, words, user),
                stdin=subprocess.PIPE,
                env=environment(),
                start_new_session=True,
            )
            self.pid = self._found_pid()
        except BaseException:
            self.end()
            raise

    def _found_pid(self) -> int:
        """PID of the program out here. Raises UserError."""
        assert self._client is not None
        deadline_s = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline_s and self._client.poll() is None:
            said, _ = _asked((*self._engine.cli, "inspect", "--format", "{{.State.Pid}}", self._name))
            if said is not None and said.isdigit() and int(said) and _is_there(int(said), self._name):
                return int(said)
            time.sleep(0.05)
        if self._client.poll() is not None:
            raise UserError(f"{self._engine.name} ended with status {self._client.returncode}", FAILURE)
        raise UserError(f"the process of {self._engine.name}'s container is not to be seen from here", FAILURE)

    def go(self) -> None:
        """Let the program begin, with the environment of this process."""
        assert self._client is not None
        assert self._client.stdin is not None
        with suppress(BrokenPipeError):
            self._client.stdin.write(json.dumps(dict(os.environ)).encode() + b"\n")
            self._client.stdin.flush()

    @property
    def runs(self) -> bool:
        """Whether the program runs still."""
        return self._client is not None and self._client.poll() is None

    def wait(self, seconds: float) -> int | None:
        """Status of a program that has ended, which the engine may be late to tell; None while it runs."""
        assert self._client is not None
        with suppress(subprocess.TimeoutExpired):
            return self._client.wait(seconds)
        return None

    def end(self) -> None:
        """Take everything away, also when this process may not do that itself any more."""
        assert self._ender.stdin is not None
        with suppress(BrokenPipeError):
            self._ender.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._ender.wait(_END_SECONDS)
        if self._client is not None:
            with suppress(BrokenPipeError):
                if self._client.stdin is not None:
                    self._client.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._client.wait(_END_SECONDS)


def _is_there(pid: int, name: str) -> bool:
    """Return whether a pid is of the process that waits, and not of another machine or namespace."""
    try:
        return f"{program_launcher.BOX}{name}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@contextmanager
def boxed(
    engine: Engine, name: str, cpus: Sequence[int], program: Sequence[str], user: tuple[int, int]
) -> Iterator[Box]:
    """Yield a container that is gone afterwards. Raises UserError."""
    box = Box(engine, name, cpus, program, user)
    try:
        yield box
    finally:
        box.end()
