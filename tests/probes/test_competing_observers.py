"""Who else clears accessed bits: found in sysfs, and made good for."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from memtui.core.block_sample import BlockSample
from memtui.core.page_sizes import PAGE_BYTES
from memtui.core.samples import Status
from memtui.probes.competing_observers import how_to_stop, other_observers
from memtui.probes.pages.pagetable.tracker import PageTableTracker
from memtui.probes.pages.pagetable.walk import Walker
from tests.support.folders import put
from tests.support.live import needs_tracker
from tests.support.pagetable_targets import Observer, Target, need_pagetable, within
from tests.support.streams import sample

pytestmark = pytest.mark.real_clock

DAMON = Path("/sys/kernel/mm/damon/admin/kdamonds")
NO_VISIT = "the DAMON of this machine took no accessed bits of this process"
WINDOWS, MOST_WINDOWS = 40, 120  # of 0.1 s: DAMON samples memory of the whole machine, and comes when it comes


def test_nobody(tmp_path):
    assert other_observers(tmp_path) == ()
    put(tmp_path / "kernel/mm/damon/admin/kdamonds/0/state", "off")
    put(tmp_path / "module/damon_stat/parameters/enabled", "N")
    assert other_observers(tmp_path) == ()


def test_damon_in_all_its_forms(tmp_path):
    put(tmp_path / "kernel/mm/damon/admin/kdamonds/0/state", "off")
    put(tmp_path / "kernel/mm/damon/admin/kdamonds/1/state", "on")
    put(tmp_path / "module/damon_stat/parameters/enabled", "Y")
    put(tmp_path / "module/damon_reclaim/parameters/enabled", "N")
    assert other_observers(tmp_path) == ("DAMON (damon_stat)", "DAMON (kdamond 1)")


def test_how_each_of_them_is_switched_off(tmp_path, monkeypatch):
    """What is said writes the file that says whether the observer runs."""
    for path, on in (
        ("kernel/mm/damon/admin/kdamonds/12/state", "on"),
        ("module/damon_lru_sort/parameters/enabled", "Y"),
    ):
        put(tmp_path / path, on)
        (name,) = other_observers(tmp_path)
        _, _, command = how_to_stop(name).partition(": ")
        subprocess.run(command.replace("/sys/", f"{tmp_path}/"), shell=True, check=True)
        assert other_observers(tmp_path) == ()


def test_the_user_is_told_once_per_change(monkeypatch):
    need_pagetable()
    observers: list[tuple[str, ...]] = [(), (), ("DAMON (kdamond 0)",), ("DAMON (kdamond 0)",), ()]
    monkeypatch.setattr("memtui.probes.pages.pagetable.tracker.other_observers", lambda: observers.pop(0))
    with PageTableTracker("soft-dirty") as tracker:
        notices = [tracker.notice() for _ in range(5)]
    assert [bool(text) for text in notices] == [False, False, True, False, True]
    assert "kdamond 0" in notices[2]


@pytest.fixture
def target():
    with Target() as target:
        yield target


def test_the_window_in_which_another_observer_begins_is_approximate(target, monkeypatch):
    """It is found before the window is read, not when the user is told of it seconds later."""
    need_pagetable()
    there: list[str] = []
    monkeypatch.setattr("memtui.probes.pages.pagetable.tracker.other_observers", lambda: tuple(there))
    monkeypatch.setattr("memtui.probes.pages.pagetable.tracker._LOOK_EVERY_NS", 0)
    target.touch_for_ever(100, 100, seed=3)
    with PageTableTracker("soft-dirty") as tracker:
        observer, windows = Observer(tracker), []
        observer.start(target.pid)
        for names in ([], ["DAMON (kdamond 7)"], ["DAMON (kdamond 7)"], []):
            there[:] = names
            target.let_run(0.01)
            tracker.start_round(1)
            windows.append(observer.window(target.pid))
            if len(windows) > 1:
                assert tracker._walker.reads_young_flags
        assert not tracker.notice(), "it began and ended without a word to the user"
        assert not tracker._walker.reads_young_flags, "nobody takes bits any more"
        observer.close()
    began = "DAMON (kdamond 7) began a moment ago, and clears accessed bits, too"
    assert [began in window.reason for window in windows] == [False, True, False, False]
    assert windows[1].status is Status.APPROXIMATE


def test_nobody_has_to_ask_who_else_observes(target, monkeypatch):
    """Neither ``notice`` nor ``start_round`` is called: the tracker finds out by itself."""
    need_pagetable()
    there = ["DAMON (kdamond 6)"]
    monkeypatch.setattr("memtui.probes.pages.pagetable.tracker.other_observers", lambda: tuple(there))
    monkeypatch.setattr("memtui.probes.pages.pagetable.tracker._LOOK_EVERY_NS", 0)
    target.touch_for_ever(100, 100, seed=3)
    with PageTableTracker("soft-dirty") as tracker:
        observer = Observer(tracker, notices=False)
        observer.start(target.pid)
        assert tracker._walker.reads_young_flags
        assert observer.window(target.pid).status is Status.OK, "it was there from the start"
        there.append("DAMON (kdamond 7)")
        window = observer.window(target.pid)
        observer.close()
    assert window.status is Status.APPROXIMATE
    assert "DAMON (kdamond 7) began a moment ago" in window.reason


def test_a_window_is_approximate_where_what_another_observer_notes_cannot_be_read(target, monkeypatch):
    need_pagetable()
    there: list[str] = []
    monkeypatch.setattr("memtui.probes.pages.pagetable.tracker.other_observers", lambda: tuple(there))
    monkeypatch.setattr(Walker, "knows_page_frames", property(lambda walker: False))
    target.touch_for_ever(100, 100, seed=3)
    windows = []
    for names in ([], ["DAMON (kdamond 7)"]):
        there[:] = names
        with PageTableTracker("soft-dirty") as tracker:
            observer = Observer(tracker)
            observer.start(target.pid)
            target.let_run(0.01)
            windows.append(observer.window(target.pid))
            observer.close()
    assert [window.status for window in windows] == [Status.OK, Status.APPROXIMATE]
    assert "DAMON (kdamond 7) takes accessed bits, and its notes cannot be read here" in windows[1].reason


def test_pages_that_another_observer_took_are_read_back(target, monkeypatch):
    """Against the DAMON of this machine: with the second look nothing is missing, or the window's assertion fails."""
    need_pagetable()
    if not other_observers():
        pytest.skip("no DAMON runs on this machine")
    pages = 60_000
    address = target.touch_for_ever(pages, pages, seed=3)
    with PageTableTracker("auto") as tracker:
        observer, given_back = Observer(tracker), []
        real = Walker.noted

        def counting(walker, pid, asked, **how):
            answer = real(walker, pid, asked, **how)
            given_back.append(answer.page_count)
            return answer

        monkeypatch.setattr(Walker, "noted", counting)
        observer.start(target.pid)
        for count in range(MOST_WINDOWS):
            if count >= WINDOWS and sum(given_back):
                break
            target.let_run(0.1)
            window = observer.window(target.pid)
            assert within(window.pages, address, pages) == list(range(pages))
        assert tracker._walker.knows_page_frames
        observer.close()
    if not sum(given_back):
        pytest.skip(NO_VISIT)


