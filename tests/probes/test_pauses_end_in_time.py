"""No pause is longer than ``--max-pause``, from the first to the last, whichever tracker reads.

What does not fit is read or cleared while the target runs, and nothing that was touched is lost or invented by that.
"""

from __future__ import annotations

import os
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from memtui.core.block_sample import BlockSample
from memtui.core.procfs import read_stat
from memtui.core.samples import Capability
from memtui.probes import proc_maps, window_reader
from memtui.probes.pages import process_files, referenced
from memtui.probes.pages.idle import tracker as idle
from memtui.probes.pages.idle.tracker import IdleTracker
from memtui.probes.pages.pagetable import tracker_state
from memtui.probes.pages.pagetable.tracker import PageTableTracker
from memtui.probes.pages.referenced import ReferencedTracker, maps_in
from memtui.probes.pages.tlb_flush import Handle
from memtui.probes.pages.tracker import ClearingTooLong, ReadingTooLong
from memtui.probes.proc_maps import MANY, TooManyMappings, read_maps
from memtui.probes.window_reader import Lost, PageReader, Reading, Subject
from tests.support.idle_bits import IdleBits
from tests.support.live import needs_root
from tests.support.pagetable_targets import PAGE, Observer, Target, need_pagetable, within

pytestmark = [pytest.mark.real_clock, needs_root]
PAGES, TOUCHED = 3000, 700
LATE_NS = 1


class Watched:
    """A process that touches some of its pages for ever, and one tracker."""

    def __init__(self, tracker, *, touches: bool = True) -> None:
        self.target, self.tracker = Target(), tracker
        # A guard on both sides keeps the mapping by itself.
        self.address = self.target.do(f"a = anonymous({PAGES + 2}); libc.mprotect(a, 4096, 0); answer = a + 4096")
        self.target.do(f"libc.mprotect({self.address} + {PAGES} * 4096, 4096, 0)")
        self.target.do(f"v = view({self.address}, {PAGES}); v[:] = 1")
        if touches:
            self.target.send(f"loop(v, drawn({PAGES}, {TOUCHED}, 5), True)")
            self.target.let_run(0.02)
        self.pid = self.target.pid

    @property
    def subject(self) -> Subject:
        return Subject(self.pid, None, read_stat(self.pid).start_ticks)

    @property
    def stopped(self) -> bool:
        return "t" in read_stat(self.pid).state

    def seen_in(self, window) -> bool:
        """Whether a window has the touched pages and not the others; somebody else's DAMON takes a few marks."""
        if window.pages is None:
            seen = (dict(window.vma_wss()).get(self.address) or 0) // PAGE
        else:
            seen = len(within(window.pages, self.address, PAGES))
        return 0.99 * TOUCHED <= seen <= 1.01 * TOUCHED

    def close(self) -> None:
        self.tracker.close()
        self.target.close()


@pytest.fixture(scope="module", params=["pagetable", "referenced"])
def one(request):
    """For all tests: trackers take long to prove themselves."""
    if request.param == "pagetable":
        need_pagetable()
        tracker = PageTableTracker(rearm="full")
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(referenced, "prove_flush", lambda: Capability("soft-dirty", True))
            tracker = ReferencedTracker()
    with closing(Watched(tracker)) as made:
        yield made


@pytest.fixture
def watched(one):
    yield one
    one.tracker.forget(one.pid)
    one.tracker.running.clear()
    one.tracker.resume_by_ns = None


@pytest.fixture
def sleeper(monkeypatch):
    """One that touches nothing, with the tracker that reads smaps."""
    monkeypatch.setattr(referenced, "prove_flush", lambda: Capability("soft-dirty", True))
    with closing(Watched(ReferencedTracker(), touches=False)) as made:
        yield made


@contextmanager
def reader_of(watched: Watched, *, together: bool = False):
    """A reader, which leaves its tracker open."""
    reader = PageReader(watched.tracker, pause=True, together=together, max_pause_ns=5 * 10**9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watched.tracker, "close", lambda: None)
        with closing(reader):
            yield reader


def read(reader: PageReader, watched: Watched) -> Reading:
    (reading,) = reader.read([watched.subject], want_resident=False)
    assert isinstance(reading, Reading), reading
    return reading


@pytest.mark.parametrize("together", [False, True])
def test_where_threads_stop_too_late_it_is_read_while_it_runs(watched, together, monkeypatch):
    with Target() as other, reader_of(watched, together=together) as reader:
        subjects = [watched.subject, Subject(other.pid, None, read_stat(other.pid).start_ticks)]
        for subject in subjects:
            reader.start(subject)
        watched.target.let_run(0.02)
        states, window = [], watched.tracker.window

        def noted(pid, vmas, **options):
            states.append("t" in read_stat(pid).state)
            return window(pid, vmas, **options)

        monkeypatch.setattr(watched.tracker, "window", noted)
        monkeypatch.setattr(reader, "_deadline_s", lambda *_: 0.1)
        monkeypatch.setattr(reader._times, "expected_ns", lambda *_: 0)
        reader._max_pause_ns = LATE_NS
        reading, _ = reader.read(subjects, want_resident=False)
        assert isinstance(reading, Reading)
        assert states == [False, False]
        assert reading.running.startswith("holding it would take longer than --max-pause")
        assert (reading.paused_ns > 0, reader.long in {subject.pid for subject in subjects}) == (True, True)
        assert watched.seen_in(reading.window)
        assert watched.tracker.resume_by_ns is None, "that was the time of one pause"


