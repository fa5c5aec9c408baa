"""memtui as a user starts it, and what a refused call has to look like."""

from __future__ import annotations

import subprocess
import sys


def memtui(*words: object, timeout: float = 60, **more) -> subprocess.CompletedProcess[str]:
    """Run memtui without a terminal."""
    command = [sys.executable, "-m", "memtui", *map(str, words)]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False, **more
    )


def refused(done: subprocess.CompletedProcess[str], says: str) -> None:
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
