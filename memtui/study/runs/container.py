"""How a program comes into a container here: by docker or podman where one works, else into namespaces of its own.

Namespaces of its own are PID, mount, IPC and UTS namespaces (unshare(1)) and, where this is root, a memory cgroup.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from memtui.probes.memory_pressure import memory_mounts
from memtui.study.runs import container_engine as engine
from memtui.study.runs.container_engine import Engine

_NAMESPACES = ("--pid", "--mount", "--ipc", "--uts", "--fork", "--mount-proc", "--kill-child")
_TRY_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Means:
    """How a program comes into a container here.

    Attributes:
        prefix: command line before that of the program; () where an engine starts the program.
        what: description for a report.
        reason: why no program can be started in a container; "" where one can.
        engine: docker or podman, where one of them works.
        why: why installed engines are not used.
    """

    prefix: tuple[str, ...]
    what: str
    reason: str = ""
    engine: Engine | None = None
    why: str = ""


def means() -> Means:
    """Return the first way that works for this user."""
    working, reasons = engine.find()
    if working is not None:
        return Means((), working.what, engine=working, why="; ".join(reasons))
    return replace(_namespaces(), why="; ".join(reasons))


def _namespaces() -> Means:
    unshare = shutil.which("unshare")
    if unshare is None:
        return Means((), "", "unshare (util-linux) is not installed")
    message = ""
    for user, what in (((), "own"), (("--user", "--map-root-user"), "own user,")):
        command = (unshare, *user, *_NAMESPACES)
        try:
            tried = subprocess.run(
                [*command, "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRY_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            message = str(error)
            continue
        if tried.returncode == 0:
            return Means((*command, "--"), f"{what} PID, mount, IPC and UTS namespaces (unshare)")
        message = tried.stderr.decode(errors="replace").strip().splitlines()[-1:][0] if tried.stderr.strip() else ""
    return Means((), "", f"this user may make no namespaces here ({message})")


@contextmanager
def memory_cgroup() -> Iterator[str]:
    """Yield the folder of a new memory cgroup without limits, removed afterwards; "" where none can be made."""
    for _, (top, _root) in sorted(memory_mounts().items(), reverse=True):
        folder = top / f"memtui-study-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if not (folder / "memory.stat").exists():  # without the controller the cgroup accounts nothing
            folder.rmdir()
            continue
        try:
            yield str(folder)
        finally:
            _remove(folder)
        return
    yield ""


def _remove(folder: Path) -> None:
    for _ in range(50):  # its processes may not be reaped yet
        try:
            folder.rmdir()
            return
        except OSError:
            time.sleep(0.05)
