"""What processes share counts once: the counting, and the real kernel with memory of every kind that can be shared."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.core.page_set import PageSet
from memtui.core.procfs import read_stat
from memtui.core.samples import SHARED_UNKNOWN, End, Process, ProcessWindow, Vma, VmaSizes, VmaTable, Window
from memtui.probes.pages.pagetable import walk
from memtui.probes.pages.pagetable.tracker import PageTableTracker
from memtui.probes.pages.shared_frames import TouchedFrames, in_common
from memtui.probes.pages.tracker import PageWindow
from memtui.probes.pause.pauser import NotPaused
from memtui.probes.shared_pages import shared_pages
from memtui.probes.window_reader import Lost, Outcome, PageReader, Reading, Subject
from memtui.recording.wire import Message
from memtui.reports.export.tables import TABLES
from memtui.reports.figures.provenance import doubts
from memtui.reports.report import build_report
from memtui.reports.source import Source
from memtui.reports.text import format_report
from memtui.session.session import Session
from memtui.tui.presenters.ranges import RangeTable
from tests.support.pagetable_targets import PAGE, Target, need_pagetable, vmas_of
from tests.support.sessions import CODE, HEAP, MS, VMAS, hello, messages, write_session

pytestmark = pytest.mark.real_clock

HUGE = 1 << 21


# -- the counting ------------------------------------------------------------------------------------------------------


def touched(frames: list[int], heads: list[int], start: int = 0) -> TouchedFrames:
    """Frames at rising addresses; ``heads`` are numbers of 2 MiB of frames."""
    pages, huge = start + np.arange(len(frames)), start + 1000 + np.arange(len(heads))
    return TouchedFrames(*(np.array(part, np.uint64) for part in (pages, frames, huge, [512 * head for head in heads])))


def by_frame(one: TouchedFrames) -> Counter[int]:
    """How often each frame is mapped, page by page."""
    found = Counter(one.frames.tolist())
    for head in one.huge_frames.tolist():
        found.update(range(head, head + 512))
    return found


SMALL = st.lists(st.integers(0, 40) | st.integers(512, 530) | st.sampled_from((2**40 - 1, 2**60)), max_size=30)
TREES = st.lists(st.builds(touched, SMALL, st.lists(st.integers(0, 3), max_size=3)), max_size=5)


@settings(deadline=None)
@given(TREES)
def test_a_frame_counts_as_often_as_in_the_process_that_maps_it_most_often(tree):
    counts = [by_frame(one) for one in tree]
    owners = Counter(frame for count in counts for frame in count)
    shared, excess = in_common(tree)
    assert excess == PAGE * sum(
        sum(count[frame] for count in counts) - max(count[frame] for count in counts) for frame in owners
    )
    for one, count in zip(shared, counts, strict=True):
        assert by_frame(one) == Counter({f: n for f, n in count.items() if owners[f] > 1})
    together = PAGE * sum(map(Counter.total, counts)) - excess
    assert together >= max((PAGE * count.total() for count in counts), default=0)


@settings(deadline=None)
@given(TREES)
def test_the_order_of_the_processes_does_not_matter(tree):
    assert in_common(tree)[1] == in_common(tree[::-1])[1]


def test_a_page_mapped_twice_by_one_process_is_two_pages_of_its_address_space():
    assert in_common([touched([5, 5], [])])[1] == 0
    assert in_common([touched([5, 5], []), touched([7], [])])[1] == 0
    (first, second), excess = in_common([touched([5, 5], []), touched([5], [])])
    assert (len(first.pages), len(second.pages), excess) == (2, 1, PAGE)


def test_a_huge_page_that_another_process_maps_in_parts():
    (whole, part), excess = in_common([touched([], [1, 3]), touched([512, 513, 9], [])])
    assert whole.pages.tolist() == [1000 * 512, 1000 * 512 + 1]
    assert part.frames.tolist() == [512, 513]
    assert excess == 2 * PAGE
    assert not len(whole.huge)


def test_sizes_go_to_the_mapping_a_page_lies_in():
    vmas = (Vma(PAGE, 3 * PAGE, "r--p"), Vma(3 * PAGE, 4 * PAGE, "rw-p"), Vma(1000 * HUGE, 1002 * HUGE, "rw-s"))
    one = touched([1, 2, 3, 4, 5], [7])  # pages 0 to 4: the first and the last are in no mapping
    assert one.shared_sizes(vmas) == ((PAGE, 2 * PAGE), (3 * PAGE, PAGE), (1000 * HUGE, HUGE))
    assert one.shared_sizes(()) == ()
    assert TouchedFrames().shared_sizes(vmas) == ()


def test_who_ended_has_no_part_and_who_was_lost_leaves_it_unknown():
    def reading(frames) -> Reading:
        window = PageWindow(PageSet.empty(), frames=frames)
        return Reading(window, b"", 0, 0, 0)

    here, there = (reading(lambda: touched([1, 2], [])) for _ in range(2))
    gone, lost = Lost(ProcessLookupError("ended")), Lost(NotPaused("busy"))
    shared, excess = shared_pages([here, gone, there])
    assert excess == 2 * PAGE
    assert shared[1] is None
    assert [one.frames.tolist() for one in (shared[0], shared[2])] == [[1, 2], [1, 2]]
    assert shared_pages([here, lost, there]) == ([None] * 3, None)
    assert shared_pages([here, reading(None)]) == ([None] * 2, None)
    assert shared_pages([gone]) == ([None], None)
    (alone, nobody), excess = shared_pages([reading(None), gone])
    assert (alone.shared_sizes(()), nobody, excess) == ((), None, 0)


# -- the session ------------------------------------------------------------------------------------------------------


def tree_of_two(excess_bytes: int | None, sizes: tuple[VmaSizes | None, VmaSizes | None]) -> Iterator[Message]:
    """Two processes that touch the heap and the code, the same code."""
    yield hello()
    for key, role in ((1, "target"), (2, "child")):
        yield Process(key, 4241 + key, 1, 777, 0, "python train.py", role)
        yield VmaTable(key, 0, VMAS)
    pages = PageSet.from_pages(np.concatenate(((HEAP >> 12) + np.arange(100), (CODE >> 12) + np.arange(30))))
    for sample in range(3):
        at = sample * 200 * MS
        parts = tuple(
            ProcessWindow(key, at, at + 190 * MS, pages=pages, rss_bytes=9 << 20, vma_shared_bytes=shared)
            for key, shared in enumerate(sizes, 1)
        )
        yield Window(sample, at, at + 190 * MS, 200 * MS, 0, parts, shared_excess_bytes=excess_bytes)
    yield End(600 * MS, "stopped")


def test_a_session_keeps_what_is_shared(tmp_path):
    shared: VmaSizes = ((CODE, 30 * PAGE),)
    path = write_session(tmp_path / "two.memtui", tree_of_two(30 * PAGE, (shared, shared)))
    report = build_report(path)
    assert report.wss_bytes.median == 230 * PAGE
    assert (report.wss_bytes.status, report.shared_bytes.max) == ("ok", 30 * PAGE)
    assert [(p.wss_bytes, p.shared_bytes) for p in report.processes] == [(130 * PAGE, 30 * PAGE)] * 2
    text = format_report(report)
    assert "shared       mean 120 KiB" in text
    assert "working set 520 KiB (120 KiB shared), resident" in text
    columns, rows = TABLES["samples"]
    place = columns.index("shared_bytes")
    with closing(Source(path)) as source:
        assert [row[place] for row in rows(source)] == [30 * PAGE] * 9
    session = Session(path)
    code = {row.id for row in session.vmas.rows() if row.start == CODE}
    assert session.vmas.shared(2) == dict.fromkeys(code, 30 * PAGE)
    table = RangeTable()
    table.filters_on = False
    view = table.view(session, 2, session.processes.all())
    assert {(row.name, row.shared_bytes) for row in view.rows if row.wss_bytes} == {
        ("[heap]", 0),
        ("libtorch_cpu.so", 30 * PAGE),
    }
    session.close()


@pytest.mark.parametrize(
    ("excess", "sizes"), [(None, (None, None)), (None, ((), ())), (0, ((), None))], ids=["neither", "sum", "part"]
)
def test_a_sum_that_counts_shared_pages_for_each_says_so(tmp_path, excess, sizes):
    path = write_session(tmp_path / "two.memtui", tree_of_two(excess, sizes))
    report = build_report(path)
    assert report.wss_bytes.median == 260 * PAGE
    assert (report.wss_bytes.status, report.wss_bytes.reason) == ("approximate", SHARED_UNKNOWN)
    assert report.shared_bytes.mean is None
    assert "were seen in no window" in report.shared_bytes.reason
    reader = Source(path)
    assert set(zip(reader.samples.status, reader.samples.reason, strict=True)) == {("ok", SHARED_UNKNOWN)}
    assert any(SHARED_UNKNOWN in doubt for doubt in doubts(reader))
    reader.close()


def test_one_process_shares_with_nobody(tmp_path):
    report = build_report(write_session(tmp_path / "one.memtui", messages(5)))
    assert (report.wss_bytes.status, report.shared_bytes.max) == ("ok", 0)
    assert "shared" not in format_report(report)


# -- the kernel --------------------------------------------------------------------------------------------------------

CHILDREN = 3
# Areas by name: address and pages. All processes go through all of them, the parent through one more.
_AREAS = """
def area(name, pages, flags=0x22, fd=-1):
    "Memory with nothing of others in its page tables."
    size = (pages * 4096 + (1 << 21) - 1 >> 21) + 2 << 21
    address = libc.mmap(None, size, 3, flags, fd, 0)
    inside = (address + (1 << 21)) >> 21 << 21
    libc.madvise(inside, pages * 4096, 15)
    areas[name] = inside, pages
    v = views[name] = view(inside, pages)
    v[:] = 1
    return v