def test_what_was_given_up_has_cleared_nothing(watched):
    observer = Observer(watched.tracker)
    with closing(observer):
        observer.start(watched.pid)
        watched.target.let_run(0.02)
        watched.tracker.resume_by_ns = LATE_NS
        # smaps is read piece by piece.
        with pytest.raises(ReadingTooLong if watched.tracker.name == "referenced" else ClearingTooLong):
            observer.window(watched.pid)
        watched.tracker.resume_by_ns = None
        assert watched.seen_in(observer.window(watched.pid))


@pytest.mark.parametrize("when", ["before all", "in between"])
def test_the_first_pause_ends_in_time_and_the_rest_is_cleared_after_it(watched, when, monkeypatch):
    """All pages were written: the first window has to say what is touched, and not what is there."""
    stopped = []
    clear, write = Handle.clear, os.write

    def clear_noted(handle: Handle) -> None:
        stopped.append(watched.stopped)
        clear(handle)

    def write_noted(fd: int, data: bytes) -> int:
        if data in (b"1", b"4"):
            stopped.append(watched.stopped)
        return write(fd, data)

    monkeypatch.setattr(Handle, "clear", clear_noted)
    monkeypatch.setattr(referenced.os, "write", write_noted)
    with reader_of(watched) as reader:
        if when == "in between":
            monkeypatch.setattr(reader, "_check_late", lambda: None)
        monkeypatch.setattr(reader, "_deadline_s", lambda *_: 0.1)
        monkeypatch.setattr(reader._times, "expected_ns", lambda *_: 0)
        reader._max_pause_ns = LATE_NS
        assert reader.start(watched.subject) > 0
        assert stopped
        # What is short, the clearing by referenced, is done; its flush takes as long, and waits.
        assert stopped.pop(0) == (when == "in between" and watched.tracker.name == "referenced")
        assert not any(stopped)
        assert reader.long == watched.pid
        assert watched.tracker.resume_by_ns is None
        reader._max_pause_ns = 5 * 10**9
        watched.target.let_run(0.02)
        reading = read(reader, watched)
        assert (reading.running, watched.seen_in(reading.window)) == ("", True)
        assert any(stopped), "and held again where there is time"


def test_a_first_pause_that_was_not_finished_counts_for_nothing(watched):
    observer = Observer(watched.tracker)
    with closing(observer):
        for again in range(2):
            watched.tracker.resume_by_ns = LATE_NS
            watched.tracker.prepare(watched.pid)
            with pytest.raises(ClearingTooLong) as raised:
                observer.paused(watched.pid, lambda: watched.tracker.start(watched.pid, ()))
            watched.tracker.resume_by_ns = None
            if not again:
                assert observer.window(watched.pid).reason == "tracking of this process began in this window"
        assert raised.value.finish().reason == "tracking of this process began in this window"
        watched.target.let_run(0.02)
        assert watched.seen_in(observer.window(watched.pid))


def test_what_takes_long_is_prepared_outside_of_the_pause(watched, monkeypatch):
    """As after a first window that was refused because of many mappings, of which there are less now."""
    prepare, states = watched.tracker.prepare, []
    monkeypatch.setattr(watched.tracker, "prepare", lambda pid: (states.append(watched.stopped), prepare(pid))[1])
    with reader_of(watched) as reader:
        reading = read(reader, watched)
        assert reading.window.reason == "tracking of this process began in this window"
        assert states == [False] * (watched.tracker.name == "pagetable")
        watched.target.let_run(0.02)
        assert watched.seen_in(read(reader, watched).window)


def test_one_that_will_take_longer_to_clear_is_let_go_before(watched):
    """Twice: what is known of its clearing is kept."""
    observer = Observer(watched.tracker)
    with closing(observer):
        observer.start(watched.pid)
        observer.window(watched.pid)
        watched.target.let_run(0.02)
        tracked = watched.tracker._tracked[watched.pid]
        if watched.tracker.name == "pagetable":
            tracked.clear_page_ns = 10.0**9
        else:
            tracked.clear_ns = 10**12
        watched.tracker.resume_by_ns = time.monotonic_ns() + 100 * 10**9
        with pytest.raises(ClearingTooLong) as raised:
            observer.window(watched.pid)
        window = raised.value.finish()
        assert watched.seen_in(window)
        assert window.clear_gap_ns is not None
        watched.tracker.resume_by_ns = None
        watched.target.let_run(0.02)
        assert watched.seen_in(observer.window(watched.pid))


