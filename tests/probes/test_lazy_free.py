"""Memory that was given back with MADV_FREE: how much a window may lack, and how seldom a process is looked at."""

from __future__ import annotations

import numpy as np
import pytest

from memtui.core.page_set import PageSet
from memtui.probes import lazy_free
from memtui.probes.lazy_free import LEAST_APART_NS, REST, STAYS_NS, LazyFree

PAGES = PageSet.from_pages(np.arange(256))  # 1 MiB


@pytest.fixture
def clock(monkeypatch):
    now = [10**12]
    monkeypatch.setattr(lazy_free.time, "monotonic_ns", lambda: now[0])
    monkeypatch.setattr(lazy_free.time, "thread_time_ns", lambda: 0)
    return now


def rollup(proc, kib: int, pid: int = 7, resident_pages: int = 13_000) -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    (proc / str(pid) / "statm").write_text(f"99999 {resident_pages} 5 1 0 7 0\n")
    (proc / str(pid) / "smaps_rollup").write_text(f"Anonymous:         52140 kB\nLazyFree:       {kib} kB\n")


def test_a_window_says_how_much_may_have_been_touched(tmp_path, clock):
    rollup(tmp_path, 8 << 10)
    assert LazyFree(tmp_path).doubt(7, PAGES).startswith("about 8.00 MiB more may have been touched: ")


def test_a_little_is_not_said(tmp_path, clock):
    rollup(tmp_path, 1 << 10)
    assert LazyFree(tmp_path).doubt(7, PAGES) == ""


def test_one_that_has_some_is_looked_at_in_every_window_and_another_one_now_and_then(tmp_path, clock):
    probe = LazyFree(tmp_path)
    rollup(tmp_path, 0)
    assert probe.doubt(7, PAGES) == ""
    rollup(tmp_path, 8 << 10)
    assert probe.doubt(7, PAGES) == "", "it was looked at a moment ago"
    clock[0] += LEAST_APART_NS
    assert probe.doubt(7, PAGES) == probe.doubt(7, PAGES) != ""
    rollup(tmp_path, 4 << 10)
    assert probe.doubt(7, PAGES).startswith("about 4.00 MiB")


def test_one_that_writes_them_anew_is_looked_at_in_the_next_window_too(tmp_path, clock):
    probe = LazyFree(tmp_path)
    rollup(tmp_path, 8 << 10)
    assert probe.doubt(7, PAGES) != ""
    rollup(tmp_path, 0)
    assert probe.doubt(7, PAGES) == "", "all of them were written at this moment"
    rollup(tmp_path, 8 << 10)
    assert probe.doubt(7, PAGES) != ""
    rollup(tmp_path, 0)
    clock[0] += STAYS_NS
    assert probe.doubt(7, PAGES) == ""
    rollup(tmp_path, 8 << 10)
    assert probe.doubt(7, PAGES) == "", "it had none for long"


def test_a_reading_that_takes_long_is_rare(tmp_path, clock, monkeypatch):
    times = iter([0, LEAST_APART_NS // REST * 3])
    monkeypatch.setattr(lazy_free.time, "thread_time_ns", lambda: next(times))
    rollup(tmp_path, 0)
    probe = LazyFree(tmp_path)
    assert probe.doubt(7, PAGES) == ""
    rollup(tmp_path, 8 << 10)
    clock[0] += LEAST_APART_NS * 2
    assert probe.doubt(7, PAGES) == ""


def test_a_process_whose_mappings_would_be_locked_for_long_is_not_read(tmp_path, clock):
    rollup(tmp_path, 8 << 10, resident_pages=20 << 18)
    assert LazyFree(tmp_path).doubt(7, PAGES) == ""


def test_what_cannot_be_read_is_not_guessed_and_what_ended_is_forgotten(tmp_path, clock):
    probe = LazyFree(tmp_path)
    assert probe.doubt(7, PAGES) == ""
    rollup(tmp_path, 8 << 10)
    probe.forget_others(())
    assert probe.doubt(7, PAGES) != "", "another process has its pid now"
