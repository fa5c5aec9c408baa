"""What a target may do in the middle of a window: change its memory, lose its first thread, run on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from memtui.core.page_sizes import PAGE_SHIFT
from memtui.core.samples import VmaTable
from memtui.session.session import Session
from tests.support.cli import memtui
from tests.support.live import needs_tracker, pattern, truth_in
from tests.support.paused import state, tracer
from tests.support.streams import Stream, sample

pytestmark = pytest.mark.real_clock

# Maps, touches, protects and unmaps in two threads, and moves the end of the heap in a third.
_CHURN = """
import ctypes, random, threading
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
def maps():
    while True:
        size = random.randrange(1, 600) * 4096
        a = libc.mmap(None, size, 3, 0x22, -1, 0)
        libc.memset(a, 1, size)
        libc.mprotect(a, size // 8192 * 4096 or 4096, 1)
        half = size // 8192 * 4096
        if half: libc.munmap(a, half)
        libc.munmap(a + half, size - half)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
for _ in range(2): threading.Thread(target=maps, daemon=True).start()
print("ready", flush=True)
while True:  # too small for mmap: the heap grows, and shrinks when all is freed
    blocks = [libc.malloc(100_000) for _ in range(20)]
    for a in blocks: libc.memset(a, 1, 100_000)
    for a in blocks: libc.free(a)
"""
# The first thread ends, as in a program that calls pthread_exit in main; another one goes on.
_WITHOUT_FIRST = """
import ctypes, sys, threading, time
def work():
    memory = bytearray(1 << 22)
    while True: memory[::4096] = b"x" * 1024; time.sleep(0.004)
threading.Thread(target=work).start()
sys.stdin.readline()
ctypes.CDLL(None).syscall(60, 0)
"""


def outside(stream: Stream) -> tuple[int, int]:
    """(pages that lie in no VMA of the table of their window, all pages)."""
    tables = sorted(stream.of(VmaTable), key=lambda table: table.sample)
    wrong = seen = 0
    for window in stream.windows:
        for one in window.processes:
            table = [t for t in tables if t.process == one.process and t.sample <= window.sample][-1]
            if one.pages is None:
                continue
            numbers = one.pages.pages().astype(np.int64)
            starts = np.array([vma.start >> PAGE_SHIFT for vma in table.vmas])
            ends = np.array([vma.end >> PAGE_SHIFT for vma in table.vmas])
            at = np.searchsorted(starts, numbers, side="right") - 1
            wrong += int(((at < 0) | (numbers >= ends[at])).sum())
            seen += len(numbers)
    return wrong, seen


@needs_tracker
@pytest.mark.parametrize("pause", [True, False], ids=["paused", "running"])
def test_memory_that_comes_and_goes_during_the_walk(pause):
    child = subprocess.Popen([sys.executable, "-c", _CHURN], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        stream = sample(child.pid, 5, pause=pause)
        assert stream.returncode == 0, stream.errors
        wrong, seen = outside(stream)
        assert len(stream.windows) > 50
        assert seen > 1000
        if pause:
            assert wrong == 0
        else:
            assert wrong < seen / 10, "of what was mapped between the two looks"
        assert child.poll() is None
        assert tracer(child.pid) == "0"
    finally:
        child.kill()
        child.communicate()


@needs_tracker
def test_rows_do_not_multiply(tmp_path):
    """A heap that grows and shrinks, rights that change, mappings that come and go: ranges that overlap are one row."""
    child = subprocess.Popen([sys.executable, "-c", _CHURN], stdout=subprocess.PIPE, text=True)
    session = tmp_path / "s.memtui"
    try:
        assert child.stdout.readline() == "ready\n"
        assert memtui("record", child.pid, "-o", session, "--interval", 0.02, "--duration", 5).returncode == 0
        mappings = len(Path(f"/proc/{child.pid}/maps").read_text().splitlines())
    finally:
        child.kill()
        child.communicate()
    reader = Session(session)
    rows = reader.vmas.rows()
    windows = len(reader.samples)
    reader.close()
    assert windows > 50
    assert len(rows) < 2 * mappings + 20, f"{len(rows)} rows of {mappings} mappings in {windows} windows"
    assert sum(row.name == "[heap]" for row in rows) == 1
    places = sorted((row.start, row.end) for row in rows)
    assert all(one[1] <= other[0] for one, other in pairwise(places)), "rows that overlap are one"


@needs_tracker
@pytest.mark.parametrize("before", [True, False], ids=["before", "meanwhile"])
def test_a_first_thread_that_ended_while_others_run(before, tmp_path):
    child = subprocess.Popen([sys.executable, "-c", _WITHOUT_FIRST], stdin=subprocess.PIPE, text=True)
    session = tmp_path / "s.memtui"
    try:
        time.sleep(0.5)

        def end_first() -> None:
            child.stdin.write("\n")
            child.stdin.flush()
            end = time.monotonic() + 10
            while state(child.pid) != "Z":
                assert time.monotonic() < end
                time.sleep(0.01)

        if before:
            end_first()
            done = memtui("record", child.pid, "-o", session, "--interval", "0.1", "--duration", "1", "--json")
            assert done.returncode == 0, done.stderr
            report = json.loads(done.stdout)
            assert report["end"] == "duration"
            assert "first thread" in report["wss_bytes"]["reason"]
            assert report["rss_bytes"]["mean"] is None, "not 0"
        else:
            import threading

            timer = threading.Timer(4, end_first)
            timer.start()
            windows = sample(child.pid, 6).of_pid(child.pid)
            timer.join()
            assert windows[0].status == "ok"
            assert windows[-1].status == "unsupported"
            assert "first thread" in windows[-1].reason
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
        child.stdin.close()


@needs_tracker
def test_without_a_pause_it_is_called_approximate(tmp_path):
    session = tmp_path / "s.memtui"
    with pattern("random", "--pages", 4000, "--touched", 1000, "--seed", 7) as truth:
        words = ("--no-pause", "--interval", "0.5", "--duration", "3", "--filter", "none", "--json")
        done = memtui("record", truth["pid"], "-o", session, *words)
        assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["wss_bytes"]["status"] == "approximate"
    assert report["wss_bytes"]["median"] > 1000 * 4096
    assert report["overhead"]["paused_max_s"] == 0
    reader = Session(session)
    assert set(reader.samples.status) == {"approximate"}
    assert any("ran on" in reason for reason in reader.samples.reason)  # beside what DAMON takes, where it runs
    rows = reader.processes.samples(0, int(reader.samples.sample[-1]))
    assert all(row["clear_gap_ns"] > 0 for row in rows)
    for before, after in pairwise(rows):
        # What is touched between the walk and the end of the clear is lost, and belongs to neither window.
        assert after["start_ns"] >= before["end_ns"] + before["clear_gap_ns"]
        assert after["start_ns"] - before["end_ns"] - before["clear_gap_ns"] < 20_000_000
    for sample_ in reader.samples.sample[:-1].tolist():
        (key,) = {p.key for p in reader.processes.all()}
        seen, expected = truth_in(truth, reader.pages.page_set(sample_, key))
        # What is touched between walk and clear is lost, unless the target comes by again in the same window.
        assert set(seen.tolist()) <= set(expected.tolist())
        assert len(seen) > 0.9 * len(expected)
    reader.close()


@needs_tracker
def test_held_together_from_the_command_line(tmp_path):
    session = tmp_path / "s.memtui"
    words = ("--together", "--interval", "0.05", "--", "bash", "-c", "sleep 1 & sleep 1; wait; sleep 0.5")
    done = memtui("record", "-o", session, *words)
    assert done.returncode == 0, done.stderr
    reader = Session(session)
    assert reader.hello.options.together
    assert len(reader.samples) > 5
    assert int(reader.samples.gaps.sum()) >= 4, "two were born and ended"
    reader.close()
