"""A CPU with a neighbour: what counts is measured while it ran at its full speed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.bench import loop
from memtui.bench.cpu_speed import QUIET, Yardstick
from memtui.bench.plan import BenchPlan, BenchWindow
from memtui.bench.result import Conditions, Series, Visit, evaluate
from memtui.bench.undisturbed_blocks import counted, enough, quiet_blocks
from tests.support.bench_readings import CONFIGURATION

CALL_NS, READING_NS, MS = 100_000, 50_000, 1_000_000
PLAN = BenchPlan(windows=5, seconds=0.2, warm_up_s=10.0, phase_ns=0, patience=3)


class Machine:
    """Time that passes by work alone: ``slow(t_ns)`` is how much longer everything takes at that time."""

    def __init__(self, slow, monkeypatch):
        self.now, self.slow, self.waited = 0, slow, 0
        monkeypatch.setattr(loop.time, "monotonic_ns", lambda: int(self.now))
        monkeypatch.setattr(loop.time, "process_time_ns", lambda: int(self.now))

    def work(self, ns: float) -> int:
        start, left = self.now, ns
        while left > 0:  # half a millisecond at a time
            done = min(left, MS / 2)
            self.now += done * self.slow(self.now)
            left -= done
        return int(self.now - start)


class Load:
    on_gpu = False

    def __init__(self, machine, call_ns, drift, waits):
        self._machine, self._call_ns, self._drift, self._waits = machine, call_ns, drift, waits

    def block(self, calls):
        waited = self._waits(self._machine.now)
        self._machine.waited += waited
        self._machine.now += waited
        return waited + self._machine.work(calls * self._call_ns * self._drift(self._machine.now))

    def next_block(self, calls):
        return self.block(calls)

    def drain(self):
        pass

    def recording(self):
        return nullcontext()


class Stick(Yardstick):
    def __init__(self, machine):
        self._machine = machine
        self._seen, self._load_readings = [], []
        self._last_ns = self._waited_ns = 0

    def _read(self):
        return self._machine.work(READING_NS)

    def _waited(self):
        return self._machine.waited


def measured(slow, monkeypatch, plan=PLAN, call_ns=CALL_NS, drift=lambda t: 1.0, waits=lambda t: 0):
    machine = Machine(slow, monkeypatch)
    stick = Stick(machine)
    load = Load(machine, call_ns, drift, waits)
    windows, settled, launch_share = loop.measure(load, plan, lambda word: None, lambda: False, stick)
    assert launch_share is None
    conditions = Conditions(settled, yard_limit_ns=stick.limit_ns())
    return evaluate(CONFIGURATION, plan, Visit(tuple(windows), Series(reason="none"), conditions))


def test_alone_every_block_counts(monkeypatch):
    row = measured(lambda t: 1.0, monkeypatch)
    assert row.call_ns == pytest.approx(CALL_NS, rel=1e-3)
    assert (row.quiet, row.flags, len(row.windows)) == (1.0, (), PLAN.windows)
    assert row.mean_ns == pytest.approx(CALL_NS, rel=1e-3), "the readings are not part of a call"


@pytest.mark.parametrize("share", [0.3, 0.7, 0.9])
def test_a_neighbour_that_comes_and_goes(monkeypatch, share):
    """By chance, 50 ms at a time, it takes a sixth to more than a third of the speed, in a slow drift."""
    chance = np.random.default_rng(7)
    busy = chance.random(4000) < share  # of every 50 ms

    def slow(t):
        return 1.4 + 0.2 * np.sin(t / 5e9) if busy[int(t / 50e6) % len(busy)] else 1.0

    row = measured(slow, monkeypatch)
    assert row.call_ns == pytest.approx(CALL_NS, rel=0.01)
    assert row.flags == ()
    assert 0 < row.quiet < 1.15 - share
    assert row.mean_ns > (1 + share / 4) * CALL_NS
    if share > 0.5:
        assert row.median_ns > 1.1 * CALL_NS, "without the yardstick it would be wrong"


def test_programs_of_this_machine_that_take_the_cpu_away(monkeypatch):
    """For 3 ms of most blocks, and seldom between them: the readings themselves are fast."""
    chance = np.random.default_rng(3)
    row = measured(lambda t: 1.0, monkeypatch, waits=lambda t: 3 * MS * int(chance.random() < 0.6))
    assert row.call_ns == pytest.approx(CALL_NS, rel=1e-3)
    assert row.flags == ()
    assert row.quiet < 0.3
    assert row.median_ns > 1.3 * CALL_NS
    row = measured(lambda t: 1.0, monkeypatch, waits=lambda t: 3 * MS)
    assert "disturbed" in row.flags
    row = measured(lambda t: 1.0, monkeypatch, waits=lambda t: MS // 30)
    assert (row.quiet, row.flags) == (1.0, ()), "what is too short to matter"


def test_a_neighbour_that_stays_is_told(monkeypatch):
    """Quiet only while it warms up: every window is tried, and the row says what it is worth."""
    row = measured(lambda t: 1.0 if t < 1e9 else 1.5, monkeypatch)
    assert "disturbed" in row.flags
    assert row.quiet == 0
    assert len(row.windows) == PLAN.most_windows
    assert row.call_ns == row.median_ns == pytest.approx(1.5 * CALL_NS, rel=1e-2)


def test_what_never_settles_is_told_and_what_only_seemed_so_is_not(monkeypatch):
    """The load itself becomes slower by 10 % a second; or it does so for the first second only."""
    plan = replace(PLAN, warm_up_s=3.0)
    assert "not_settled" in measured(lambda t: 1.0, monkeypatch, plan, drift=lambda t: 1 + 0.1 * t / 1e9).flags
    short = replace(PLAN, warm_up_s=1.6)
    row = measured(lambda t: 1.0, monkeypatch, short, drift=lambda t: 1 + 0.2 * min(t / 1e9, 1.0))
    assert "not_settled" not in row.flags
    assert row.call_ns == pytest.approx(1.2 * CALL_NS, rel=0.01)


def test_no_more_windows_than_planned_where_nobody_asked(monkeypatch):
    plan = BenchPlan(windows=5, seconds=0.2, warm_up_s=3.0, phase_ns=0)
    row = measured(lambda t: 1.0 if t < 1e9 else 1.5, monkeypatch, plan)
    assert len(row.windows) == 5
    assert "disturbed" in row.flags


def test_calls_that_take_long(monkeypatch):
    """Two of them fill a window: there are never five blocks, and on a quiet CPU that is not disturbance."""
    row = measured(lambda t: 1.0, monkeypatch, call_ns=100 * MS)
    assert row.flags == ()
    assert row.call_ns == pytest.approx(100 * MS, rel=1e-3)


@given(st.lists(st.tuples(st.floats(1, 1e9), st.floats(1, 1e6)), max_size=60), st.floats(1, 1e6))
def test_quiet_blocks_are_those_beside_fast_readings(pairs, limit_ns):
    blocks, yards = [list(side) for side in zip(*pairs, strict=True)] or ([], [])
    result = quiet_blocks(blocks, yards, limit_ns)
    assert result.tolist() == [block for block, yard in pairs if yard <= limit_ns]


def test_blocks_among_quiet_ones_are_preferred():
    """A neighbour that came and went within a block, between two fast readings, does not count where others do."""
    fast, slow = 40.0, 60.0
    pattern = [(1.0, fast)] * 6 + [(1.3, slow), (1.2, fast), (1.3, slow)]
    blocks, yards = zip(*pattern * 10, strict=True)
    window = BenchWindow(0, 1, 1, blocks, yard_ns=yards)
    result = counted([window], 5, 43.0)
    assert (result.quiet, result.disturbed, result.sheltered) == (pytest.approx(7 / 9), False, True)
    assert {float(value) for part in result.parts for value in part} == {1.0}
    lonely = [(1.0, fast), (1.3, slow)] * 30
    blocks, yards = zip(*lonely, strict=True)
    few = counted([BenchWindow(0, 1, 1, blocks, yard_ns=yards)], 5, 43.0)
    assert (few.disturbed, few.sheltered) == (False, False)
    assert {float(value) for part in few.parts for value in part} == {1.0}
    nothing = counted([BenchWindow(0, 1, 1, (1.0, 2.0, 3.0) * 5, yard_ns=(slow,) * 15)], 5, 43.0)
    assert (nothing.quiet, nothing.disturbed, len(nothing.parts)) == (0.0, True, 1)
    assert counted([BenchWindow(0, 1, 1, (1.0, 2.0))], 5, None).quiet is None


@pytest.mark.parametrize(
    ("blocks", "quiet", "parts", "verdict"),
    [
        (2000, 25, 5, True), (2000, 24, 5, False),
        (20, 10, 5, True), (20, 9, 5, False),
        (5, 5, 5, True), (5, 4, 5, False),
        (0, 0, 5, False), (1, 1, 1, True), (1, 0, 1, False),
    ],
)  # fmt: skip
def test_how_many_are_enough(blocks, quiet, parts, verdict):
    assert enough(blocks, quiet, parts) is verdict


def test_the_kernel_says_how_long_one_waited(tmp_path):
    """Three spinning threads on one CPU: two thirds of the time are waiting."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("a kernel without CONFIG_SCHED_INFO")
    assert Yardstick(torch, 1, str(tmp_path / "missing")).read() > 0
    cpus = os.sched_getaffinity(0)
    spin = [sys.executable, "-S", "-c", "while True: pass"]
    os.sched_setaffinity(0, {min(cpus)})
    others = [subprocess.Popen(spin) for _ in range(2)]
    try:
        stick = Yardstick(torch, 1)
        readings = []
        for _ in range(100):
            end = time.monotonic() + 0.01
            while time.monotonic() < end:
                pass
            readings.append(stick.read())
    finally:
        os.sched_setaffinity(0, cpus)
        for other in others:
            other.kill()
            other.wait()
    assert np.median(readings) > 10 * stick.limit_ns()


def test_the_real_one_is_steady_and_short():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    stick = Yardstick(torch, 1)
    readings = [stick.read() for _ in range(300)]
    assert sorted(readings)[0] > 1000
    assert stick.limit_ns() < 1.5 * QUIET * min(readings)
