"""Memory that something else than the threads of a process uses: nobody reads its page tables without the lock.

A thread of io_uring stands still with the others. Another process does not, and may unmap what is being read.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from memtui.core.readings import Power
from memtui.core.samples import Event
from memtui.probes import address_space
from memtui.probes.address_space import Sharers
from memtui.probes.memory_users import same_memory
from memtui.probes.pages import thread_pool
from memtui.probes.pages.pagetable.tracker import PageTableTracker
from memtui.probes.pages.pagetable.walk import Walker
from memtui.probes.pages.tlb_flush import Flusher, Handle
from memtui.probes.pause.pauser import NotPaused, Pauser
from memtui.probes.window_reader import Subject
from tests.support.live import needs_root
from tests.support.memory_sharers import COMPILER, compile_sharers, shared
from tests.support.pagetable_targets import Observer, assert_touched, need_pagetable, within
from tests.support.paused import state, tasks
from tests.support.streams import sample

pytestmark = [
    pytest.mark.real_clock,
    needs_root,
    pytest.mark.skipif(COMPILER is None, reason="no C compiler is installed"),
]
PAGES, WINDOWS = 6000, 6
TOUCHED = 400  # pages that stay in the TLB beside one another
BUSY_BYTES = 64 << 20  # that the sharer maps and unmaps
WITHOUT_LOCK = {"ask", "walk_extents"}
ELSEWHERE = {"inside", "outside"}  # another process runs while the target is paused


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    need_pagetable()
    return compile_sharers(tmp_path_factory.mktemp("sharers"))


@contextmanager
def watched(pid: int, monkeypatch):
    """An observer of a process, and the names of the programs that each of its windows ran."""
    runs: list[str] = []
    run = Walker._run

    def noted_run(walker, link, *, tgid):
        runs.append(link[1])
        run(walker, link, tgid=tgid)

    monkeypatch.setattr(Walker, "_run", noted_run)
    # Marks in files are cleared beside the reading, as from two CPUs on.
    monkeypatch.setattr(thread_pool.os, "sched_getaffinity", lambda _pid: {0, 1})
    tracker = PageTableTracker()
    observer = Observer(tracker)
    try:
        observer.start(pid)
        yield observer, runs
    finally:
        observer.close()
        tracker.close()


@pytest.mark.parametrize("kind", ["none", "inside", "outside", "worker", "polling"])
def test_the_walk_without_the_lock_needs_all_users_held(program, kind, monkeypatch):
    with shared(program, kind, PAGES) as target, watched(target.pid, monkeypatch) as (observer, runs):
        windows = []
        for _ in range(WINDOWS):
            time.sleep(0.03)
            observer.tracker.start_round(1)
            runs.clear()
            windows.append(observer.window(target.pid))
            assert_touched(target.pid, windows[-1].pages, target.address, PAGES, range(0, PAGES, 64))
            if kind in ELSEWHERE:
                assert not WITHOUT_LOCK & set(runs)
        if kind in ELSEWHERE:
            assert {window.status for window in windows} == {"approximate"}
            assert all("1 task(s) that share its memory ran meanwhile" in window.reason for window in windows)
        else:
            assert {window.status for window in windows} == {"ok"}
            assert set(runs) > WITHOUT_LOCK, "the quick way is still taken"


@pytest.mark.parametrize(("kind", "held", "running"), [
    ("none", 1, 0), ("inside", 1, 1), ("outside", 1, 1), ("worker", 2, 0), ("polling", 2, 0),
])  # fmt: skip
def test_users_of_memory_are_counted(program, kind, held, running):
    with shared(program, kind, 16) as target, Pauser() as pauser:
        walker = Walker()
        try:
            time.sleep(0.1)  # a worker of io_uring starts
            users = walker.users(target.pid)
            assert (users.users, users.traced, users.running) == (held + running, 0, held + running)
            with pauser.paused(target.pid):
                users = walker.users(target.pid)
                assert (users.users, users.traced, users.running) == (held + running, held, running)
                assert users.all_traced == (not running)
                assert {state(task) for task in tasks(target.pid)} == {"t"}, "threads of io_uring stand still, too"
            if target.sharer:
                with pauser.paused_together({target.pid: None, target.sharer: None}):
                    assert walker.users(target.pid).all_traced, "held together, nobody is left who could unmap"
        finally:
            walker.close()


def test_a_child_of_vfork(program, monkeypatch):
    """Its parent cannot be paused; it can, and its parent, which waits for it, is a user that is not held."""
    with shared(program, "vfork", PAGES) as target:
        with Pauser() as pauser, pytest.raises(NotPaused, match="vfork"), pauser.paused(target.pid):
            pass
        with watched(target.sharer, monkeypatch) as (observer, runs):
            for _ in range(WINDOWS):
                time.sleep(0.03)
                observer.tracker.start_round(1)
                runs.clear()
                window = observer.window(target.sharer)
                assert_touched(target.sharer, window.pages, target.address, PAGES, range(0, PAGES, 64))
                assert not WITHOUT_LOCK & set(runs)
                assert window.status == "approximate"


def let_run(pid: int) -> None:
    """Wait until a process had a CPU for some milliseconds, which it may have to wait for."""

    def ran_ns() -> int:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])

    enough, end = ran_ns() + 5_000_000, time.monotonic() + 20
    while ran_ns() < enough and time.monotonic() < end:
        time.sleep(0.003)


@pytest.mark.parametrize("how", ["full", "working-set"])
def test_what_a_sharer_touches_all_the_time_is_seen(program, how, monkeypatch):
    """It runs on while the target is paused, and what it has in the TLB when bits are cleared is flushed after that."""
    calls, clear, flush = [], Handle.clear, Flusher.flush
    monkeypatch.setattr(Handle, "clear", lambda handle: (calls.append("clear"), clear(handle)))
    monkeypatch.setattr(Flusher, "flush", lambda *words: (calls.append("flush"), flush(*words))[1])
    with shared(program, "toucher", TOUCHED) as target:
        tracker = PageTableTracker(rearm=how)
        observer = Observer(tracker)
        missed = []
        try:
            observer.start(target.pid)
            for _ in range(30):
                tracker.start_round(1)
                let_run(target.sharer)
                window = observer.window(target.pid)
                assert window.status == "approximate"
                assert calls[-1] == "flush" or window.rearm == "working-set", "clearing ranges flushes on the way"
                missed.append(TOUCHED - len(within(window.pages, target.address, TOUCHED)))
        finally:
            observer.close()
            tracker.close()
    assert sum(missed) <= 0.01 * TOUCHED * len(missed), f"some touched just then may be missed: {missed}"


@pytest.mark.parametrize("kind", ["none", "inside"])
def test_memory_that_is_read_once_for_each_of_two_processes_is_not_exact(program, kind):
    """As on a kernel that cannot say who shares memory (CONFIG_KCMP): each reading takes the marks of the other one."""
    with shared(program, kind, PAGES) as target, PageTableTracker() as tracker, Pauser() as pauser:
        pids = [pid for pid in (target.pid, target.sharer) if pid]
        for pid in pids:
            with pauser.paused(pid):
                tracker.start(pid, ())
        with pauser.paused_together(dict.fromkeys(pids)):
            tracker.start_round(1)
            window = tracker.window(target.pid, (), want_resident=False)
        if target.sharer:
            assert window.status == "approximate"
            assert f"the same memory is read of pid {target.sharer}, too" in window.reason
        else:
            assert (window.status, window.reason) == ("ok", "")


def test_memory_of_a_process_that_ended_is_nobody_elses(program):
    """The kernel gives its address space away again, and at once."""
    with PageTableTracker() as tracker, Pauser() as pauser:
        for _ in range(5):
            with shared(program, "none", 64) as target, pauser.paused(target.pid):
                tracker.start(target.pid, ())
                tracker.start_round(1)
                window = tracker.window(target.pid, (), want_resident=False)
                assert (window.status, window.reason) == ("ok", "")


def test_the_locked_questions_have_the_same_answers(program):
    with shared(program, "none", PAGES) as target, Pauser().paused(target.pid):
        walker = Walker()
        try:
            walk = walker.walk(target.pid, want_resident=True)
            answers = []
            for walker.still in (False, True):
                answers.append(walker.marked(target.pid, walk.resident))
            for field in ("blocks", "bits"):
                assert np.array_equal(*(getattr(answer, field) for answer in answers))
            assert answers[0].page_count >= PAGES // 64
        finally:
            walker.close()


@pytest.mark.parametrize("together", [False, True])
def test_memory_that_two_processes_of_a_tree_use_is_counted_once(program, together):
    """Both are held, so nothing is missing; what is resident and touched is that of one."""
    with shared(program, "inside", PAGES) as target:
        stream = sample(target.pid, 1.5, together=together, interval_ns=50_000_000)
        most = psutil.Process(target.pid).memory_info().rss + BUSY_BYTES
    assert len(stream.windows) > 4
    assert {len(window.processes) for window in stream.windows} == {1}, "the other one has no window of its own"
    windows = stream.of_pid(target.pid)[1:]
    assert {window.status for window in windows} == {"ok"}, {window.reason for window in windows}
    assert all(window.rss_bytes <= most for window in windows)
    uses = [use for power in stream.of(Power) for use in power.memory_use]
    assert {(use.processes, use.rss_bytes <= most) for use in uses} == {(1, True)}, "nor counts between windows"
    told = [event.text for event in stream.of(Event) if "CLONE_VM" in event.text]
    assert told == [f"pid {target.sharer} uses the memory of pid {target.pid} (CLONE_VM): it is counted there, once"]


def test_what_two_processes_touch_in_one_memory_is_counted_once(program):
    """Both touch the same pages all the time, and map nothing."""
    with shared(program, "toucher", TOUCHED) as target:
        rss_bytes = psutil.Process(target.pid).memory_info().rss
        stream = sample(target.pid, 1.5, interval_ns=50_000_000)
    windows = stream.of_pid(target.pid)[1:]
    first = target.address >> 12
    assert len(windows) > 4
    for window in windows:
        assert abs(window.rss_bytes - rss_bytes) < 0.1 * rss_bytes, "and not twice as much"
        touched = window.pages.pages()
        assert int(((touched >= first) & (touched < first + TOUCHED)).sum()) == TOUCHED
        assert window.pages.size_bytes <= rss_bytes


def test_who_has_a_memory_of_its_own_is_no_sharer_any_more(monkeypatch):
    """As every child of posix_spawn: until its exec it uses the memory of its parent."""
    sharers, first, again = Sharers(), *(Subject(os.getpid(), os.pidfd_open(os.getpid()), 0) for _ in range(2))
    assert sharers.add(first, [os.getppid(), os.getpid()]) == (os.getpid(), 1)
    assert sharers.of(os.getpid()) == (first,)
    assert sharers.add(again, [os.getpid()]) == (os.getpid(), 2)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(first.pidfd)
    monkeypatch.setattr(address_space, "same_memory", lambda _one, _other: False)
    assert sharers.add(first, [os.getpid()]) is None
    assert sharers.of(os.getpid()) == ()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(again.pidfd)


def test_one_whose_owner_ended_is_nobodys_sharer_any_more(monkeypatch):
    monkeypatch.setattr(address_space, "same_memory", lambda _one, other: other == 7)
    sharers, of_seven, of_nobody = Sharers(), *(Subject(pid, os.pidfd_open(os.getpid()), 0) for pid in (8, 9))
    assert sharers.add(of_seven, [1, 7]) == (7, 1)
    assert sharers.add(of_nobody, [1]) is None
    sharers.forget(1)
    assert sharers.of(7) == (of_seven,)
    sharers.forget(7)
    assert sharers.of(7) == ()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(of_seven.pidfd)
    os.close(of_nobody.pidfd)
    again = Subject(8, os.pidfd_open(os.getpid()), 0)
    assert sharers.add(again, [1]) is None, "it is watched by itself"
    assert sharers.add(again, [1, 7]) == (7, 1), "and begins anew as another one's sharer"
    sharers.forget(8)


@pytest.mark.parametrize("kind", ["none", "inside", "outside", "vfork"])
def test_one_memory_is_told_from_two(program, kind):
    with shared(program, kind, 16) as target:
        assert same_memory(target.pid, target.pid)
        assert not same_memory(target.pid, os.getpid())
        if target.sharer:
            assert same_memory(target.pid, target.sharer)
            assert same_memory(target.sharer, target.pid)
