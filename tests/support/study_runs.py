"""Studies that run as processes of their own."""

from __future__ import annotations

import importlib.util
import os
import time

import psutil
import pytest

needs_figures = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="figures need matplotlib")


# Touches 4 MiB, a quarter at a time, and tells of its steps.
STEPS = """
import mmap, sys, time
size = 4 << 20
memory = mmap.mmap(-1, size)
step = 0
while True:
    begin = step % 4 * (size // 4)
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        for at in range(begin, begin + size // 4, 4096):
            memory[at] = 1
        time.sleep(0.001)
    step += 1
    print("step", step)
"""


def running(needle: str) -> list[psutil.Process]:
    """Processes with this in their command line, and what is memtui's and has it in its environment's state."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(needle in word for word in process.info["cmdline"] or ()) and process.pid != os.getpid():
            found.append(process)
    return found


def await_none(needle: str) -> None:
    deadline = time.monotonic() + 30
    while (left := running(needle)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, [process.cmdline() for process in left]
