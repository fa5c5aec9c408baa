"""The table of mappings is read when it has changed, and only then."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from contextlib import closing

import numpy as np
import pytest

from memtui.core.page_set import PageSet
from memtui.core.procfs import parse_rss, read_stat, read_status
from memtui.core.samples import Capability
from memtui.probes import process_owner, window_reader
from memtui.probes.pages.pagetable import tracker_state
from memtui.probes.pages.pagetable.maps_text import MappingTable
from memtui.probes.pages.pagetable.tracker import PageTableTracker
from memtui.probes.pages.pagetable.walk import Walker
from memtui.probes.pages.rss import RssTracker
from memtui.probes.pages.tracker import PageWindow
from memtui.probes.pause import hold_times
from memtui.probes.proc_maps import read_maps
from memtui.probes.window_reader import Lost, PageReader, Reading, Subject
from tests.support.live import needs_root
from tests.support.pagetable_targets import Target, need_pagetable
from tests.support.pid_state import places_of

pytestmark = pytest.mark.real_clock

CHANGES = {
    "mapped": "m = mmap.mmap(-1, 1 << 20)",
    "made read-only": "a = anonymous(16); libc.mprotect(a + 4096, 4096, 1)",
    "made accessible again": "libc.mprotect(a + 4096, 4096, 3)",
    "unmapped": "m.close()",
    "a longer heap": "libc.sbrk(1 << 20)",
    "a shorter heap": "libc.sbrk(-(1 << 20))",
    "a file": "f = open('/proc/self/exe', 'rb'); m = mmap.mmap(f.fileno(), 4096, prot=1); f.close()",
    # At the address of what was there: start, end and rights stay. Flags: MAP_PRIVATE | MAP_FIXED.
    "another file in its place": (
        "f = open('/etc/passwd', 'rb'); g = open('/etc/group', 'rb'); b = libc.mmap(None, 4096, 1, 2, f.fileno(), 0)"
    ),
    "and another one": "libc.mmap(b, 4096, 1, 0x12, g.fileno(), 0)",
}


@pytest.fixture
def target():
    need_pagetable()
    with Target() as made:
        yield made


def test_every_change_of_the_mappings_is_noticed(target):
    walker = Walker()
    try:
        target.do("libc.sbrk.argtypes = [ctypes.c_long]")
        for what, change in CHANGES.items():
            before, text = walker.walk(target.pid).mappings, read_maps(target.pid)
            assert np.array_equal(walker.walk(target.pid).mappings, before), "nothing has changed"
            target.do(change)
            assert read_maps(target.pid) != text, f"{what}: this changes nothing"
            assert not np.array_equal(walker.walk(target.pid).mappings, before), what
    finally:
        walker.close()


def test_a_name_that_was_given_is_noticed(target):
    target.do("a = anonymous(16)")
    text = read_maps(target.pid)
    target.do("libc.prctl(0x53564d41, 0, ctypes.c_ulong(a), ctypes.c_ulong(65536), b'weights')")  # PR_SET_VMA
    if read_maps(target.pid) == text:
        pytest.skip("this kernel names no anonymous memory (CONFIG_ANON_VMA_NAME)")
    walker = Walker()
    try:
        before = walker.walk(target.pid).mappings
        target.do("libc.prctl(0x53564d41, 0, ctypes.c_ulong(a), ctypes.c_ulong(65536), b'gradients')")
        assert not np.array_equal(walker.walk(target.pid).mappings, before)
    finally:
        walker.close()


def test_the_table_is_that_of_the_window_whether_it_was_read_or_not(target, monkeypatch):
    reads = itertools.count()
    monkeypatch.setattr(tracker_state, "read_maps", lambda pid: (next(reads), read_maps(pid))[1])
    with PageTableTracker() as tracker:
        reader = PageReader(tracker, pause=True)
        subject = Subject(target.pid, None, read_stat(target.pid).start_ticks, ())
        reader.start(subject)

        def window(*, want_resident: bool = False) -> bytes:
            (outcome,) = reader.read([subject], want_resident=want_resident)
            assert isinstance(outcome, Reading), outcome
            return outcome.maps

        for _ in range(3):
            assert window() == read_maps(target.pid)
        assert next(reads) == 1
        target.do("m = mmap.mmap(-1, 1 << 24)")
        for _ in range(3):
            assert window() == read_maps(target.pid)
        assert next(reads) == 3
        assert window(want_resident=True) == read_maps(target.pid)
        assert next(reads) == 5, "with the residents it is read all the same: a file may have been renamed"


@pytest.mark.parametrize("owner", [None, 0])
def test_before_a_pause_the_status_of_a_process_is_read_once(target, monkeypatch, owner):
    pids: list[int] = []

    def counted(pid: int, *rest: object) -> str:
        pids.append(pid)
        return read_status(pid, *rest)

    for module in (window_reader, process_owner, hold_times):
        monkeypatch.setattr(module, "read_status", counted)
    # The target of this test is root's, with all capabilities; none of these are ambient.
    monkeypatch.setattr(process_owner, "_CAPABILITIES", re.compile(r"^CapAmb:\t([0-9a-f]+)$", re.M))
    with PageTableTracker() as tracker:
        reader = PageReader(tracker, pause=True, owner=owner)
        subject = Subject(target.pid, os.pidfd_open(target.pid), read_stat(target.pid).start_ticks, ())
        reader.start(subject)
        pids.clear()
        for _ in range(3):
            assert isinstance(reader.read([subject], want_resident=False)[0], Reading)
        assert pids == [target.pid] * 3
        os.close(subject.pidfd)


def test_the_rss_is_that_of_the_moment_of_the_pages(target):
    """It fills 1 GiB again and again: a millisecond later its RSS is another one."""
    target.do(f"a = anonymous({1 << 18})")
    target.do("fill = lambda: [(ctypes.memset(a, 1, 1 << 30), libc.madvise(a, 1 << 30, 4)) for _ in iter(int, 1)]")
    target.do("libc.madvise.argtypes[0] = ctypes.c_void_p; threading.Thread(target=fill, daemon=True).start()")
    with PageTableTracker() as tracker:
        reader = PageReader(tracker, pause=True, max_pause_ns=10**10)
        subject = Subject(target.pid, None, read_stat(target.pid).start_ticks, ())
        reader.start(subject)
        apart_bytes = []
        for _ in range(10):
            (outcome,) = reader.read([subject], want_resident=True)
            assert isinstance(outcome, Reading), outcome
            apart_bytes.append(abs(parse_rss(outcome.memory.statm) - outcome.window.resident.size_bytes))
    # The kernel counts RSS in batches of pages for each CPU.
    assert max(apart_bytes) < 2 << 20, apart_bytes


OF_THE_ALLOCATOR = (
    "a = libc.mmap(None, 1 << 20, 3, 0x22, -1, 0)",
    "b = libc.mmap(None, 1 << 16, 0, 0x22, -1, 0)",
    "libc.mprotect(a + 8192, 4096, 5)",  # three where there was one
    "libc.mprotect(a + 8192, 4096, 3)",
    "libc.munmap(ctypes.c_void_p(a), ctypes.c_size_t(4096))",
    "libc.mmap(a + (1 << 19), 4096, 7, 0x32, -1, 0)",  # MAP_FIXED, in the middle of it
    "libc.sbrk(1 << 20)",
    "libc.sbrk(-(1 << 20))",
)


def test_memory_of_the_allocator_comes_and_goes_without_the_kernels_text(target):
    walker, table = Walker(), MappingTable()
    try:
        target.do("libc.sbrk.argtypes = [ctypes.c_long]")
        assert not table.knows(walker.walk(target.pid).mappings)
        table.store(walker.walk(target.pid).mappings, read_maps(target.pid))
        for change in OF_THE_ALLOCATOR:
            target.do(change)
            mappings, text = walker.walk(target.pid).mappings, read_maps(target.pid)
            assert table.knows(mappings), change
            assert table.text(mappings) == text, change
    finally:
        walker.close()


def test_whatever_changes_the_text_is_the_kernels(target):
    walker, table = Walker(), MappingTable()
    try:
        target.do("libc.sbrk.argtypes = [ctypes.c_long]")
        table.store(walker.walk(target.pid).mappings, read_maps(target.pid))
        for what, change in CHANGES.items():
            target.do(change)
            mappings, text = walker.walk(target.pid).mappings, read_maps(target.pid)
            if not table.knows(mappings):
                table.store(mappings, text)
            assert table.text(mappings) == text, what
            assert table.knows(mappings), what
    finally:
        walker.close()


def test_a_table_of_which_not_every_line_is_known_is_never_put_together():
    table, mappings = MappingTable(), np.array([[4096, 8192, 3, 0]], np.uint64)
    two = b"00001000-00002000 rw-p 00000000 00:00 0 \n00003000-00004000 rw-p 00000000 00:00 0 \n"
    assert table.store(mappings, two) == two
    assert not table.knows(mappings)


def test_a_tracker_that_knows_no_table_costs_a_reading_every_time(monkeypatch):
    class Blind:
        name, flush, rearm, reads_running = "blind", "off", "off", True
        wss = pages = Capability("wss", True)
        page_ns, resume_by_ns = 0, None

        def window(self, pid, vmas, *, want_resident):
            return PageWindow(PageSet.empty())

    texts = iter((b"one", b"two"))
    monkeypatch.setattr(window_reader, "read_maps", lambda pid: next(texts))
    reader = PageReader(Blind(), pause=False)
    tables = [reader._read_paused(Subject(1, None, 0, ()), False)[2]() for _ in range(2)]
    assert tables == [b"one", b"two"]


class PausingTracker(RssTracker):
    """Reads nothing while its targets are paused, and keeps their pids until they are forgotten."""

    pauses = True

    def __init__(self):
        super().__init__()
        self.started = set()

    def is_prepared(self, pid):
        return pid in self.started

    def start(self, pid, vmas):
        self.started.add(pid)

    def forget(self, pid):
        self.started.discard(pid)


KEPT = {
    "_tracker.started",
    "_protected._owners",
    "_users._users",
    "_users._seen",
    *(f"_times.{name}" for name in ("_size", "_took", "_stopped", "_walk_ns")),
}
KEPT_UNFILTERED = {"_filters._threads", "_filters._turns"}
KEPT_FILTERED = {"_filters._filtered", "_tracker.running"}


@needs_root
@pytest.mark.parametrize("filtered", [False, True])
def test_nothing_is_kept_of_a_process_that_ended(filtered, monkeypatch):
    """A recording of hours sees hundreds of thousands of processes."""
    with closing(PageReader(PausingTracker(), pause=True)) as reader, subprocess.Popen(["sleep", "100"]) as target:
        monkeypatch.setattr(reader._protected, "_terminals", {1 << 30})  # as if memtui had a terminal
        subject = Subject(target.pid, None, read_stat(target.pid).start_ticks)
        try:
            reader.start(subject)
            monkeypatch.setattr(reader._filters, "_has_filter", lambda *_: filtered)
            for _ in range(2):
                assert isinstance(reader.read([subject], want_resident=False)[0], Reading)
            assert places_of(target.pid, reader) == KEPT | (KEPT_FILTERED if filtered else KEPT_UNFILTERED)
            reader.forget(target.pid)
            assert places_of(target.pid, reader) == set()
        finally:
            target.kill()


@needs_root
@pytest.mark.parametrize("together", [False, True])
def test_a_process_that_gains_other_rights_before_it_is_paused_is_not_read(together, monkeypatch):
    """It may execute a set-user-ID program after its owner was looked at: that is done once more in the pause."""
    # The targets of this test are root's, with all capabilities; none of these are ambient.
    monkeypatch.setattr(process_owner, "_CAPABILITIES", re.compile(r"^CapAmb:\t([0-9a-f]+)$", re.M))
    tracker, gained, windows = PausingTracker(), set(), []
    monkeypatch.setattr(tracker, "window", lambda pid, *_, **__: (windows.append(pid), PageWindow(PageSet.empty()))[1])
    monkeypatch.setattr(window_reader, "looks_own", lambda pid, uid: (pid, uid) not in gained)
    owner = os.geteuid()
    processes = [subprocess.Popen(["sleep", "100"]) for _ in range(2)]
    mine, other = (process.pid for process in processes)
    with closing(
        PageReader(tracker, pause=True, together=together, owner=owner, in_pause=lambda: gained.add((other, owner)))
    ) as reader:
        try:
            subjects = [Subject(pid, None, read_stat(pid).start_ticks) for pid in (mine, other)]
            for subject in subjects:
                reader.start(subject)
            read, lost = reader.read(subjects, want_resident=False)
            assert isinstance(read, Reading)
            assert windows == [mine]
            assert isinstance(lost, Lost)
            assert isinstance(lost.error, PermissionError)
            assert str(lost.error) == f"process {other} has rights that its user has not"
            assert lost.paused_ns > 0
        finally:
            for process in processes:
                process.kill()
                process.wait()


def test_nothing_is_kept_in_page_tables_of_a_process_that_ended(target):
    with PageTableTracker() as tracker, closing(PageReader(tracker, pause=True)) as reader:
        subject = Subject(target.pid, None, read_stat(target.pid).start_ticks)
        reader.start(subject)
        for want_resident in (True, False):
            assert isinstance(reader.read([subject], want_resident=want_resident)[0], Reading)
        assert "_tracker._tracked" in places_of(target.pid, reader)
        reader.forget(target.pid)
        assert places_of(target.pid, reader) == set()
