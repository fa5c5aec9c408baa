"""Whatever SQLite is refused while a session is written, no half-written row is ever read as a whole one.

As SQLite tests itself: every read, write, sync, change of size and allocation of the writer fails in turn, once or from
then on; of a write, half may be done. What was committed before is still there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.conftest import LONG

COMPILER = shutil.which("cc")
STRIDE = 1 if LONG else 101  # a prime number, so that each kind of call is met at all places in time
SCOPE = "libsqlite3.so"


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """The library that makes calls fail."""
    if COMPILER is None:
        pytest.skip("no C compiler is installed")
    made = tmp_path_factory.mktemp("faults") / "faults.so"
    subprocess.run([COMPILER, "-O1", "-shared", "-fPIC", "-o", made, "tests/support/faults.c", "-ldl"], check=True)
    linked = subprocess.run(
        [sys.executable, "-c", f"import sqlite3; assert '{SCOPE}' in open('/proc/self/maps').read()"], check=False
    )
    if linked.returncode:
        pytest.skip(f"this Python has its own SQLite inside, and no {SCOPE} whose calls could be made to fail")
    return made


def run(faults, folder, stride: int) -> dict:
    argv = [sys.executable, "-m", "tests.support.session_faults", folder, str(stride)]
    done = subprocess.run(
        argv, env=os.environ | {"LD_PRELOAD": str(faults)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_is_read_was_written_whole(faults, tmp_path):
    result = run(faults, tmp_path, STRIDE)
    assert result["wrong"] == []
    assert min(result["calls"].values()) > 0, "every kind of call is made"
    assert result["calls"]["write"] > 100
    assert min(result["outcomes"].get(kind, 0) for kind in ("whole", "in part", "not at all")) > 0
