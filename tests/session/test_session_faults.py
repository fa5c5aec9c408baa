"""Whatever SQLite is refused while a session is written, no half-written row is ever read as a whole one.

As SQLite tests itself: every read, write, sync, change of size, allocation, mapping and opened or removed file of the
writer fails in turn, once or from then on; of a write, half may be done. What was committed before is still there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import LONG
from tests.support import fault_library

STRIDE = 1 if LONG else 211  # a prime number, so that each kind of call is met at all places in time
PROCESSES = os.cpu_count() or 1 if LONG else 1


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """The library that makes calls fail."""
    return fault_library.build(tmp_path_factory.mktemp("faults"))


def run(faults, folder, first: int) -> dict:
    """Run every case of one process; the cases are dealt out in turn."""
    folder.mkdir()
    argv = [sys.executable, "-m", "tests.support.session_faults", folder, str(STRIDE * PROCESSES), str(STRIDE * first)]
    environment = os.environ | {"LD_PRELOAD": str(faults)}
    done = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout)  # figures for docs/internals/measurements.md
    return json.loads(done.stdout)


def test_what_is_read_was_written_whole(faults, tmp_path):
    with ThreadPoolExecutor(PROCESSES) as pool:
        results = list(pool.map(lambda first: run(faults, tmp_path / str(first), first), range(PROCESSES)))
    assert [result["wrong"] for result in results] == [[]] * PROCESSES
    calls = results[0]["calls"]
    assert min(calls.values()) > 0, "every kind of call is made"
    assert calls["write"] > 100
    outcomes = sum((Counter(counts) for result in results for counts in result["outcomes"].values()), Counter())
    assert min(outcomes[kind] for kind in ("whole", "in part", "not at all")) > 0