areas, views = {}, {}
common = area("common", 300, flags=0x21)
read, written = area("read", 700), area("written", 100)
hidden = area("hidden", 64, flags=0x21)
file = os.memfd_create("twice"); os.truncate(file, 8 << 20)
one, two = area("one", 50, 0x1, file), area("two", 50, 0x1, file)
me, children = 0, []
for n in range(1, int(COUNT) + 1):
    pid = os.fork()
    if not pid:
        me = n
        break
    children.append(pid)
def work():
    at, pages = areas["hidden"]
    while True:
        beats[me] += np.uint64(1)
        common.sum(); read.sum(); one.sum()
        written[:] += 1
        libc.mprotect(at, pages * 4096, 3); hidden.sum(); libc.mprotect(at, pages * 4096, 0)
        if not me: two.sum()
        time.sleep(0.002)
if me:
    work()
answer = (children, areas)
"""


class Family:
    """A process and its children, each in a loop over the same memory; read all in one pause."""

    def __init__(self, target: Target, children: list[int], tracker: PageTableTracker) -> None:
        self.target, self.pids = target, [target.pid, *children]
        self.reader = PageReader(tracker, pause=True, together=True)
        self._fds = [os.pidfd_open(pid) for pid in self.pids]
        for subject in self._subjects():
            self._patiently(lambda subject=subject: self.reader.start(subject))

    def _subjects(self) -> list[Subject]:
        pairs = zip(self.pids, self._fds, strict=True)
        return [Subject(pid, fd, read_stat(pid).start_ticks, vmas_of(pid)) for pid, fd in pairs]

    @staticmethod
    def _patiently(work):
        """Again, where a busy machine kept somebody from a CPU, and so from stopping, for too long."""
        for _ in range(20):
            try:
                return work()
            except NotPaused:
                continue
        raise AssertionError("cannot be held")

    def window(self) -> list[Outcome]:
        """After all went at least twice through their memory."""
        beats = np.frombuffer(self.target._beats, np.uint64)
        before, deadline = beats[: len(self.pids)].copy(), time.monotonic() + 60
        while (beats[: len(self.pids)] < before + np.uint64(2)).any():
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return self.reader.read(self._subjects(), want_resident=False)

    def readings(self) -> list[Reading]:
        """A window without a loss."""
        for _ in range(20):
            found = self.window()
            if all(isinstance(one, Reading) for one in found):
                return found
        raise AssertionError("they cannot all be held")

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self.reader.close()


@contextmanager
def family(children: int = CHILDREN, program: str = _AREAS) -> Iterator[tuple[Family, dict[str, tuple[int, int]]]]:
    need_pagetable()
    with Target() as target:
        pids, areas = target.do(program.replace("COUNT", str(children)))
        target.send("work()")
        try:
            with PageTableTracker() as tracker:
                tracker.notice()
                one = Family(target, pids, tracker)
                try:
                    yield one, areas
                finally:
                    one.close()
        finally:
            for pid in pids:
                os.kill(pid, 9)


def within(frames: TouchedFrames, area: tuple[int, int]) -> TouchedFrames:
    """The part of a set of 4 KiB pages that lies in an area."""
    numbers = frames.pages.astype(np.int64) - area[0] // PAGE
    mask = (numbers >= 0) & (numbers < area[1])
    return TouchedFrames(frames.pages[mask], frames.frames[mask])


def test_every_kind_of_memory_that_processes_share():
    with family() as (tree, areas):
        tree.readings()  # until then the first copies of what is written are made
        readings = tree.readings()
        frames = [reading.window.frames() for reading in readings]
        shared, excess = shared_pages(readings)
        seen = {name: [len(within(one, area).pages) for one in shared] for name, area in areas.items()}
        assert seen == {
            "common": [300] * 4,
            "read": [700] * 4,
            "written": [0] * 4,
            "hidden": [64] * 4,
            "one": [50] * 4,
            "two": [50, 0, 0, 0],
        }
        # What the sum counts too much: of each area all but one.
        once = {name: in_common([within(one, area) for one in frames])[1] // PAGE for name, area in areas.items()}
        assert once == {"common": 900, "read": 2100, "written": 0, "hidden": 192, "one": 150, "two": 0}
        # Of the file that the parent maps twice, all but its two.
        both = (within(frames[0], areas[name]) for name in ("one", "two"))
        pages, mapped = zip(*((one.pages, one.frames) for one in both), strict=True)
        twice = TouchedFrames(np.concatenate(pages), np.concatenate(mapped))
        assert in_common([twice, *(within(one, areas["one"]) for one in frames[1:])])[1] // PAGE == 150
        assert excess >= PAGE * sum(once.values())
        sizes = dict(shared[1].shared_sizes(vmas_of(tree.pids[1])))
        assert sum(sizes.values()) == PAGE * len(shared[1].pages)
        assert 300 * PAGE in sizes.values()


def test_the_frames_are_those_that_the_kernel_tells():
    """Through another door, /proc/PID/pagemap: the same frames, and the same sum."""
    with family() as (tree, _):
        tree.readings()
        readings = tree.readings()
        truth, wrong, checked = [], 0, 0
        for pid, reading in zip(tree.pids, readings, strict=True):
            pages = reading.window.pages
            assert pages is not None
            told = dict(zip(*(part.tolist() for part in _small(reading.window.frames())), strict=True))
            frames = {page: frame for page in pages.pages().tolist() if (frame := _frame(pid, page))}
            for page, frame in told.items():
                checked += 1
                wrong += frames.get(page) != frame
            truth.append(touched(list(frames.values()), []))
        assert checked > 4 * 1200
        assert wrong <= checked // 100  # what they write to meanwhile may have moved
        excess = shared_pages(readings)[1]
        # Where DAMON runs, a page whose mark it took may be alone in its table, which is not put out then.
        assert in_common(truth)[1] == pytest.approx(excess, abs=16 * PAGE)


def _small(one: TouchedFrames) -> tuple[np.ndarray, np.ndarray]:
    return one.pages, one.frames


def _frame(pid: int, page: int) -> int:
    with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as pagemap:
        return int.from_bytes(os.pread(pagemap.fileno(), 8, page * 8), "little") & ((1 << 55) - 1)


_HUGE = """
at = anonymous(4 * 512, advice=14, align=1 << 21); whole = view(at, 4 * 512); whole[:] = 1
answer = os.fork()
me = not answer
def work():
    while True:
        beats[int(me)] += np.uint64(1)
        whole[: 1024].sum()
        if me: whole[1024 : 1536] += 1
        time.sleep(0.002)
