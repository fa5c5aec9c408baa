"""Resident memory of a tree between windows: sums of what each process has, and nothing where one is not known."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import psutil
import pytest

from memtui.probes import memory_use
from memtui.probes.memory_use import EVERY_NS, MemoryUseProbe
from memtui.probes.pss import PssProbe, Rollup
from memtui.session.session import Session
from tests.support.cli import memtui
from tests.support.live import needs_tracker, pattern

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Pss(PssProbe):
    """Readings as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.rollups: dict[int, Rollup] = {}
        self.polled: list[list[int]] = []

    def poll(self, pids, others=(), rss_bytes=None):
        self.polled.append([*pids, *others])
        self.rss_bytes = rss_bytes

    def of(self, pid):
        return self.rollups.get(pid, Rollup(None))


@pytest.fixture
def clock(monkeypatch):
    now = [10**12]
    monkeypatch.setattr(memory_use.time, "monotonic_ns", lambda: now[0])
    monkeypatch.setattr(memory_use.time, "thread_time_ns", lambda: 0)  # a reading rests longer where it takes long
    return now


def folder_of(proc, pid: int, pages: int) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "statm").write_text(f"9999 {pages} 5 1 0 7 0\n")


def test_sums_are_read_now_and_then(tmp_path, clock):
    folder_of(tmp_path, 1, 100)
    folder_of(tmp_path, 2, 50)
    pss = Pss()
    probe = MemoryUseProbe(pss, tmp_path)
    (use,) = probe.poll([1, 2])
    assert (use.t_ns, use.processes, use.rss_bytes, use.pss_bytes) == (10**12, 2, 150 * PAGE_BYTES, None)
    clock[0] += EVERY_NS - 1
    assert probe.poll([1, 2]) == ()
    clock[0] += 1
    assert probe.poll([2])[0].rss_bytes == 50 * PAGE_BYTES
    assert pss.polled == [[1, 2], [2]]


def test_children_that_began_a_moment_ago_count(tmp_path, clock):
    """Those that ended meanwhile do not, and none is looked for where a reading is not due."""
    for pid, pages in ((1, 100), (2, 50), (3, 0)):
        folder_of(tmp_path, pid, pages)
    pss = Pss()
    probe, looked = MemoryUseProbe(pss, tmp_path), []

    def others():
        looked.append(clock[0])
        return [2, 3, 4]

    (use,) = probe.poll([1], others)
    assert (use.processes, use.rss_bytes) == (2, 150 * PAGE_BYTES)
    assert (pss.polled, pss.rss_bytes) == ([[1, 2]], 150 * PAGE_BYTES)
    assert probe.poll([1], others) == ()
    assert len(looked) == 1


def test_a_pss_is_given_once_and_of_all_processes_only(tmp_path, clock):
    folder_of(tmp_path, 1, 100)
    folder_of(tmp_path, 2, 50)
    pss = Pss()
    probe = MemoryUseProbe(pss, tmp_path)
    sums = []
    for second, readings in enumerate([{1: 70, 2: 30}, {}, {1: 71}, {1: 72, 2: 31}]):
        pss.rollups |= {pid: replace(Rollup(size), t_ns=second + 1) for pid, size in readings.items()}
        sums.append(probe.poll([1, 2])[0].pss_bytes)
        clock[0] += EVERY_NS
    assert sums == [100, None, None, 103]


def test_the_rss_beside_a_pss_is_of_the_same_moment(tmp_path, clock):
    """The program grew after its RSS was read: a PSS above the RSS cannot be."""
    folder_of(tmp_path, 1, 100)
    folder_of(tmp_path, 2, 50)
    pss = Pss()
    pss.rollups = {pid: Rollup(900 << 10, t_ns=1, rss_bytes=1 << 20) for pid in (1, 2)}
    probe = MemoryUseProbe(pss, tmp_path)
    (use,) = probe.poll([1, 2])
    assert (use.rss_bytes, use.pss_bytes) == (2 << 20, 1800 << 10)
    clock[0] += EVERY_NS
    (use,) = probe.poll([1, 2])
    assert (use.rss_bytes, use.pss_bytes) == (150 * PAGE_BYTES, None)


