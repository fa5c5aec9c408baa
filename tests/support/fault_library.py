"""The library that makes calls of the operating system fail, compiled from ``faults.c``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fault_calls import SQLITE
from tests.support.repository import ROOT


def build(folder: Path) -> Path:
    """Compile the library, which is for LD_PRELOAD; skip the test where that cannot be, or SQLite is not a library."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler is installed")
    library = folder / "faults.so"
    source = ROOT / "tests" / "support" / "faults.c"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    linked = subprocess.run(
        [sys.executable, "-c", f"import sqlite3; assert '{SQLITE}' in open('/proc/self/maps').read()"], check=False
    )
    if linked.returncode:
        pytest.skip(f"this Python has its own SQLite inside, and no {SQLITE} whose calls could be made to fail")
    return library


def environment(library: Path, counts: Path, kind: str | None = None, **more: object) -> dict[str, str]:
    """Return the environment in which calls of a recorder fail: see ``fault_calls.begin``.

    ``counts``: the file that gets how many calls of each kind it made.
    """
    site = ROOT / "tests" / "support" / "fault_site"
    return os.environ | {
        "LD_PRELOAD": str(library),
        "PYTHONPATH": f"{site}:{ROOT}",
        "MEMTUI_FAULTS": json.dumps({"file": str(counts), "kind": kind} | more),
    }
