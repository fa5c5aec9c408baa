"""Compiles the stand-in and runs Python under it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

COMPILER = shutil.which("cc")
SOURCE = Path(__file__).parent / "nvml.c"


def compile_stand_in(directory: Path, *defines: str) -> Path:
    """Build ``libnvidia-ml.so.1`` in the directory, which is what LD_LIBRARY_PATH should name."""
    assert COMPILER is not None
    directory.mkdir(parents=True, exist_ok=True)
    flags = ["-std=gnu11", "-O1", "-Wall", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    target = directory / "libnvidia-ml.so.1"
    command = [COMPILER, *flags, *(f"-D{name}" for name in defines), "-o", str(target), str(SOURCE), "-lm"]
    subprocess.run(command, check=True)
    return directory


def run_with(directory: Path, code: str, **settings: object) -> Any:
    """Run Python code with the stand-in as the driver; what it prints is read as JSON."""
    steering = {f"STANDIN_{name.upper()}": str(value) for name, value in settings.items()}
    environment = {**os.environ, **steering, "LD_LIBRARY_PATH": str(directory)}
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
