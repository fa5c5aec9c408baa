"""A process with much memory that touches what it is told: ``python -m benchmarks.toucher PAGES [huge]``.

Each line on its input is a number: it touches so many pages from the start, and says so.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from benchmarks.run import ROOT
from memtui.core.processes import exit_with_parent
from memtui.study.workloads.system import PAGE_BYTES, map_pages


class Toucher:
    """Such a process, seen from outside."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def touch(self, pages: int) -> None:
        """Have it touch so many pages; returns when that is done."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{pages}\n")
        self._process.stdin.flush()
        self.wait()

    @contextmanager
    def still(self) -> Iterator[None]:
        """Stopped over the block: its interpreter would touch a few pages of its own."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> None:
        """Until it has done what it was told."""
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "done\n":
            raise RuntimeError("the process with much memory has ended")


@contextmanager
def toucher(pages: int, *, huge: bool) -> Iterator[Toucher]:
    """One whose pages are all resident."""
    words = [sys.executable, "-m", "benchmarks.toucher", str(pages), *(["huge"] if huge else [])]
    with subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            made = Toucher(process)
            made.wait()
            yield made
        finally:
            process.kill()


def main() -> None:
    """Until the end of the input."""
    exit_with_parent()
    pages = int(sys.argv[1])
    start = map_pages(pages, huge="huge" in sys.argv[2:])
    whole = np.ctypeslib.as_array((ctypes.c_uint8 * (pages * PAGE_BYTES)).from_address(start))
    first_bytes = whole[::PAGE_BYTES]
    first_bytes[:] = 1
    print("done", flush=True)
    for line in sys.stdin:
        first_bytes[: int(line)] += 1
        print("done", flush=True)


if __name__ == "__main__":
    main()
