"""A process whose memory is used by something else than its own threads (``sharers.c``)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

COMPILER = shutil.which("cc")
_SOURCE = Path(__file__).with_name("sharers.c")


@dataclass(frozen=True)
class Shared:
    """Such a process, the process that shares its memory (0: none), and where the memory begins that it touches."""

    pid: int
    sharer: int
    address: int


def compile_sharers(folder: Path) -> Path:
    """The program, built in the folder."""
    assert COMPILER is not None
    program = folder / "sharers"
    subprocess.run([COMPILER, "-std=gnu11", "-O1", "-Wall", "-Werror", "-o", program, _SOURCE], check=True)
    return program


@contextmanager
def shared(program: Path, kind: str, pages: int) -> Iterator[Shared]:
    """The program, running. Skips where the kernel has no io_uring."""
    child = subprocess.Popen([program, kind, str(pages)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    sharer = 0
    try:
        assert child.stdout
        assert child.stderr
        line = child.stdout.readline()
        if not line and kind in ("worker", "polling"):
            import pytest

            pytest.skip(f"no io_uring here: {child.stderr.read().strip()}")
        sharer, address = map(int, line.split())
        if kind == "vfork":
            sharer = _child_of(child.pid)
        yield Shared(child.pid, sharer, address)
    finally:
        if sharer:
            with suppress(ProcessLookupError):
                os.kill(sharer, signal.SIGKILL)
            if kind == "outside":
                os.waitpid(sharer, 0)  # it is a child of this process
        child.kill()
        child.communicate()


def _child_of(pid: int) -> int:
    end = time.monotonic() + 60
    while not (found := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        assert time.monotonic() < end
        time.sleep(0.001)
    return int(found[0])
