"""Programs that are recorded with --trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def traced(
    tmp_path: Path, *command: str, every: int = 5, tracker: str = "rss", interval: str = "0.05", **environment: str
):
    """A recording with ``--trace``, and its report."""
    path = tmp_path / "s.memtui"
    how = ("--trace", "--every", str(every), "--tracker", tracker, "--no-sudo", "--interval", interval)
    done = subprocess.run(
        [sys.executable, "-m", "memtui", "record", *how, "-o", str(path), "--json", "--", *command],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), **environment},
    )
    report = json.loads(done.stdout[done.stdout.index("{\n") :]) if "{\n" in done.stdout else None
    return done, report


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "train.py"
    path.write_text(text)
    return str(path)