if me:
    work()
answer = ([answer], {"whole": (at, 4 * 512)})
"""


def test_huge_pages_are_shared_whole():
    with family(1, _HUGE) as (tree, areas):
        tree.readings()
        readings = tree.readings()
        at = areas["whole"][0] // HUGE
        if not np.isin([at, at + 1], readings[0].window.pages.huge).all():
            pytest.skip("no huge pages here")
        shared, _ = shared_pages(readings)
        assert [one.huge[(one.huge >= at) & (one.huge < at + 4)].tolist() for one in shared] == [[at, at + 1]] * 2


def test_one_process_alone_is_asked_for_no_frames():
    with family(0) as (tree, _):
        (reading,) = tree.readings()
        assert reading.window.frames is None
        shared, excess = shared_pages([reading])
        assert (shared[0].shared_sizes(vmas_of(tree.pids[0])), excess) == ((), 0)
        assert len(tree.reader._tracker._walker._memory.tables) == walk._FEW_TABLES


def test_tables_without_room_leave_one_window_unknown(monkeypatch):
    """Loading the program again would take longer than a pause may."""
    monkeypatch.setattr(walk, "MANY_TABLES", walk._FEW_TABLES)
    with family() as (tree, areas):
        first = tree.window()
        assert shared_pages(first) == ([None] * 4, None)
        windows = [one.window for one in first if isinstance(one, Reading)]
        assert None in [window.frames for window in windows]
        assert all(window.pages is not None and window.pages.page_count > 1000 for window in windows)
        tree.readings()
        shared, excess = shared_pages(tree.readings())
        assert excess >= 900 * PAGE
        assert [len(within(one, areas["common"]).pages) for one in shared] == [300] * 4
