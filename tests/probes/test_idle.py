"""Idle page tracking: exact on private memory, and honest about what it cannot tell. Most needs such a kernel."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.probes.pages import page_frames, process_files
from memtui.probes.pages.idle import bitmap as idle_bitmap
from memtui.probes.pages.idle import tracker as idle
from memtui.probes.pages.idle.bitmap import BitPositions, IdleBitmap
from memtui.probes.pages.idle.tracker import IdleTracker, _whole_blocks
from memtui.probes.pages.page_frames import flags_of
from memtui.probes.pages.thread_pool import ThreadPool
from memtui.probes.pages.tracker import ClearingTooLong, ReadingTooLong, TrackerError
from memtui.probes.proc_maps import read_maps
from memtui.session.session import Session
from tests.support.cli import memtui
from tests.support.idle_bits import IdleBits
from tests.support.live import needs_root, pattern, truth_in
from tests.support.pagetable_targets import Observer, Target, drawn, within

pytestmark = pytest.mark.real_clock

FOUND = idle.prove()
needs_idle = pytest.mark.skipif(not FOUND.ok, reason=f"no idle page tracking here: {FOUND.reason}")
PAGE = 4096


def numbers(values) -> np.ndarray:
    return np.array(values, np.uint64)


# -- arrays of words


@settings(deadline=None)  # files are slow on a busy machine
@given(st.sets(st.integers(0, 40_000), max_size=200), st.sets(st.integers(0, 40_000), max_size=200))
def test_marking_sets_the_bits_of_these_frames_and_no_others(tmp_path_factory, first, second):
    path = tmp_path_factory.mktemp("idle") / "bitmap"
    path.write_bytes(bytes(40_960 // 8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idle_bitmap, "BITMAP", path)
        bitmap = IdleBitmap()
        # A file keeps what is written, the kernel adds to it: one call must not touch another's bits in a word twice.
        bitmap.set_bits(BitPositions(numbers(sorted(first))))
        every = BitPositions(np.arange(40_960, dtype=np.uint64))
        assert np.flatnonzero(bitmap.idle(every)).tolist() == sorted(first)
        mask = np.isin(np.arange(40_960), sorted(second))
        assert bitmap.idle(every.part(mask)).tolist() == [frame in first for frame in sorted(second)]
        bitmap.close()


@settings(deadline=None)
@given(st.sets(st.integers(0, 700), max_size=60), st.lists(st.integers(1, 90), min_size=1, max_size=8), st.booleans())
def test_present_pages_are_those_of_pagemap_inside_the_ranges(tmp_path_factory, present, lengths, dense):
    path = tmp_path_factory.mktemp("idle") / "pagemap"
    words = np.zeros(600, np.uint64)  # it ends before the last ranges may
    for page in present:
        if page < 600:
            words[page] = np.uint64(1 << 63 | (page % 2) << 56 | 1 << 55 | page + 1000)
    words[words == 0] = np.uint64(1 << 62 | 12345)  # swapped out
    words.tofile(path)
    edges = np.cumsum(lengths)
    ranges = numbers([(a, b) for a, b in zip(edges[::2], edges[1::2], strict=False)]).reshape(-1, 2)
    wanted = [p for a, b in ranges.tolist() for p in range(a, b) if p in present and p < 600]
    with path.open("rb") as file:
        entries = page_frames.read_entries(file.fileno(), ranges, dense=dense)
        again = page_frames.read_entries(file.fileno(), ranges, dense=dense)
    found, frames, exclusive = page_frames.present_pages(entries, ranges)
    assert entries.same_as(again)
    assert found.tolist() == wanted
    assert frames.tolist() == [page + 1000 for page in wanted]
    assert exclusive.tolist() == [page % 2 == 1 for page in wanted]


def test_a_page_that_moved_is_not_the_same():
    spans = numbers([[5, 7]])
    here, there = (page_frames.Entries(spans, numbers([1 << 63 | frame, 0])) for frame in (8, 9))
    assert here.same_as(here)
    assert not here.same_as(there)
    assert not here.same_as(page_frames.Entries(numbers([[6, 8]]), here.values))


def test_frames_beyond_memory_are_not_idle(tmp_path, monkeypatch):
    path = tmp_path / "bitmap"
    path.write_bytes(b"\xff" * 8)
    monkeypatch.setattr(idle_bitmap, "BITMAP", path)
    bitmap = IdleBitmap()
    assert bitmap.idle(BitPositions(numbers([3, 64, 1 << 30]))).tolist() == [True, False, False]
    bitmap.close()


@settings(deadline=None)
@given(st.data())
def test_several_hands_find_and_mark_the_same(tmp_path_factory, data):
    """Enough words for each to have some, with gaps between them."""
    first = data.draw(st.integers(0, 63))
    frames = np.unique(np.arange(first, 200_000, data.draw(st.integers(1, 130)), np.uint64))
    chosen = frames[np.random.default_rng(data.draw(st.integers(0, 99))).random(len(frames)) < 0.5]
    path = tmp_path_factory.mktemp("idle") / "bitmap"
    path.write_bytes(bytes(200_000 // 8))
    pool = ThreadPool(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(idle_bitmap, "BITMAP", path)
        bitmap = IdleBitmap(pool)
        bitmap.set_bits(BitPositions(chosen))
        assert np.array_equal(bitmap.idle(BitPositions(frames)), np.isin(frames, chosen))
        bitmap.close()
    pool.close()


def test_flags_and_the_first_frame_of_a_folio(tmp_path):
    """Frames 512-515 are a folio of four, 516-517 one of two, 1024 is alone; nothing is known of 4096."""
    words = np.zeros(2048, np.uint64)
    head, tail = np.uint64(1 << page_frames.COMPOUND_HEAD), np.uint64(1 << page_frames.COMPOUND_TAIL)
    words[[512, 516]] = head
    words[[513, 514, 515, 517]] = tail
    words[1024] = np.uint64(1 << page_frames.LRU)
    path = tmp_path / "kpageflags"
    path.write_bytes(words.tobytes())
    fd = os.open(path, os.O_RDONLY)
    flags, heads = flags_of(fd, numbers([1024, 515, 517, 4096, 512, 513]))
    os.close(fd)
    assert heads.tolist() == [1024, 512, 516, 4096, 512, 512]
    assert page_frames.has(flags, page_frames.COMPOUND_TAIL).tolist() == [False, True, True, False, False, True]
    assert page_frames.has(flags, page_frames.LRU).tolist() == [True, False, False, False, False, False]


@st.composite
def mapped(draw):
    """Runs of pages on runs of frames, as a process may have them."""
    found, number = [], 0
    for _ in range(draw(st.integers(0, 5))):
        number += draw(st.sampled_from([0, 1, 511, 512]))
        length = draw(st.sampled_from([1, 511, 512, 513, 1030]))
        frame = draw(st.sampled_from([0, 1, 512, 5120, 5121])) + (number % 512 if draw(st.booleans()) else 0)
        found += [(number + i, frame + i) for i in range(length)]
        number += length
    return found


@given(mapped())
def test_whole_blocks(pages):
    there = dict(pages)
    wanted = {
        block * 512 + i
        for block in {number // 512 for number in there}
        if all(there.get(block * 512 + i) == there.get(block * 512, 1) + i for i in range(512))
        and there[block * 512] % 512 == 0
        for i in range(512)
    }
    found = _whole_blocks(numbers([n for n, _ in pages]), numbers([f for _, f in pages]))
    assert {n for (n, _), whole in zip(pages, found, strict=True) if whole} == wanted


def test_a_kernel_without_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(idle, "BITMAP", tmp_path / "bitmap")
    capability = idle.prove()
    assert not capability.ok
    assert "CONFIG_IDLE_PAGE_TRACKING" in capability.remedy


@pytest.mark.skipif(FOUND.ok, reason="this kernel has idle page tracking")
def test_asked_for_where_there_is_none(tmp_path):
    with pattern("random", "--pages", 64, "--touched", 8) as truth:
        done = memtui("record", truth["pid"], "--tracker", "idle", "-o", tmp_path / "s.memtui")
    assert done.returncode == 2
    assert "tracker idle does not work here" in done.stderr
    assert "these would" in done.stderr
    assert done.stderr.count("\n") <= 2


# -- the real page frames of a process, and idle bits that only this test knows


@needs_root
def test_what_is_kept_between_windows_follows_pages_that_come_go_and_move(target, monkeypatch):
    bits, pages = IdleBits(), 3000
    monkeypatch.setattr(idle, "IdleBitmap", lambda pool: bits)
    tracker = IdleTracker()

    def window(*touched: int) -> list[int]:
        """What is seen after these pages were touched."""
        with Path(f"/proc/{target.pid}/pagemap").open("rb", buffering=0) as file:
            for page in touched:
                word = int.from_bytes(os.pread(file.fileno(), 8, (address // PAGE + page) * 8), "little")
                bits.frames.discard(word & (1 << 55) - 1)
        page_window = tracker.window(target.pid, (), want_resident=True)
        assert within(page_window.resident, address, pages) == resident
        return within(page_window.pages, address, pages)

    try:
        address = target.do(f"a = anonymous({pages}); v = view(a, {pages}); v[:2000] = 1; answer = a")
        resident = list(range(2000))
        tracker.start(target.pid, ())
        assert window() == []
        assert window(5, 700, 1999) == [5, 700, 1999]
        assert window(5) == [5]
        target.do("v[2500:2510] = 1")  # come: nobody marked them
        resident += range(2500, 2510)
        assert window(6) == [6, *range(2500, 2510)]
        assert window(2501) == [2501]
        target.do(f"libc.madvise(a + 100 * {PAGE}, 50 * {PAGE}, 4)")  # go
        resident = [page for page in resident if not 100 <= page < 150]
        assert window(99) == [99]
        target.do("keep = anonymous(400); view(keep, 400)[:] = 1; v[100:150] = 1")  # elsewhere than before
        resident = sorted({*resident, *range(100, 150)})
        bits.frames.clear()  # frames that were freed are marked no more
        assert window() == resident
        assert window(120, 2509) == [120, 2509]
    finally:
        tracker.close()


@needs_root
def test_where_there_is_no_time_it_is_read_or_marked_after_the_pause(target, monkeypatch):
    bits, pages = IdleBits(), 300
    monkeypatch.setattr(idle, "IdleBitmap", lambda pool: bits)
    with closing(IdleTracker()) as tracker:
        address = target.do(f"a = anonymous({pages}); v = view(a, {pages}); v[:] = 1; answer = a")

        def window() -> list[int]:
            return within(tracker.window(target.pid, (), want_resident=False).pages, address, pages)

        def there_is_time(ns: int | None) -> None:
            tracker.resume_by_ns = None if ns is None else time.monotonic_ns() + ns

        there_is_time(-1)
        with pytest.raises(ReadingTooLong):
            tracker.start(target.pid, ())
        assert not bits.frames
        monkeypatch.setattr(tracker, "_check_time", lambda: None)
        with pytest.raises(ClearingTooLong) as raised:
            tracker.start(target.pid, ())
        assert not bits.frames
        assert raised.value.finish().reason == "tracking of this process began in this window"
        marked = set(bits.frames)
        assert len(marked) >= pages
        there_is_time(None)
        assert window() == []
        bits.frames.clear()  # all were touched
        there_is_time(-1)
        with pytest.raises(ClearingTooLong) as raised:
            window()
        assert not bits.frames
        assert within(raised.value.finish().pages, address, pages) == list(range(pages))
        assert bits.frames == marked
        there_is_time(None)
        assert window() == []
        tracker._tracked[target.pid].set_ns = 10**12
        there_is_time(10**11)
        with pytest.raises(ClearingTooLong):
            window()


@needs_root
def test_reading_ends_at_any_of_its_steps_and_loses_nothing(target, monkeypatch):
    """A page that came, one that went and one that was touched are seen by the window that is read to its end."""
    bits, pages = IdleBits(), 300
    monkeypatch.setattr(idle, "IdleBitmap", lambda pool: bits)
    with closing(IdleTracker()) as tracker:
        address = target.do(f"a = anonymous({pages}); v = view(a, {pages}); v[:200] = 1; answer = a")
        tracker.start(target.pid, ())
        target.do(f"v[250] = 1; libc.madvise(a + 7 * {PAGE}, {PAGE}, 4); b = anonymous(2000)")
        checks = []

        def end_at_last() -> None:
            checks.append(None)
            if len(checks) == last:
                raise ReadingTooLong

        monkeypatch.setattr(tracker, "_check_time", end_at_last)
        last = 0
        while True:
            last, checks[:] = last + 1, []
            before = set(bits.frames)
            try:
                window = tracker.window(target.pid, (), want_resident=True)
                break
            except ReadingTooLong:
                assert bits.frames == before, "nothing is marked"
        assert last > 5, "the table, its lines, runs of pages, pagemap, flags and bits"
        assert within(window.pages, address, pages) == [250]
        assert within(window.resident, address, pages) == [*range(7), *range(8, 200), 250]
        assert window.unknown_bytes == 0
        monkeypatch.setattr(tracker, "_check_time", lambda: None)
        assert within(tracker.window(target.pid, (), want_resident=False).pages, address, pages) == []


@needs_root
def test_what_comes_after_a_pause_is_not_time_of_marking(target, monkeypatch):
    monkeypatch.setattr(idle, "IdleBitmap", lambda pool: IdleBits())
    with closing(IdleTracker()) as tracker:
        tracker.start(target.pid, ())
        tracker._tracked[target.pid].set_ns = 10**10
        tracker.resume_by_ns = time.monotonic_ns() + 10**9
        with pytest.raises(ClearingTooLong) as raised:
            tracker.window(target.pid, (), want_resident=False)
        monkeypatch.setattr(idle.time, "monotonic_ns", lambda clock=time.monotonic_ns: clock() + 10**12)
        tracker._tracked[target.pid].set_ns = 0
        window = raised.value.finish()
        assert window.clear_gap_ns > 10**12
        assert max(window.rearm_ns, tracker._tracked[target.pid].set_ns) < 10**12


@needs_root
def test_its_mappings_are_counted_before_the_pause_where_they_are_many(target, monkeypatch):
    monkeypatch.setattr(idle, "IdleBitmap", lambda pool: IdleBits())
    with closing(IdleTracker()) as tracker:
        lines = read_maps(target.pid).count(b"\n")
        assert tracker.count_mappings(target.pid) == lines
        tracker.start(target.pid, ())
        monkeypatch.setattr(process_files, "read_maps", lambda _pid: b"\n" * 70_000)
        assert tracker.count_mappings(target.pid) == lines
        monkeypatch.setattr(process_files, "_FEW_MAPPINGS", lines - 1)
        assert tracker.count_mappings(target.pid) == 70_000


# -- the real kernel


@pytest.fixture
def target():
    with Target() as target:
        yield target


@pytest.fixture
def observer():
    tracker = IdleTracker()
    observer = Observer(tracker)
    yield observer
    observer.close()
    tracker.close()


def test_a_flush_that_needs_page_tables_is_refused():
    with pytest.raises(TrackerError, match="flush cold"):
        IdleTracker("cold")


@needs_idle
@pytest.mark.parametrize("write", [True, False])
@pytest.mark.parametrize(("pages", "touched"), [(256, 256), (4096, 17), (20_000, 5000)])
def test_every_window_is_exact(observer, target, pages, touched, write):
    address = target.touch_for_ever(pages, touched, seed=3, write=write)
    observer.start(target.pid)
    for _ in range(4):
        target.let_run(0.005)
        window = observer.window(target.pid)
        assert (window.rearm, window.flush) == ("working-set", "soft-dirty")
        assert within(window.pages, address, pages) == drawn(pages, touched, 3).tolist()


@needs_idle
def test_what_was_not_touched_again_is_not_seen_again(observer, target):
    address = target.do("a = anonymous(8192); v = view(a, 8192); v[:] = 1; answer = a")
    observer.start(target.pid)
    for first in (100, 0, 2990, 8000):
        target.do(f"v[{first}:{first} + 50] = 2")
        window = observer.window(target.pid, want_resident=True)
        assert within(window.pages, address, 8192) == list(range(first, first + 50))
        assert within(window.resident, address, 8192) == list(range(8192))


@needs_idle
def test_new_memory_counts_as_touched(observer, target):
    observer.start(target.pid)
    observer.window(target.pid)
    address = target.do("a = anonymous(600); v = view(a, 600); v[:300] = 1; answer = a")
    assert within(observer.window(target.pid).pages, address, 600) == list(range(300))
    target.do("v[7] = 1")
    assert within(observer.window(target.pid).pages, address, 600) == [7]


@needs_idle
def test_a_huge_page_is_one_touch_of_two_mebibytes(observer, target):
    address = target.do("a = anonymous(2048, 14, 0x22, 1 << 21); v = view(a, 2048); v[:] = 1; answer = a")
    observer.start(target.pid)
    target.do("v[[5, 1030]] = 2")
    window = observer.window(target.pid, want_resident=True)
    first = address >> 21
    if first not in window.resident.huge:
        pytest.skip("the kernel gave no huge page")
    assert [b in window.pages.huge for b in range(first, first + 4)] == [True, False, True, False]
    assert [b in window.resident.huge for b in range(first, first + 4)] == [True] * 4


@needs_idle
def test_the_zero_page_is_neither_touched_nor_resident(observer, target):
    address = target.do("a = anonymous(600); v = view(a, 600); v.sum(); answer = a")
    observer.start(target.pid)
    target.do("v.sum()")
    window = observer.window(target.pid, want_resident=True)
    assert within(window.pages, address, 600) == within(window.resident, address, 600) == []


@needs_idle
def test_shared_memory_is_told_to_both_processes(observer):
    """The bits are set again for the first, before the second is looked at."""
    with Target() as one:
        child = one.do(
            "a = libc.mmap(None, 64 * 4096, 3, 0x21, -1, 0); v = view(a, 64); v[:] = 1\n"
            "c = mmap.mmap(-1, 4096)\n"
            "r, w = os.pipe(); p = os.fork()\n"
            "if p == 0: os.close(w); v.sum(); c[0] = 1; os.read(r, 1); os._exit(0)\n"
            "while not c[0]: time.sleep(0.01)\n"
            "answer = (p, a)"
        )
        pid, address = child
        try:
            for process in (one.pid, pid):
                observer.start(process)
            assert [len(within(observer.window(p).pages, address, 64)) for p in (one.pid, pid)] == [0, 0]
            one.do("v[3:9] = 2")
            for process in (one.pid, pid):
                assert within(observer.window(process).pages, address, 64) == list(range(3, 9))
            for process in (one.pid, pid):
                assert within(observer.window(process).pages, address, 64) == []
        finally:
            os.kill(pid, 9)


@needs_idle
def test_exec_begins_a_new_generation(observer, target):
    observer.start(target.pid)
    assert observer.window(target.pid).generation == 0
    target.do(f"os.execv(sys.executable, [sys.executable, '-c', {'print(None, flush=True); input(); input()'!r}])")
    window = observer.window(target.pid)
    assert window.generation == 1
    assert window.pages.page_count > 100
    after = observer.window(target.pid)
    assert after.generation == 1
    # A sleeping program; of the pages of libraries it tells what any process touched.
    assert after.pages.page_count < window.pages.page_count


@needs_idle
def test_reserved_address_space_costs_nothing(observer, target):
    """A terabyte that nobody touched, as CUDA reserves it: 2 GiB of pagemap."""
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 7):
        pytest.skip("before Linux 6.7 the kernel cannot say where pages are present")
    target.do("a = libc.mmap(None, 1 << 40, 0, 0x4022, -1, 0); answer = a")
    observer.start(target.pid)
    calls = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_frames.os, "pread", _counting(os.pread, calls))
        observer.window(target.pid)
    assert sum(calls) < 64 << 20


def _counting(pread, calls):
    def read(fd, size, offset):
        calls.append(size)
        return pread(fd, size, offset)

    return read


@needs_idle
def test_a_session_of_it_is_exact(tmp_path):
    path = tmp_path / "s.memtui"
    with pattern("random", "--pages", 4000, "--touched", 1000, "--seed", 3) as truth:
        done = memtui("record", truth["pid"], "-o", path, "--tracker", "idle", "--interval", 1, "--duration", 8)
    assert done.returncode == 0, done.stderr
    reader = Session(path)
    assert reader.hello.tracker == "idle"
    (process,) = reader.processes.all()
    taken = [
        p for s in reader.samples.sample.tolist()[1:-1] if (p := reader.pages.page_set(s, process.key)) is not None
    ]
    reader.close()
    assert len(taken) >= 2
    for pages in taken:
        seen, expected = truth_in(truth, pages)
        assert seen.tolist() == expected.tolist()