def test_a_process_that_ended_does_not_count(tmp_path, clock):
    """The windows of a pool are half a minute apart, and its workers end all the time: the others are read on."""
    folder_of(tmp_path, 1, 100)
    pss = Pss()
    probe = MemoryUseProbe(pss, tmp_path)
    (use,) = probe.poll([1, 2])
    assert (use.processes, use.rss_bytes) == (1, 100 * PAGE_BYTES)
    clock[0] += EVERY_NS
    folder_of(tmp_path, 2, 0)  # not reaped yet
    thread_of(tmp_path, 2, 2, "Z")
    (use,) = probe.poll([1, 2])
    assert (use.processes, use.rss_bytes) == (1, 100 * PAGE_BYTES)
    assert (pss.polled, pss.rss_bytes) == ([[1], [1]], 100 * PAGE_BYTES)
    clock[0] += EVERY_NS
    assert probe.poll([2]) == ()
    assert probe.poll([]) == ()


def test_nothing_is_said_where_a_process_goes_on_and_may_not_be_read(tmp_path, clock):
    folder_of(tmp_path, 1, 100)
    probe = MemoryUseProbe(Pss(), tmp_path)
    folder_of(tmp_path, 2, 0)  # its first thread ended, and another one runs on
    thread_of(tmp_path, 2, 2, "Z")
    thread_of(tmp_path, 2, 3, "R")
    assert probe.poll([1, 2]) == ()
    clock[0] += EVERY_NS
    (tmp_path / "2" / "statm").write_text("")
    assert probe.poll([1, 2]) == ()


def thread_of(proc, pid: int, tid: int, state: str) -> None:
    """A thread in a state, which no signal waits for."""
    for folder in (proc / str(pid) / "task" / str(tid), proc / str(tid)):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stat").write_text(f"{tid} (x) {state} {' '.join(['0'] * 40)}\n")
        (folder / "status").write_text("SigPnd:\t0000000000000000\n")


def test_a_tree_that_takes_long_to_read_is_read_seldom(tmp_path, monkeypatch):
    times, cpu_ns = iter([0, 10**8, 10**11 - 1, 10**11, 10**11 + 1]), iter([0, 10**8, 0, 0])
    monkeypatch.setattr(memory_use.time, "monotonic_ns", lambda: next(times) + 10**12)
    monkeypatch.setattr(memory_use.time, "thread_time_ns", lambda: next(cpu_ns))
    folder_of(tmp_path, 1, 100)
    probe = MemoryUseProbe(Pss(), tmp_path)
    assert len(probe.poll([1])) == 1
    assert probe.poll([1]) == ()
    assert len(probe.poll([1])) == 1


def test_it_is_the_rss_of_a_real_process():
    words = [sys.executable, "-c", "print('ready', flush=True); input()"]
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"ready\n"
        (use,) = MemoryUseProbe(PssProbe()).poll([child.pid])
        assert use.rss_bytes == pytest.approx(psutil.Process(child.pid).memory_info().rss, rel=0.1)
    finally:
        child.communicate(b"\n")


@pytest.mark.real_clock(alone=False)
@needs_tracker
def test_a_recording_with_long_windows_has_readings_between_them(tmp_path):
    path = tmp_path / "s.memtui"
    with pattern("loop", "--pages", 3000) as truth:
        done = memtui("record", truth["pid"], "--interval", "6", "--duration", "7", "-o", path)
        assert done.returncode == 0, done.stderr
    session = Session(path)
    try:
        uses = session.devices.memory_use(0, 2**62)
        assert len(session.samples) < 8 <= len(uses) <= 15
        assert all(use.processes == 1 and use.rss_bytes > 3000 * PAGE_BYTES for use in uses)
        apart_s = [(b.t_ns - a.t_ns) / 1e9 for a, b in pairwise(uses)]
        assert all(gap > 0.45 for gap in apart_s), apart_s
    finally:
        session.close()