@pytest.mark.parametrize("sees_frames", [True, False])
def test_a_part_of_the_memory_misses_nothing_that_another_observer_took(target, monkeypatch, sees_frames):
    """Against the DAMON of this machine: what is not read back is in the upper end of the interval."""
    need_pagetable()
    if not other_observers():
        pytest.skip("no DAMON runs on this machine")
    # Whole blocks of 2 MiB: in one that a file is mapped into, too, what is taken is a doubt, and is not read back.
    pages, taken = 117 * 512, []
    address = target.touch_for_ever(pages, pages, seed=3, align=2 << 20)
    if not sees_frames:
        monkeypatch.setattr(Walker, "knows_page_frames", property(lambda walker: False))
    with PageTableTracker("auto", sample=BlockSample(7, 2)) as tracker:
        observer = Observer(tracker)
        observer.start(target.pid)
        real = Walker.walk

        def walking(walker, pid, **options):
            walk = real(walker, pid, **options)
            if options.get("parts"):
                taken.append(walk)
            return walk

        monkeypatch.setattr(Walker, "walk", walking)
        given_back = 0
        for count in range(MOST_WINDOWS):
            if count >= WINDOWS and given_back:
                break
            target.let_run(0.1)
            window = observer.window(target.pid)
            present = within(window.sampled, address, pages)
            assert present
            missing = len(present) - len(within(window.pages, address, pages))
            given_back += len(within(window.sampled.difference(taken[-1].pages), address, pages))
            if sees_frames:
                assert missing == 0
            else:
                assert missing * 4096 <= window.doubtful_bytes
        observer.close()
    if not given_back:  # what was taken and not read back would be missing above
        pytest.skip(NO_VISIT)


