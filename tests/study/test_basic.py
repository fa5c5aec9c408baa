"""The study ``basic``: which windows of a sleeping program are its sleep."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from memtui.study.recorded_run import Trace
from memtui.study.runs.messages import RunResult
from memtui.study.studies.basic import asleep
from tests.support.live import TRACKER, start

pytestmark = pytest.mark.real_clock


def test_what_an_interpreter_does_at_its_end_is_no_sleep(tmp_path):
    """The program works for 1.5 s after its sleep, as long as large frameworks take to shut down."""
    path = tmp_path / "s.memtui"
    code = (
        "import atexit, time\n"
        "def end():\n"
        "    until, memory = time.monotonic() + 1.5, bytearray(40 << 20)\n"
        "    while time.monotonic() < until: memory[::4096] = b'x' * (len(memory) // 4096)\n"
        "atexit.register(end)\n"
        "time.sleep(4)\n"
    )
    argv = ("record", "-o", path, "--interval", 0.2, *TRACKER, "--", sys.executable, "-S", "-c", code)
    recording = start(*argv)
    _, errors = recording.communicate(timeout=60)
    assert recording.returncode == 0, errors
    trace = Trace(path, RunResult())
    sleeping, busy = asleep(trace), trace.cpu_shares > 0.2
    assert sleeping.sum() >= 5
    assert busy.sum() >= 3
    assert not (sleeping & busy).any()
    late = trace.seconds[-1] - trace.seconds < 1.0
    assert not sleeping[late].any()
    if trace.hello.wss.ok:
        assert np.nanmax(trace.samples.wss_bytes[sleeping]) < 4 << 20 < np.nanmax(trace.samples.wss_bytes)
    trace.close()
