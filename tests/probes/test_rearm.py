"""Clearing accessed bits in proportion to the working set: what it covers, that it is exact, what it leaves alone."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.page_set import PageSet
from memtui.core.samples import Capability
from memtui.probes.pages import thread_pool
from memtui.probes.pages.pagetable import rearm
from memtui.probes.pages.pagetable.parallel_walk import SplitWalker, _either
from memtui.probes.pages.pagetable.rearm import (
    FULL,
    WORKING_SET,
    Rearmer,
    cut,
    flushed_in,
    flushing_ranges,
    intersect,
    lanes_of,
    runs_of,
)
from memtui.probes.pages.pagetable.tracker import PageTableTracker
from memtui.probes.pages.pagetable.walk import Walker
from memtui.probes.pages.pagetable.walk_result import disjoint
from memtui.probes.pages.tlb_flush import Flusher, Handle, madvise_cold_ranges
from tests.support.pagetable_targets import Observer, Target, assert_touched, drawn, need_pagetable, within

pytestmark = pytest.mark.real_clock

LANE = 32768
BASE = 0x7F00_0000_0000


def extents(pairs) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.array(list(side), np.uint64) for side in (zip(*pairs, strict=True) if pairs else ((), ())))


@given(st.sets(st.integers(0, 4000), max_size=60), st.sets(st.integers(8, 12), max_size=3))
def test_runs_go_from_touched_page_to_touched_page_over_small_gaps_only(pages, huge):
    small = PageSet.from_pages(sorted(p for p in pages if p // 512 not in huge))
    touched = PageSet(small.blocks, small.bits, np.array(sorted(huge), np.uint64), small.giant)
    wanted = {*small.pages().tolist(), *(h * 512 + i for h in huge for i in range(512))}
    starts, ends = (side // np.uint64(4096) for side in runs_of(lanes_of(touched)))
    covered = [page for a, b in zip(starts.tolist(), ends.tolist(), strict=True) for page in range(a, b)]
    assert covered == sorted(set(covered))
    assert wanted <= set(covered)
    assert {*starts.tolist(), *(ends - np.uint64(1)).tolist()} <= wanted
    lanes = {page // 8 for page in wanted}
    assert {page // 8 for page in covered} == lanes, (
        "no lane without a touched page: nobody looked for large folios there"
    )


@st.composite
def rising(draw, most: int = 40):
    edges = sorted(draw(st.sets(st.integers(0, most), max_size=12)))
    return [(a * 4096, b * 4096) for a, b in zip(edges[::2], edges[1::2], strict=False)]


@given(rising(), rising())
def test_parts_of_runs_lie_in_one_mapping_each(runs, mappings):
    starts, ends = intersect(extents(runs), extents(mappings))
    naive = [(max(a, c), min(b, d)) for a, b in runs for c, d in mappings if max(a, c) < min(b, d)]
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == naive


MAPPINGS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)).map(lambda m: (m[0], m[0] + m[1])), max_size=8)


@given(st.lists(MAPPINGS, min_size=1, max_size=3))
def test_mappings_that_changed_while_they_were_told_do_not_overlap(walks):
    """As of a process that runs: by each walk in some order of begins, and each in its own way."""
    told = [extents(sorted(walk)) for walk in walks]
    for starts, ends in (*(disjoint(*one) for one in told), _either([disjoint(*one) for one in told])):
        assert (starts < ends).all()
        assert (starts[1:] >= ends[:-1]).all()
        parts = intersect(extents([(0, 100)]), (starts, ends))
        assert (parts[0] < parts[1]).all()
    alone = sorted(set(walks[0]))
    if all(end <= start for (_, end), (start, _) in pairwise(alone)):
        assert list(zip(*map(np.ndarray.tolist, _either([extents(alone)] * 3)), strict=True)) == alone


def test_a_range_that_ends_before_it_begins_is_refused():
    with pytest.raises(ValueError, match="before it begins"):
        madvise_cold_ranges(-1, *extents([(0, 4096), (8192, 4096)]))


@given(rising(200), st.sampled_from([12, 13, 15]))
def test_cut_ranges_are_the_same_addresses_in_pieces(ranges, shift):
    pages = 1 << shift - 12
    starts, ends = cut(extents(ranges), shift)
    pieces = list(zip(starts.tolist(), ends.tolist(), strict=True))
    assert [address for a, b in pieces for address in range(a, b, 4096)] == [
        address for a, b in ranges for address in range(a, b, 4096)
    ]
    longest = max((b - a for a, b in ranges), default=0)
    assert all(0 < b - a <= pages * 4096 for a, b in pieces) or longest < 2 * pages * 4096
    borders = {address for pair in ranges for address in pair}
    assert all(address in borders or address % (pages * 4096) == 0 for pair in pieces for address in pair)


def test_only_long_ranges_without_huge_pages_flush():
    """Of 64 pages that were cut off of touched memory, the first and the last touched one are 34 apart at least."""
    pages = [(0, 64), (128, 191), (512, 1152), (1536, 1600)]
    ranges = extents([(a * 4096, b * 4096) for a, b in pages])
    none = np.empty(0, np.uint64)
    assert (flushing_ranges(ranges, none)[0] // np.uint64(4096)).tolist() == [0, 512, 1536]
    assert (flushing_ranges(ranges, np.array([1], np.uint64))[0] // np.uint64(4096)).tolist() == [0, 1536]


@pytest.mark.parametrize(
    ("left", "flushed"),
    [
        ([], True),
        ([100], True),
        ([0, 511], True),
        (range(34, 512), True),
        (range(478), True),
        (range(479), False),
        (range(33, 512), False),
        (range(512), False),
        ([p for p in range(512) if p not in (7, 40)], True),
        ([p for p in range(512) if p not in (7, 39)], False),
    ],
)
def test_marks_that_stayed_within_a_range_do_not_keep_it_from_flushing(left, flushed):
    """The kernel flushes from the first to the last mark it cleared, and everything from 34 pages on."""
    ranges = extents([(0, 512 * 4096)])
    assert flushed_in(ranges, PageSet.from_pages(range(512)), PageSet.from_pages(list(left))) == flushed


def test_an_unknown_rearm_is_refused():
    walker = Walker.__new__(Walker)
    with pytest.raises(ValueError, match="one of auto"):
        Rearmer(SplitWalker(walker), Flusher(walker, "cold"), "half")


def test_auto_leaves_the_order_of_reclaim_alone_when_another_flush_was_chosen():
    walker = Walker.__new__(Walker)
    works = (Capability("soft-dirty", True),)
    readers = SplitWalker(walker)
    assert Rearmer(readers, Flusher(walker, "auto", works)).choice == FULL
    assert Rearmer(readers, Flusher(walker, "auto", works), WORKING_SET).choice == WORKING_SET
    assert Rearmer(readers, Flusher(walker, "cold")).choice == WORKING_SET


@pytest.fixture
def target():
    need_pagetable()
    with Target() as target:
        yield target


def _track(target: Target, kind: str = WORKING_SET, **options) -> tuple[PageTableTracker, Observer]:
    tracker = PageTableTracker("cold", rearm=kind, **options)
    observer = Observer(tracker)
    observer.start(target.pid)
    return tracker, observer


@pytest.mark.parametrize("write", [True, False])
@pytest.mark.parametrize(("pages", "touched"), [(256, 256), (4096, 17), (65536, 5000), (20000, 20000)])
def test_every_window_is_exact(target, pages, touched, write):
    address = target.touch_for_ever(pages, touched, seed=3, write=write)
    tracker, observer = _track(target)
    for _ in range(8):
        target.let_run(0.005)
        window = observer.window(target.pid)
        assert (window.rearm, window.flush) == (WORKING_SET, "cold")
        assert_touched(target.pid, window.pages, address, pages, drawn(pages, touched, 3))
        assert window.unknown_bytes <= max(0.01 * window.pages.size_bytes, 8 * 4096)
    observer.close()
    tracker.close()


def test_much_memory_is_cleared_before_the_first_pause(target, monkeypatch):
    """A loop over so few pages that all stay translated would be missed, were there no mark left to flush with."""
    target.do("big = anonymous(100000); w = view(big, 100000); w[:] = 1")
    address = target.touch_for_ever(256, 256, seed=3)
    monkeypatch.setattr(rearm, "CLEAR_MOST_PAGES", 65536)
    cleared, clear = [], Handle.clear
    monkeypatch.setattr(Handle, "clear", lambda handle: (cleared.append(handle.pid), clear(handle)))
    tracker = PageTableTracker("cold", rearm=WORKING_SET)
    tracker.notice()
    tracker.prepare(target.pid)
    marked = Walker()
    left = len(marked.walk(target.pid).pages.pages())
    observer = Observer(tracker)
    observer.paused(target.pid, lambda: tracker.start(target.pid, ()))
    assert 34 <= left < 20000, "most is cleared, and what is left is enough for a flush"
    assert not cleared
    for _ in range(3):
        target.let_run(0.005)
        window = observer.window(target.pid)
        assert_touched(target.pid, window.pages, address, 256, range(256))
        assert window.pages.page_count < 5000, "the rest was touched before"
    marked.close()
    observer.close()
    tracker.close()


def test_what_was_not_touched_again_is_not_seen_again(target):
    address = target.do("a = anonymous(8192); v = view(a, 8192); v[:] = 1; answer = a")
    tracker, observer = _track(target)
    target.do("v[100:3000] = 2")
    assert_touched(target.pid, observer.window(target.pid).pages, address, 8192, range(100, 3000))
    for first in (0, 2990, 8000):
        target.do(f"v[{first}:{first} + 50] = 2")
        window = observer.window(target.pid)
        assert window.rearm == WORKING_SET
        assert_touched(target.pid, window.pages, address, 8192, range(first, first + 50))
    observer.close()
    tracker.close()


def test_pages_that_are_in_no_list_yet_are_cleared_too(target):
    """The last new pages wait in a batch of the CPU that they were faulted in on, where MADV_COLD does not see them."""
    here, *others = sorted(os.sched_getaffinity(0))
    if not others:
        pytest.skip("needs two CPUs")
    os.sched_setaffinity(target.pid, {others[0]})
    try:
        tracker, observer = _track(target)
        os.sched_setaffinity(0, {here})
        address = target.do("a = anonymous(300); v = view(a, 300); answer = a")
        observer.window(target.pid)
        ways = set()
        for first in range(0, 300, 100):
            target.do(f"v[{first}:{first} + 100] = 1")
            window = observer.window(target.pid)
            ways.add(window.rearm)
            assert_touched(target.pid, window.pages, address, 300, range(first, first + 100))
        window = observer.window(target.pid)
        assert within(window.pages, address, 300) == []
        assert window.unknown_bytes <= 8 * 4096, "the kernel's own page (vdso) is in no list ever"
        assert WORKING_SET in ways
    finally:
        os.sched_setaffinity(0, {here, *others})
    observer.close()
    tracker.close()


def test_files_and_shared_memory_are_cleared_too(target, tmp_path):
    path = tmp_path / "data"
    path.write_bytes(bytes(64 * 4096))
    address = target.do(
        f"f = open({str(path)!r}, 'r+b'); "
        "a = libc.mmap(None, 64 * 4096, 3, 1, f.fileno(), 0); v = view(a, 64); v[:] = 1; answer = a"
    )
    tracker, observer = _track(target)
    target.do("v[::2].sum()")
    first = observer.window(target.pid)
    target.do("v[1::4].sum()")
    second = observer.window(target.pid)
    assert WORKING_SET in (first.rearm, second.rearm)
    assert_touched(target.pid, first.pages, address, 64, range(0, 64, 2))
    assert_touched(target.pid, second.pages, address, 64, range(1, 64, 4))
    observer.close()
    tracker.close()


def test_marks_that_cannot_be_cleared_singly_lead_to_a_full_clear(target):
    """Pages shared with a forked child: MADV_COLD leaves them alone, and the next window must not repeat them."""
    address = target.do(
        "a = anonymous(4096); v = view(a, 4096); v[:] = 1\nchild = os.fork()\n"
        "if not child:\n time.sleep(600)\nanswer = a"
    )
    tracker, observer = _track(target)
    try:
        target.do("v[:2000].sum()")
        window = observer.window(target.pid)
        assert window.rearm == FULL
        assert_touched(target.pid, window.pages, address, 4096, range(2000))
        target.do("v[3000:3100].sum()")
        assert_touched(target.pid, observer.window(target.pid).pages, address, 4096, range(3000, 3100))
    finally:
        target.do("os.kill(child, 9); os.waitpid(child, 0)")
        observer.close()
        tracker.close()


# 16384 pages that are the target's own, and others that it shares with a forked child: MADV_COLD leaves those marked.
# One that it writes to becomes its own; what it reads of the interpreter's heap is among those that stay, too.
_SHARED_AND_OWN = (
    "b = anonymous(4096); s = view(b, 4096); s[:] = 1; a = anonymous(16384); v = view(a, 16384); child = os.fork()\n"
    "if not child:\n time.sleep(600)\nv[:] = 1; answer = a, b"
)
_OWN = 16384


@pytest.mark.parametrize(
    ("shared", "kind", "after_it"),
    [(60, WORKING_SET, WORKING_SET), (410, FULL, WORKING_SET), (2000, FULL, FULL)],
    ids=["0.4 %", "2.5 %", "12 %"],
)
def test_the_share_of_marks_that_stay_decides_how_they_are_cleared(target, shared, kind, after_it):
    """Up to 1 % of what was touched is unknown in the next window, more is cleared in full, for a while above 5 %."""
    _, address = target.do(_SHARED_AND_OWN)
    try:
        tracker, observer = _track(target)
        target.do("v[:] = 2")
        observer.window(target.pid)  # until then the first copies of what is written are made
        target.do(f"v[:] = 2; s[:{shared}].sum()")
        window = observer.window(target.pid)
        assert window.rearm == kind
        assert_touched(target.pid, window.pages, address, 4096, range(shared))
        assert _OWN * 0.95 <= window.pages.page_count <= _OWN + shared + 1000
        target.do("v[:] = 2")
        window = observer.window(target.pid)
        assert window.rearm == after_it
        left = len(within(window.pages, address, 4096))
        assert left == (shared if kind == WORKING_SET else 0)
        assert (window.unknown_bytes >= shared * 4096) == (kind == WORKING_SET)
        observer.close()
        tracker.close()
    finally:
        target.do("os.kill(child, 9); os.waitpid(child, 0)")


@pytest.mark.parametrize(("shared", "kind"), [(60, WORKING_SET), (2000, FULL)], ids=["0.4 %", "12 %"])
def test_marks_that_stay_are_those_of_a_running_process_too(target, shared, kind):
    """It touches pages again as soon as they are cleared. What it shares stays marked, whether it touches it or not."""
    own, address = target.do(_SHARED_AND_OWN)
    try:
        tracker, observer = _track(target)
        target.do("v[:] = 2")
        observer.window(target.pid)
        tracker.running.add(target.pid)
        target.do(f"v[:] = 2; s[:{shared}].sum()")
        window = observer.window(target.pid)
        assert window.rearm == kind
        assert_touched(target.pid, window.pages, address, 4096, range(shared))
        assert within(tracker._tracked[target.pid].uncertain.unknown, own, _OWN) == [], "those were cleared"
        target.do("v[:] = 2")
        window = observer.window(target.pid)
        assert len(within(window.pages, address, 4096)) == (shared if kind == WORKING_SET else 0)
        assert (window.unknown_bytes >= shared * 4096) == (kind == WORKING_SET)
        observer.close()
        tracker.close()
    finally:
        target.do("os.kill(child, 9); os.waitpid(child, 0)")


def test_a_running_process_that_marks_its_pages_again_is_not_cleared_in_full(target):
    address = target.touch_for_ever(65536, 5000, seed=3)
    tracker, observer = _track(target)
    tracker.running.add(target.pid)
    for _ in range(4):
        target.let_run(0.005)
        window = tracker.window(target.pid, (), want_resident=False)
        assert window.rearm == WORKING_SET
        assert_touched(target.pid, window.pages, address, 65536, drawn(65536, 5000, 3))
    assert not within(tracker._tracked[target.pid].uncertain.unknown, address, 65536)
    observer.close()
    tracker.close()


def test_a_process_whose_marks_stay_is_cleared_in_full_for_sixteen_windows(target):
    target.do(_SHARED_AND_OWN)
    try:
        tracker, observer = _track(target)
        target.do("v[:] = 2; s.sum()")
        ways = []
        for _ in range(20):
            ways.append(observer.window(target.pid).rearm)
            target.do("v[:] = 2")
        assert ways == [FULL] * 17 + [WORKING_SET] * 3
        observer.close()
        tracker.close()
    finally:
        target.do("os.kill(child, 9); os.waitpid(child, 0)")


def test_a_page_that_was_unknown_is_not_counted_so_when_it_is_gone(target):
    """Its mark stayed, and went with the page: a window that does not have it says nothing doubtful."""
    _, address = target.do(_SHARED_AND_OWN)
    try:
        tracker, observer = _track(target)
        target.do("v[:] = 2")
        observer.window(target.pid)
        target.do("v[:] = 2; s[:80].sum()")
        assert observer.window(target.pid).rearm == WORKING_SET
        target.do("libc.madvise(b, 40 * 4096, 4); v[:] = 2")  # MADV_DONTNEED
        window = observer.window(target.pid)
        seen = within(window.pages, address, 4096)
        assert len(seen) >= 38, "DAMON, where it runs, takes some marks"
        assert set(seen) <= set(range(40, 80))
        stayed = window.unknown_bytes // 4096
        assert len(seen) <= stayed
        whole = tracker._tracked[target.pid].uncertain.unknown
        target.do("libc.madvise(b + 40 * 4096, 40 * 4096, 4); v[:] = 2")
        window = observer.window(target.pid)
        assert within(window.pages, address, 4096) == []
        assert window.unknown_bytes // 4096 <= whole.page_count - 38
        observer.close()
        tracker.close()
    finally:
        target.do("os.kill(child, 9); os.waitpid(child, 0)")


def test_a_few_marks_that_stay_are_unknown(target, monkeypatch):
    address = target.do("a = anonymous(8192); v = view(a, 8192); v[:] = 1; answer = a")
    tracker, observer = _track(target)
    target.do("v[:4096] = 2")
    kept = (address + 5 * LANE) // LANE * LANE
    real = madvise_cold_ranges

    def but_one_page(pidfd, starts, ends):
        inside = (starts <= kept) & (ends > kept)
        assert inside.any()
        real(
            pidfd, *(np.concatenate((side, [np.uint64(at)])) for side, at in ((starts[~inside], 0), (ends[~inside], 0)))
        )
        for start, end in zip(starts[inside].tolist(), ends[inside].tolist(), strict=True):
            real(pidfd, np.array([start], np.uint64), np.array([kept], np.uint64))
            real(pidfd, np.array([kept + 4096], np.uint64), np.array([end], np.uint64))

    monkeypatch.setattr(rearm, "madvise_cold_ranges", but_one_page)
    assert observer.window(target.pid).rearm == WORKING_SET
    monkeypatch.undo()
    target.do("v[8000:8100] = 2")
    window = observer.window(target.pid)
    assert window.unknown_bytes >= 4096
    assert (kept - address) // 4096 in within(window.pages, address, 8192)
    assert observer.window(target.pid).unknown_bytes <= 8 * 4096
    observer.close()
    tracker.close()


def test_locked_memory_is_cleared_in_full(target):
    address = target.do(
        "a = anonymous(2048); v = view(a, 2048); v[:] = 1; libc.mlock(ctypes.c_void_p(a), 2048 * 4096); answer = a"
    )
    tracker, observer = _track(target)
    target.do("v[:1000] = 2")
    assert observer.window(target.pid).rearm == FULL
    target.do("v[1500:1600] = 2")
    assert_touched(target.pid, observer.window(target.pid).pages, address, 2048, range(1500, 1600))
    observer.close()
    tracker.close()


def test_no_huge_page_is_split(target):
    address = target.do(
        "a = anonymous(8 * 512, 14, align=1 << 21); v = view(a, 4096); v[:] = 1; "
        "libc.madvise(a + (1 << 21), 1 << 21, 4); libc.madvise(a, 8 << 21, 15); v[512:1024] = 1; answer = a"
    )
    huge = _huge_kib(target.pid)
    if not huge:
        pytest.skip("this kernel gave no huge pages (transparent_hugepage is never, or memory is fragmented)")
    tracker, observer = _track(target)
    ways = set()

    def watch() -> None:
        for _ in range(20):
            target.do("v[:600] = 2")
            window = observer.window(target.pid)
            ways.add(window.rearm)
            assert address >> 21 in window.pages.huge.tolist()
        target.do("v[600:700] = 2")
        assert address >> 21 not in observer.window(target.pid).pages.huge.tolist()

    _assert_splits_nothing(target.pid, watch)
    assert WORKING_SET in ways
    assert _huge_kib(target.pid) == huge
    observer.close()
    tracker.close()


def test_a_large_folio_that_is_mapped_in_part_stays_whole(target):
    """A huge page of which the program gave a part back: MADV_COLD over what is left of it would split it."""
    target.do(
        "a = anonymous(4 * 512, 14, align=1 << 21); v = view(a, 2048); v[:] = 1; "
        "libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]; libc.munmap(a + (3 << 20), 1 << 16)"
    )
    if not _huge_kib(target.pid):
        pytest.skip("this kernel gave no huge pages (transparent_hugepage is never, or memory is fragmented)")
    tracker, observer = _track(target)
    tracker.notice()

    def watch() -> None:
        for _ in range(20):
            target.do("v[:700] = 2")
            observer.window(target.pid)

    _assert_splits_nothing(target.pid, watch)
    observer.close()
    tracker.close()


def _assert_splits_nothing(pid: int, watch: Callable[[], None]) -> None:
    """The counter is the whole machine's: that others split nothing meanwhile may take some attempts.

    That of mappings (thp_split_pmd) rises all the time where others fork; the kernel says of one process how much of it
    is mapped in whole huge pages.
    """
    splits, huge = [], _huge_kib(pid)
    for _ in range(5):
        before = _splits()
        watch()
        assert _huge_kib(pid) == huge
        if _splits() == before:
            return
        splits.append((before, _splits()))
    pytest.fail(f"huge pages were split in each attempt: {splits}")


def _huge_kib(pid: int) -> int:
    return sum(int(n) for n in re.findall(r"^AnonHugePages:\s+(\d+) kB", Path(f"/proc/{pid}/smaps").read_text(), re.M))


def _splits() -> list[str]:
    return re.findall(r"^thp_split_page (\d+)", Path("/proc/vmstat").read_text(), re.M)


def test_auto_takes_the_cheaper_way(target, monkeypatch):
    monkeypatch.setattr(thread_pool, "MAX_THREADS", 1)  # several CPUs would clear even all of it faster than one
    target.do("a = anonymous(32768); v = view(a, 32768); v[:] = 1")
    tracker, observer = _track(target, "auto")
    target.do("v[:1000] = 2")
    assert observer.window(target.pid).rearm == WORKING_SET
    target.do("v[:] = 2")
    assert observer.window(target.pid).rearm == FULL
    observer.close()
    tracker.close()


def test_auto_keeps_the_full_clear_where_reclaim_is_near(target, monkeypatch):
    monkeypatch.setattr(rearm, "reclaim_is_near", lambda _pid: True)
    target.do("a = anonymous(32768); v = view(a, 32768); v[:] = 1")
    tracker, observer = _track(target, "auto")
    assert observer.window(target.pid).rearm == FULL, "from the first window on"
    tracker.notice()
    assert observer.window(target.pid).rearm == FULL
    observer.close()
    tracker.close()


def test_many_and_long_ranges_are_all_taken(target):
    """More than the kernel takes in one call, of 1024 ranges; and one that it refuses in their midst."""
    address = target.do(
        "a = anonymous(8192); v = view(a, 8192); v[:] = 1; "
        "libc.mlock(ctypes.c_void_p(a + 8192 * 2048), 4096); answer = a"
    )
    walker = Walker()
    handle = Handle.open(target.pid)
    try:
        starts = address + np.arange(0, 8192, 2, dtype=np.uint64) * np.uint64(4096)
        madvise_cold_ranges(handle.pidfd, starts, starts + np.uint64(4096))
        seen = within(walker.walk(target.pid).pages, address, 8192)
        kept = set(range(1, 8192, 2))
        assert len(kept - set(seen)) <= 80  # DAMON, where it runs, takes some marks
        assert len(set(seen) - kept) <= 40  # the locked one, and pages in no list yet
    finally:
        handle.close()
        walker.close()