def test_pages_of_a_larger_folio_that_another_observer_took_are_a_doubt(target, monkeypatch):
    """Against the DAMON of this machine, which comes after the last touch of many windows."""
    need_pagetable()
    if not other_observers():
        pytest.skip("no DAMON runs on this machine")
    blocks = 48
    address = target.do(
        f"a = anonymous({blocks * 512}, advice=14, align=2 << 20); v = view(a, {blocks * 512}); v[:] = 1; answer = a"
    )
    # Without its first page, each huge page is mapped page by page. It stays one folio.
    target.do(f"for b in range({blocks}): libc.madvise(a + b * (2 << 20), 4096, 4)")
    places = [page for page in range(blocks * 512) if page % 512]
    target.do(f"p = np.flatnonzero(np.arange({blocks * 512}) % 512)")
    doubts, real = [], PageTableTracker._taken_by_others

    def counting(tracker, walk, pages):
        doubts.append(walk.in_doubt)
        return real(tracker, walk, pages)

    monkeypatch.setattr(PageTableTracker, "_taken_by_others", counting)
    missed = 0
    with PageTableTracker("auto") as tracker:
        observer = Observer(tracker)
        observer.start(target.pid)
        target.do("v[p] += 1")  # what was not touched lately is not asked for
        observer.window(target.pid)
        for _ in range(60):
            target.do("v[p] += 1")
            time.sleep(0.2)
            window = observer.window(target.pid)
            whole = [page for page in places if (address // 4096 + page) // 512 in window.pages.huge]  # collapsed again
            missing = len(places) - len(whole) - len(within(window.pages, address, blocks * 512))
            assert missing <= doubts[-1]
            if missing > len(places) // 50:
                missed += 1
                assert window.status is Status.APPROXIMATE
                assert "more may have been touched" in window.reason
            if missed == 3:
                break
        observer.close()
    if not missed:
        pytest.skip(NO_VISIT)


def test_pages_of_a_file_whose_bits_were_taken_before_the_first_window_are_a_doubt_in_it(target, tmp_path):
    """Against the DAMON of this machine: nothing else queries pages of files that were not accessed lately."""
    need_pagetable()
    if not other_observers():
        pytest.skip("no DAMON runs on this machine")
    pages, path = 64 << 8, tmp_path / "file"  # 64 MiB
    path.write_bytes(b"x" * (pages * 4096))
    # A page beside the boundary of a huge page: so the file is mapped page by page.
    target.do(f"f = open({str(path)!r}, 'rb'); a = anonymous({pages + 1}, align=2 << 20) + 4096")
    target.do(f"assert libc.mmap(a, {pages * 4096}, 1, 0x11, f.fileno(), 0) == a  # read, shared, at this address")
    address = target.do(f"v = view(a, {pages}); v.sum(); answer = a")
    missed = 0
    for _ in range(12):
        time.sleep(1)  # until DAMON took some of the bits
        with PageTableTracker("auto") as tracker:
            observer = Observer(tracker)
            observer.start(target.pid)
            for _ in range(3):
                target.do("v.sum()")
                time.sleep(0.3)
                window = observer.window(target.pid)
                missing = pages - len(within(window.pages, address, pages))
                assert missing * PAGE_BYTES <= window.doubtful_bytes
                missed += missing > pages // 50
            observer.close()
        if missed >= 3:
            return
    pytest.skip(NO_VISIT)


# Parent and child each read one half of huge pages that they share since a fork.
HALVES = """
import mmap, os, sys, time
SIZE = 64 << 20
memory = mmap.mmap(-1, SIZE + (2 << 20), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
memory[:: 4096] = b"1" * len(memory[:: 4096])
parent = os.getpid()
half = 0 if os.fork() else SIZE // 2 + (2 << 20)
if not half:
    import ctypes
    print(ctypes.addressof(ctypes.c_char.from_buffer(memory)), flush=True)
while os.getppid() == parent or not half:
    for at in range(half, half + SIZE // 2, 4096):
        memory[at]
    time.sleep(0.005)
"""


@needs_tracker
def test_a_huge_page_that_another_process_touches_is_not_this_ones():
    with subprocess.Popen([sys.executable, "-c", HALVES], stdout=subprocess.PIPE, text=True) as target:
        try:
            assert target.stdout is not None
            start = int(target.stdout.readline())
            stream = sample(target.pid, 6, children=False, interval_ns=500_000_000)
        finally:
            target.kill()
    others = range((start >> 21) + 18, (start + (66 << 20)) >> 21)  # without those at its ends
    windows = [window for window in stream.of_pid(target.pid) if window.pages is not None]
    assert len(windows) >= 5
    if not any(len(window.pages.huge) for window in windows):
        pytest.skip("this kernel gave no huge pages")
    for window in windows:
        assert not [block for block in window.pages.huge.tolist() if block in others]


# The parent touches memory that it shares with its child once, and sleeps. The child goes on.
SHARED = """
import mmap, os, time
memory = mmap.mmap(-1, 64 << 20)  # shared
memory[:: 4096] = b"1" * len(memory[:: 4096])
parent = os.getpid()
if os.fork():
    import ctypes
    print(ctypes.addressof(ctypes.c_char.from_buffer(memory)), flush=True)
    time.sleep(600)
while os.getppid() == parent:
    for at in range(0, len(memory), 4096):
        memory[at]
    time.sleep(0.005)
"""


@needs_tracker
def test_shared_pages_that_another_process_touches_are_not_this_ones():
    """The child touches them all, and DAMON takes the bits of some: whose they were is not known."""
    with subprocess.Popen([sys.executable, "-c", SHARED], stdout=subprocess.PIPE, text=True) as target:
        try:
            assert target.stdout is not None
            start = int(target.stdout.readline())
            stream = sample(target.pid, 6, children=False, interval_ns=500_000_000)
        finally:
            target.kill()
    windows = [window for window in stream.of_pid(target.pid) if window.pages is not None]
    assert len(windows) >= 5
    for window in windows[1:]:  # before the first one, both touched them
        assert not within(window.pages, start, 16384)


@needs_tracker
def test_shared_pages_that_another_observer_took_count_once_in_a_tree():
    """Who touched them is not known, so both have them: the page behind them is one."""
    with subprocess.Popen([sys.executable, "-c", SHARED], stdout=subprocess.PIPE, text=True) as target:
        try:
            assert target.stdout is not None
            start = int(target.stdout.readline())
            stream = sample(target.pid, 12, interval_ns=500_000_000)
        finally:
            target.kill()
    both = [window for window in stream.windows if len(window.processes) == 2][1:]
    assert len(both) >= 8
    taken = 0
    for window in both:
        parent, child = (process.pages for process in window.processes)
        if parent is None or child is None or len(within(child, start, 16384)) < 16384:
            continue
        again = len(within(parent, start, 16384)) * PAGE_BYTES
        taken += again
        assert window.shared_excess_bytes is not None
        assert window.shared_excess_bytes >= again
    if not taken:
        pytest.skip(NO_VISIT)
