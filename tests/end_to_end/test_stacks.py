"""memray and memtui at the same time: bytes by call stack of a program whose truth is known, to the page."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pytest

from memtui.reports.redact import open_source
from memtui.reports.stack_summary import stack_summaries
from tests.support.live import needs_root, needs_tracker
from tests.support.memray_captures import MIB, needs_memray

pytestmark = [pytest.mark.real_clock, needs_root, needs_tracker, needs_memray]
PAGE = 4096
PROGRAM = f"""
import mmap, time

def partly():
    return mmap.mmap(-1, 40 * {MIB})

def never():
    return mmap.mmap(-1, 20 * {MIB})

def once():
    memory = mmap.mmap(-1, 12 * {MIB})
    memory[:] = b"x" * (12 * {MIB})
    return memory

hot, cold, filled = partly(), never(), once()
end = time.monotonic() + 4
while time.monotonic() < end:
    for start in range(0, 5 * {MIB}, {PAGE}):
        hot[start] = 1
    time.sleep(0.02)
"""


def test_touched_and_resident_bytes_are_those_of_the_program(tmp_path):
    (tmp_path / "work.py").write_text(PROGRAM)
    memray = [sys.executable, "-m", "memray", "run", "-q", "-o", "capture.bin", "work.py"]
    memtui = [sys.executable, "-m", "memtui"]
    how = ["--interval", "0.5", "--keep-resident", "--filter", "none", "--max-overhead", "none", "-o", "run.memtui"]
    for argv in (
        [*memtui, "record", *how, "--", *memray],
        [*memtui, "import", "capture.bin", "--join", "run.memtui", "-o", "joined.memtui"],
    ):
        subprocess.run(argv, cwd=tmp_path, check=True, timeout=120, capture_output=True)
    with closing(open_source(tmp_path / "joined.memtui")) as reader:
        (summary,) = stack_summaries(reader)
    rows = {row.name.partition(" (")[0]: row for row in (*summary.stacks, *summary.coldest)}
    partly, never, once = rows["partly"], rows["never"], rows["once"]
    assert partly.peak_bytes == 40 * MIB
    assert never.peak_bytes == 20 * MIB
    assert once.peak_bytes == 12 * MIB
    assert all(row.windows for row in (partly, never, once))

    def mean(row, name):
        return getattr(row, name) * summary.windows / row.windows

    assert mean(partly, "there_bytes") == pytest.approx(40 * MIB)
    assert mean(partly, "touched_bytes") == pytest.approx(5 * MIB, rel=0.05)  # its first window fills it
    assert mean(partly, "resident_bytes") == pytest.approx(5 * MIB, rel=0.05)
    assert (never.touched_bytes, never.resident_bytes) == (0, 0)
    assert mean(once, "resident_bytes") == pytest.approx(12 * MIB)
    # It is written in one window, or where two meet: however few windows a busy machine makes of it.
    assert once.touched_bytes * summary.windows <= 2 * 12 * MIB
    assert once.windows >= 3
