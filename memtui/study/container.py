"""A container of our own: PID, mount, IPC and UTS namespaces (unshare(1)) and, where this is root, a memory cgroup."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memtui.probes.memory_cgroups import memory_mounts

_NAMESPACES = ("--pid", "--mount", "--ipc", "--uts", "--fork", "--mount-proc", "--kill-child")
_TRY_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Means:
    """How a program comes into a container here. Without ``words`` it cannot, for that ``reason``."""

    words: tuple[str, ...]
    what: str
    reason: str = ""


def means() -> Means:
    """The first way that works for this user."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return Means((), "", "unshare (util-linux) is not installed")
    said = ""
    for user, what in (((), "own"), (("--user", "--map-root-user"), "own user,")):
        command = (unshare, *user, *_NAMESPACES)
        try:
            tried = subprocess.run(
                [*command, "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRY_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)
            continue
        if tried.returncode == 0:
            return Means((*command, "--"), f"{what} PID, mount, IPC and UTS namespaces (unshare)")
        said = tried.stderr.decode(errors="replace").strip().splitlines()[-1:][0] if tried.stderr.strip() else ""
    return Means((), "", f"this user may make no namespaces here ({said})")


@contextmanager
def memory_cgroup() -> Iterator[str]:
    """The folder of a new memory cgroup without limits, removed afterwards; "" where none can be made."""
    for _, (top, _root) in sorted(memory_mounts().items(), reverse=True):
        folder = top / f"memtui-study-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        if not (folder / "memory.stat").exists():  # without the controller it accounts nothing
            folder.rmdir()
            continue
        try:
            yield str(folder)
        finally:
            _remove(folder)
        return
    yield ""


def _remove(folder: Path) -> None:
    for _ in range(50):  # whoever was in it may not be reaped yet
        try:
            folder.rmdir()
            return
        except OSError:
            time.sleep(0.05)