def test_the_time_of_clearing_grows_with_that_of_reading():
    tracked = referenced._Tracked(None, read_ns=10, clear_ns=30)
    assert (tracked.expected_clear_ns(20), tracked.expected_clear_ns(5)) == (60, 30)
    assert referenced._Tracked(None, clear_ns=30).expected_clear_ns(20) == 30, "before the first window"


def test_a_part_is_cleared_after_the_pause_where_there_is_no_time():
    """The first one, and one after another."""
    need_pagetable()
    tracker = PageTableTracker("soft-dirty", sample=BlockSample(3, parts=1))
    with closing(Watched(tracker)) as watched, closing(Observer(tracker)) as observer:

        def late(work) -> ClearingTooLong:
            tracker.resume_by_ns = LATE_NS
            with pytest.raises(ClearingTooLong) as raised:
                observer.paused(watched.pid, work)
            tracker.resume_by_ns = None
            return raised.value

        tracker.prepare(watched.pid)
        assert late(lambda: tracker.start(watched.pid, ())).finish().pages is None
        for _ in range(2):
            watched.target.let_run(0.02)
            tracker.start_round(1)
            window = late(lambda: tracker.window(watched.pid, (), want_resident=False)).finish()
            assert watched.seen_in(window)
            assert window.sampled.page_count >= PAGES
        watched.target.let_run(0.02)
        tracker.start_round(1)
        assert watched.seen_in(observer.window(watched.pid))


# -- mappings


def test_smaps_holds_the_text_of_maps(sleeper):
    sleeper.target.do("f = open('/proc/self/exe', 'rb'); m = mmap.mmap(f.fileno(), 4096, prot=1)")
    with Path(f"/proc/{sleeper.pid}/smaps").open("rb") as smaps:
        assert maps_in(referenced._read(smaps.fileno())) == read_maps(sleeper.pid)


def test_no_table_is_read_in_a_pause_but_a_short_new_one(watched, monkeypatch):
    """Of what the page-table tracker cannot compose from its walk, up to 2048 mappings."""
    states, whole = [], read_maps

    def noted(pid, *words, **options):
        states.append(watched.stopped)
        return whole(pid, *words, **options)

    for module in (window_reader, process_files):
        monkeypatch.setattr(module, "read_maps", noted)
    monkeypatch.setattr(tracker_state, "_MAPPINGS_IN_PAUSE", 0)
    monkeypatch.setattr(tracker_state, "read_maps", noted)
    with reader_of(watched) as reader:
        reader.start(watched.subject)
        for _ in range(2):
            assert read(reader, watched).maps == whole(watched.pid)
    assert states
    assert not any(states)


def test_what_has_few_mappings_is_not_counted_again(monkeypatch):
    monkeypatch.setattr(process_files, "read_maps", lambda _pid: b"\n" * 5000)
    assert [process_files.count_mappings(1, last) for last in (None, 1, 2048, 2049)] == [5000, 1, 2048, 5000]


@pytest.fixture(params=["referenced", "idle"])
def either(request, monkeypatch):
    """As ``sleeper``; also with the tracker of page frames, on idle bits that only this test knows."""
    if request.param == "referenced":
        monkeypatch.setattr(referenced, "prove_flush", lambda: Capability("soft-dirty", True))
        tracker = ReferencedTracker()
    else:
        monkeypatch.setattr(idle, "prove_flush", lambda: Capability("soft-dirty", True))
        monkeypatch.setattr(idle, "IdleBitmap", lambda pool: IdleBits())
        tracker = IdleTracker()
    with closing(Watched(tracker, touches=False)) as made:
        yield made


@pytest.mark.parametrize("counted", [True, False])
def test_one_of_too_many_mappings_is_not_held_twice(counted, either, monkeypatch):
    """Where that is known before. Where they come between two windows, reading them ends at as many."""
    with reader_of(either) as reader:
        reader.start(either.subject)
        read(reader, either)
        few = read_maps(either.pid).count(b"\n")
        for module in (proc_maps, referenced, window_reader):
            monkeypatch.setattr(module, "MOST_MAPPINGS", few + 10)
        monkeypatch.setattr(process_files, "_FEW_MAPPINGS", 0 if counted else few)
        either.target.do("b = libc.mmap(None, 200 * 4096, 3, 0x22, -1, 0)")
        either.target.do("[libc.mprotect(b + n * 4096, 4096, 1) for n in range(0, 200, 2)]")
        paused = []
        for _ in range(3):
            (lost,) = reader.read([either.subject], want_resident=False)
            assert isinstance(lost, Lost)
            assert isinstance(lost.error, TooManyMappings)
            assert str(lost.error) == MANY
            paused.append(lost.paused_ns > 0)
        assert paused == [not counted, False, False]
        either.target.do("libc.munmap(ctypes.c_void_p(b), ctypes.c_size_t(200 * 4096))")
        assert read(reader, either).running == "", "held and read again where they are few"
