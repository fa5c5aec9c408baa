"""A program whose children live for a moment: no part of memtui grows with those that ended, the screen neither."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from subprocess import PIPE

import psutil
import pytest

from tests.support.live import needs_tracker, part, wait_for_samples
from tests.support.terminals import Terminal, terminals

EARLY, LATE = 900, 2900  # children that were seen; on a busy machine twice the first is enough
# 4.0 to 6.7 MiB were measured for the screen, with the readings of memory two a second and without.
MOST_BYTES = {"screen": 8 << 20, "sampler": 3 << 20, "recorder": 3 << 20}  # by which each may grow for 2,000
MOST_CPU = 2.0  # times the CPU time that a child took each part until then
STARTED = 5000  # at least; some are never seen
EACH = 400  # are started at a time
MOST_S = 150
FORKER = """
import os, sys, time
memory = bytearray(8 << 20)
for line in sys.stdin:
    for _ in range(int(line) // 40):
        for _ in range(40):
            if os.fork() == 0:
                memory[::8192] = b"x" * 1024
                time.sleep(0.08)
                os._exit(0)
        for _ in range(40): os.wait()
    print("done", flush=True)
"""


@pytest.fixture
def start() -> Iterator:
    with terminals() as starter:
        yield starter


def drain(terminal: Terminal) -> None:
    """Take what the screen writes, without looking at it: emulating a terminal takes more than memtui does."""
    with suppress(OSError):  # it was closed
        while os.read(terminal.master, 1 << 16):
            pass


def used(parts: dict[str, psutil.Process]) -> dict[str, tuple[int, float]]:
    """Return the resident bytes of each part, and its CPU time so far."""
    return {name: (of.memory_info().rss, sum(of.cpu_times()[:2])) for name, of in parts.items()}


@pytest.mark.slow
@pytest.mark.real_clock
@needs_tracker
def test_no_part_grows_with_children_that_ended(start, tmp_path):
    path = tmp_path / "s.memtui"
    parent = subprocess.Popen([sys.executable, "-c", FORKER], stdin=PIPE, stdout=PIPE, text=True)
    assert parent.stdin is not None
    assert parent.stdout is not None
    try:
        terminal = start("attach", parent.pid, "-o", path, "--interval", 0.02, "--max-overhead", "none")
        threading.Thread(target=drain, args=(terminal,), daemon=True).start()
        session = wait_for_samples(path, 1)
        parts = {"screen": psutil.Process(terminal.process.pid)}
        parts |= {name: part(terminal.process.pid, f"memtui.recording.{name}") for name in ("sampler", "recorder")}
        marks = [(0, used(parts))]
        deadline_s = time.monotonic() + MOST_S
        started = 0
        for least, least_started in ((EARLY, 0), (LATE, STARTED)):
            count = 0
            while (count < least or started < least_started) and time.monotonic() < deadline_s:
                print(EACH, file=parent.stdin, flush=True)
                assert parent.stdout.readline() == "done\n"
                started += EACH
                session.refresh()
                count = len(session.processes.all())
            marks.append((count, used(parts)))
        session.close()
    finally:
        parent.kill()
        parent.communicate()
    (_, at_first), (early, before), (late, after) = marks
    assert started >= STARTED, f"only {started} were started in {MOST_S} s"
    assert late >= 2 * EARLY, f"only {late} of {started} were seen in {MOST_S} s"
    for name, (rss_bytes, cpu_s) in after.items():
        most_bytes = MOST_BYTES[name] * max((late - early) / (LATE - EARLY), 1)  # more may be seen between two looks
        assert rss_bytes - before[name][0] < most_bytes, (name, marks)
        each_early = (before[name][1] - at_first[name][1]) / early
        each_late = (cpu_s - before[name][1]) / (late - early)
        assert each_late < MOST_CPU * each_early, (name, marks)
