"""A container by docker or podman: an empty image, with the files of this machine mounted into it.

So the program in it is the same one, with the same libraries and the same Python, and the only difference is the
container. A program that an engine starts is a child of the engine's monitor and not of memtui. The engine reports its
PID; the program waits until it is observed, and goes on then. Only root may observe it, so only root uses engines.
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
from collections.abc import Iterator, Sequence
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
_COMMAND_SECONDS, _START_SECONDS, _END_SECONDS = 20.0, 60.0, 20.0
# Folders that the engine makes itself, that no program needs, or (/var) that have mounts of other containers, which
# could not be unmounted as long as they are in this container, too.
_LEFT_OUT = frozenset(("boot", "dev", "lost+found", "proc", "run", "sys", "var"))
_READ_ONLY = re.compile(r"bin|sbin|lib[\w.]*|usr|etc|opt|nix")
# Waits for the end of its input, however that comes, and removes container and image of that name. While the engine
# removes the container itself (--rm), the commands fail; the image can be removed when the container is gone.
_REMOVE_SCRIPT = """cat >/dev/null; name=$1; shift
"$@" kill "$name"
tries=0
while [ $tries -lt 60 ]; do "$@" rm -f "$name"; "$@" rmi "$name" && break; tries=$((tries + 1)); sleep 0.5; done"""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that works here.

    Attributes:
        name: "docker" or "podman".
        version: version of the part that runs the containers.
        cli: its command line, with global options.
        limits: options without which the engine would set higher resource limits than this process may.
    """

    name: str
    version: str
    cli: tuple[str, ...]
    limits: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """Description for a report."""
        return (
            f"{self.name} {self.version}, an empty image with the files of this machine mounted into it (system and "
            "Python read-only), on the network of this machine, with PID, mount, IPC and UTS namespaces and cgroups of "
            "its own"
        )


def find() -> tuple[Engine | None, list[str]]:
    """Return the first engine that runs a program here, and why other installed engines do not."""
    reasons = []
    for name in ENGINES:
        path = shutil.which(name, path=environment().get("PATH"))
        if path is None:
            continue
        if os.getuid() != 0:
            reasons.append(f"{name}: what it starts is not a child of memtui, which only root may watch (sudo)")
            continue
        engine, why = _try(name, path)
        if engine is not None:
            return engine, reasons
        reasons.append(f"{name}: {why}")
    return None, reasons


def environment() -> dict[str, str]:
    """Return the environment of an engine's command line: under sudo root's, without variables of the user."""
    if os.getuid() == 0 and invoker().uid != 0:
        return {"PATH": _TRUSTED, "HOME": "/root"}
    return dict(os.environ)


