"""Programs that run under memray, for tests with real captures."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

needs_memray = pytest.mark.skipif(
    find_spec("memray") is None, reason="memray is not installed: pip install 'memtui[memray]'"
)

MIB = 1 << 20
PROGRAM = """
import mmap, time

def make(size):
    return bytes(size)

def keep():
    return make(24 << 20)

def recurse(depth):
    return make(3 << 20) if depth == 0 else recurse(depth - 1)

kept = keep()
deep = recurse(200)
for _ in range(5):
    passing = make(8 << 20)
    del passing
    time.sleep(0.05)
mapping = mmap.mmap(-1, 1 << 20)
time.sleep(0.02)
"""


def run_memray(folder: Path, *options: str, program: str = PROGRAM, name: str = "capture.bin") -> Path:
    """Return the capture of a program ``work.py`` in a folder."""
    (folder / "work.py").write_text(program)
    capture = folder / name
    argv = [sys.executable, "-m", "memray", "run", "-q", "-f", *options, "-o", str(capture), "work.py"]
    subprocess.run(argv, check=True, cwd=folder, timeout=120, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    return capture


def memray_report(capture: Path, *argv: str) -> Path:
    """Return what ``memray ARGV`` writes about a capture."""
    before = set(capture.parent.iterdir())
    command = [sys.executable, "-m", "memray", *argv, capture.name]
    subprocess.run(command, check=True, cwd=capture.parent, timeout=120, stdout=subprocess.DEVNULL)
    (report,) = set(capture.parent.iterdir()) - before
    return report
