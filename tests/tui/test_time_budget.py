"""What one picture may take."""

from __future__ import annotations

import time

from memtui.tui.presenters.time_budget import WAIT, TimeBudget


def test_waiting_costs_less_than_work(monkeypatch):
    cpu, clock = [0.0], [0.0]
    monkeypatch.setattr(time, "thread_time", lambda: cpu[0])
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    allowance = TimeBudget(0.04)
    clock[0] = 0.1  # others had the CPU
    assert not allowance.spent
    cpu[0] = 0.041
    assert allowance.spent
    late = TimeBudget(0.04)
    clock[0] += WAIT * 0.04 + 0.01  # a disk that does not answer
    assert late.spent