def _try(name: str, path: str) -> tuple[Engine | None, str]:
    side = "Server" if name == "docker" else "Client"
    version, why = _run_command((path, "version", "--format", f"{{{{.{side}.Version}}}}"))
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
    """Return options for podman, which by default sets the highest limits; not every root may set those."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    _, processes = resource.getrlimit(resource.RLIMIT_NPROC)
    most = int(Path("/proc/sys/kernel/pid_max").read_text())  # podman lowers its own limits to that
    files = most if files == resource.RLIM_INFINITY else files
    processes = most if processes == resource.RLIM_INFINITY else min(processes, most)
    return ("--ulimit", f"nofile={files}:{files}", "--ulimit", f"nproc={processes}:{processes}")


def _run_command(command: Sequence[str], seconds: float = _COMMAND_SECONDS, **more: Any) -> tuple[str | None, str]:
    """Run a command with the user of the worker; return its output, or None and its last line on standard error."""
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
    """Return why the engine cannot run a program; "" where it can."""
    image = name = f"{PREFIX}-try-{os.getpid()}"
    _, why = _run_command((*engine.cli, "import", "-", image), input=_empty_tar())
    if why:
        return why
    try:
        argv = (sys.executable, "-P", "-c", "import memtui.study.runs.program_launcher")
        _, why = _run_command(command(engine, name, image, argv, (os.getuid(), os.getgid())))
        return why
    finally:
        _run_command(("/bin/sh", "-c", _REMOVE_SCRIPT, "sh", name, *engine.cli), seconds=_START_SECONDS)


def command(engine: Engine, name: str, image: str, program: Sequence[str], user: tuple[int, int]) -> list[str]:
    """Return the command line that runs a program in a container. ``user``: uid and gid of the program."""
    shared = os.statvfs("/dev/shm")
    python_path = os.environ.get("PYTHONPATH")  # where memtui is; the other variables come with ``Container.go``
    return [
        *(*engine.cli, "run", "--interactive", "--rm", "--name", name, "--network", "host", "--log-driver", "none"),
        *("--security-opt", "label=disable", "--shm-size", str(shared.f_blocks * shared.f_frsize)),
        *("--user", f"{user[0]}:{user[1]}", "--workdir", str(Path.cwd()), *engine.limits),
        *(word for mount in mounts() for word in ("--volume", mount)),
        *(("--env", f"PYTHONPATH={python_path}") if python_path else ()),
        *(image, *program),
    ]


def mounts(root: Path = Path("/")) -> list[str]:
    """Return the volumes of the container: the folders of this machine, system and Python read-only."""
    volumes = []
    for folder in sorted(root.iterdir()):
        if folder.name in _LEFT_OUT or ":" in folder.name or not folder.is_dir():
            continue
        ending = ":ro" if _READ_ONLY.fullmatch(folder.name) else ""
        volumes.append(f"/{folder.name}:/{folder.name}{ending}")
    python = Path(sys.prefix)
    if not _READ_ONLY.fullmatch(python.parts[1]) and ":" not in sys.prefix:
        volumes.append(f"{python}:{python}:ro")
    return volumes


def _empty_tar() -> bytes:
    file = io.BytesIO()
    tarfile.open(fileobj=file, mode="w").close()
    return file.getvalue()


class Container:
    """A container with a program that waits.

    Attributes:
        pid: PID of the program in the namespace of this process.
    """

    def __init__(self, engine: Engine, name: str, cpus: Sequence[int], program: Sequence[str], user: tuple[int, int]):
        self._engine, self._name = engine, name
        _, why = _run_command((*engine.cli, "import", "-", name), input=_empty_tar())
        if why:
            raise UserError(f"{engine.name} took no image: {why}", FAILURE)
        argv = program_launcher.command_line(cpus, "", program, f"{program_launcher.CONTAINER_PARENT}{name}")
        self._ender = subprocess.Popen(
            ["/bin/sh", "-c", _REMOVE_SCRIPT, "sh", name, *engine.cli],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(),
            start_new_session=True,  # ^C does not reach it
        )
        self._client: subprocess.Popen[bytes] | None = None
        try:
            self._client = subprocess.Popen(
                command(engine, name, name, argv, user),
                stdin=subprocess.PIPE,
                env=environment(),
                start_new_session=True,
            )
            self.pid = self._wait_for_pid()
        except BaseException:
            self.end()
            raise

    def _wait_for_pid(self) -> int:
        """Wait for the program, and return its PID in the namespace of this process. Raises UserError."""
        assert self._client is not None
        deadline_s = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline_s and self._client.poll() is None:
            output, _ = _run_command((*self._engine.cli, "inspect", "--format", "{{.State.Pid}}", self._name))
            if output is not None and output.isdigit() and int(output) and _is_there(int(output), self._name):
                return int(output)
            time.sleep(0.05)
        if self._client.poll() is not None:
            raise UserError(f"{self._engine.name} ended with status {self._client.returncode}", FAILURE)
        raise UserError(f"the process of {self._engine.name}'s container is not to be seen from here", FAILURE)

    def go(self) -> None:
        """Start the program with the environment of this process."""
        assert self._client is not None
        assert self._client.stdin is not None
        with suppress(BrokenPipeError):
            self._client.stdin.write(json.dumps(dict(os.environ)).encode() + b"\n")
            self._client.stdin.flush()

    @property
    def runs(self) -> bool:
        """Whether the program still runs."""
        return self._client is not None and self._client.poll() is None

    def wait(self, seconds: float) -> int | None:
        """Wait for the exit status of the program, which the engine may report late; None while it runs."""
        assert self._client is not None
        with suppress(subprocess.TimeoutExpired):
            return self._client.wait(seconds)
        return None

    def end(self) -> None:
        """Remove container and image, also when this process may no longer do that itself."""
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
    """Return whether a PID is that of the waiting launcher, and not of another machine or namespace."""
    try:
        return f"{program_launcher.CONTAINER_PARENT}{name}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@contextmanager
def running_container(
    engine: Engine, name: str, cpus: Sequence[int], program: Sequence[str], user: tuple[int, int]
) -> Iterator[Container]:
    """Yield a container and remove it afterwards. Raises UserError."""
    container = Container(engine, name, cpus, program, user)
    try:
        yield container
    finally:
        container.end()
