"""A large process is read and cleared in parts, by several threads: what comes out is what one of them would find."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from functools import partial

import numpy as np
import pytest

from memtui.core.page_set import PageSet
from memtui.probes.pages import thread_pool
from memtui.probes.pages.pagetable import parallel_walk, rearm
from memtui.probes.pages.pagetable.parallel_walk import SplitWalker
from memtui.probes.pages.pagetable.tracker import PageTableTracker
from memtui.probes.pages.pagetable.walk import Walker
from memtui.probes.pages.thread_pool import ThreadPool
from memtui.probes.pages.tlb_flush import Handle
from memtui.probes.pause.pauser import Pauser
from tests.support.folders import names_in
from tests.support.pagetable_targets import Observer, Target, assert_touched, drawn, need_pagetable, within

pytestmark = pytest.mark.real_clock

HANDS = 3


@pytest.fixture
def eager(monkeypatch):
    """Threads for processes of any size, on machines with any number of CPUs."""
    monkeypatch.setattr(parallel_walk, "_PART_TABLES", 4)
    monkeypatch.setattr(rearm, "_PART_COST", 50)
    monkeypatch.setattr(thread_pool, "MAX_THREADS", HANDS)
    monkeypatch.setattr(thread_pool.os, "sched_getaffinity", lambda _pid: set(range(HANDS)))


@pytest.fixture
def target():
    need_pagetable()
    with Target() as target:
        yield target


def test_parts_have_about_as_many_page_tables_each(eager):
    split = SplitWalker(Walker.__new__(Walker))

    def cuts(blocks: int) -> list[int]:
        resident = PageSet.from_blocks(range(100, 100 + blocks), np.ones((blocks, 8)))
        return [address >> 21 for address in split.cuts(resident)]

    assert [cuts(blocks) for blocks in (0, 7, 8, 11, 12, 90)] == [[], [], [104], [105], [104, 108], [130, 160]]


def test_all_calls_have_ended_when_one_of_them_failed():
    pool, ended = ThreadPool(2), threading.Event()

    def slow() -> None:
        time.sleep(0.1)
        ended.set()

    def fails() -> None:
        raise ProcessLookupError("gone")

    for calls in ([fails, slow], [slow, fails]):
        ended.clear()
        with pytest.raises(ProcessLookupError, match="gone"):
            pool.together(calls)
        assert ended.is_set()
    assert pool.together([lambda: 1, lambda: 2, lambda: 3]) == [1, 2, 3]
    assert pool.together([]) == []
    pool.close()


def test_parts_together_are_the_whole(eager, target):
    target.do(
        "a = anonymous(20000); v = view(a, 20000); v[::3] = 1; b = anonymous(4 * 512, 14, align=1 << 21); "
        "view(b, 2048)[:] = 1; f = open('/usr/bin/env', 'rb'); m = mmap.mmap(f.fileno(), 0, prot=1); m[:]"
    )
    first = Walker()
    split = SplitWalker(first)
    try:
        whole = first.walk(target.pid, want_resident=True)
        cuts = split.cuts(whole.resident)
        assert len(cuts) == HANDS - 1
        inside = [(whole.anonymous[0] < cut) & (whole.anonymous[1] > cut) for cut in cuts]
        assert any(one.any() for one in inside), "a mapping lies in two parts"
        split.prepare(HANDS, pages=0)
        parts, noted = split.walk(target.pid, cuts, want_resident=True, want_tables=False)
        assert not noted.touch_count, "nothing was asked"
        for name in ("blocks", "bits", "huge", "giant"):
            assert np.array_equal(getattr(parts.resident, name), getattr(whole.resident, name)), name
        assert not parts.pages.difference(whole.pages).touch_count
        assert whole.pages.difference(parts.pages).page_count <= 1000, "DAMON, where it runs, takes some marks"
        for side in (0, 1):
            assert np.array_equal(parts.anonymous[side], whole.anonymous[side])
        assert (parts.address_space, parts.vmas) == (whole.address_space, whole.vmas)
        assert np.array_equal(parts.mappings, whole.mappings)
        first.start_round(2)
        tables = split.walk(target.pid, cuts, want_resident=False, want_tables=True)[0].tables
        assert tables is not None, "the page frames of several processes are told all the same"
    finally:
        split.close()


def test_a_call_beside_is_done_by_another_thread_and_its_error_is_kept():
    pool = ThreadPool(2)

    def fails() -> None:
        raise ProcessLookupError("gone")

    future = pool.submit(threading.get_ident)
    assert future.result() == future.result() != threading.get_ident()
    future = pool.submit(fails)
    future.wait()
    with pytest.raises(ProcessLookupError, match="gone"):
        future.result()
    pool.avoid_current_cpu()
    assert pool.together([threading.get_ident, threading.get_ident])[0] == threading.get_ident()
    pool.close()
    assert not any(thread.name == "memtui-hand" for thread in threading.enumerate())


def test_hands_are_woken_on_other_cpus_than_this_one():
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one CPU here")
    here = min(allowed)
    pool = ThreadPool(2)
    try:
        os.sched_setaffinity(0, {here})  # of this thread only
        native = pool.submit(threading.get_native_id).result()
        pool.avoid_current_cpu()
        assert os.sched_getaffinity(native) == {here}, "nowhere else is allowed"
        os.sched_setaffinity(0, allowed)
        pool.avoid_current_cpu()
        assert len(os.sched_getaffinity(native)) == len(allowed) - 1
    finally:
        os.sched_setaffinity(0, allowed)
        pool.close()


def test_what_is_asked_beside_the_walk_is_what_is_asked_after_it(eager, target):
    """Pages whose mark is set are no answer: whoever asks has them already."""
    target.do("a = anonymous(4000, align=1 << 21); v = view(a, 4000); v[:] = 1")
    first = Walker()
    split = SplitWalker(first)
    try:
        split.prepare(2, pages=0)
        resident = first.walk(target.pid, want_resident=True).resident
        walk, noted = split.walk(target.pid, (), want_resident=False, want_tables=False, query=resident)
        assert walk.pages.page_count >= 3900, "DAMON, where it runs, takes some marks"
        assert noted.page_count == noted.difference(walk.pages).page_count
        after = first.noted(target.pid, resident.difference(walk.pages))
        assert after.difference(noted).page_count <= 50, "it goes on taking them"
        assert not noted.difference(after).page_count
    finally:
        split.close()


@pytest.mark.parametrize("way", ["walk", "walk and clear"])
def test_a_mark_that_is_taken_between_the_question_and_the_walk_is_not_lost(eager, target, monkeypatch, way):
    """Whoever is asked beside the walk saw the mark and no note, and then another observer took it before the walk."""
    pages = 4000
    address = target.do(f"a = anonymous({pages}, align=1 << 21); v = view(a, {pages}); v[:] = 1; answer = a")
    first, asked, real, noted = Walker(), threading.Event(), Walker.walk, Walker.noted_with_tables
    split, handle = SplitWalker(first), Handle.open(target.pid)

    def asks(walker, *words, **options):
        answer = noted(walker, *words, **options)
        asked.set()
        return answer

    def walks(walker, *words, **options):
        assert asked.wait(20)
        handle.clear()
        return real(walker, *words, **options)

    try:
        split.prepare(2, pages=0)
        resident = first.walk(target.pid, want_resident=True).resident
        monkeypatch.setattr(Walker, "noted_with_tables", asks)
        monkeypatch.setattr(Walker, "walk", walks)
        if way == "walk":
            walk, found = split.walk(target.pid, (), want_resident=False, want_tables=False, query=resident)
        else:
            clear = partial(split.pool.submit, handle.clear_mapped_files)
            with Pauser().paused(target.pid):
                query = (resident, PageSet.empty())
                walk, found, cleared = split.walk_and_clear(target.pid, clear, want_resident=False, query=query)
                cleared.wait()
        assert len(within(walk.pages, address, pages)) <= 50, "somebody took the marks"
        assert len(within(found, address, pages)) >= pages - 50
        assert not found.page_count - found.difference(walk.pages).page_count
    finally:
        handle.close()
        split.close()


# Beside one another: a file, and private memory in the same block of 2 MiB and far from it.
_BESIDE = (
    "a = anonymous(1024, align=1 << 21); v = view(a, 1024); f = open('/usr/bin/env', 'rb'); "
    "libc.mmap(ctypes.c_void_p(a + 100 * 4096), 8 * 4096, 1, 0x12, f.fileno(), 0); b = anonymous(9000); "
    "w = view(b, 9000); c = view(a + 100 * 4096, 8); v[:100] = 1; c[::2].sum(); v[108::3] = 1; w[::5] = 1; answer = a"
)


def test_what_a_walk_leaves_out_is_found_without_the_lock(target):
    """Also where there is too little room at first, and in a block that a file shares with private memory."""
    shared_block = target.do(_BESIDE) >> 21
    for want_resident in (True, False):
        with closing(Walker(slots=8)) as walker, Pauser().paused(target.pid):
            before = walker.walk(target.pid, want_resident=want_resident)
            files = walker.walk(target.pid, want_resident=want_resident, leave_anonymous=True)
            rest = walker.walk_extents(target.pid, files.anonymous, want_resident=want_resident)
            again = walker.walk_extents(target.pid, files.anonymous, want_resident=want_resident)
            after = walker.walk(target.pid, want_resident=want_resident)
        assert (rest.errors, rest.changed, rest.mappings) == (0, 0, None)
        assert shared_block in files.pages.blocks, "a file lies in it"
        assert shared_block in rest.pages.blocks
        assert rest.pages.page_count >= 1800
        assert rest.pages.difference(again.pages).page_count <= 50, "DAMON, where it runs, takes some marks"
        assert_within(again.pages, rest.pages)
        assert_within(files.pages.union(rest.pages), before.pages)
        assert_within(after.pages, files.pages.union(rest.pages))
        assert after.pages.touch_count > 0.9 * before.pages.touch_count
        if want_resident:
            assert_within(before.resident, files.resident.union(rest.resident))
            assert_within(files.resident.union(rest.resident), before.resident)
        for side in (0, 1):
            assert np.array_equal(files.anonymous[side], before.anonymous[side])
        assert np.array_equal(files.mappings, before.mappings)


# Lines with a pid, an address and a count of blocks: makes huge pages of them, and answers with how many.
_COLLAPSER = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
for line in sys.stdin:
    pid, address, blocks = map(int, line.split())
    pidfd, made = os.pidfd_open(pid), 0
    for n in range(blocks):
        vector = struct.pack("QQ", address + (n << 21), 1 << 21)
        made += libc.syscall(440, pidfd, vector, ctypes.c_size_t(1), 25, 0) > 0
    os.close(pidfd)
    print(made, flush=True)
"""
_BLOCKS, _ROUNDS = 32, 24


def test_a_block_is_not_missed_while_a_huge_page_is_made_of_it(target):
    """In between there is neither a table nor a huge page: the walk without the lock says that something changed."""
    address = target.do(f"a = anonymous({_BLOCKS * 512}, align=1 << 21); w = view(a, {_BLOCKS * 512}); answer = a")
    extents = (np.array([address], np.uint64), np.array([address + (_BLOCKS << 21)], np.uint64))
    made = missed = walks = 0
    command = [sys.executable, "-c", _COLLAPSER]
    with (
        closing(Walker()) as walker,
        Pauser() as pauser,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as collapser,
    ):
        for _ in range(_ROUNDS):
            size = _BLOCKS << 21
            # Thrown away, without huge pages, written, with huge pages
            target.do(
                f"[libc.madvise(a, {size}, n) for n in (4, 15)]; w[:] = 1; libc.madvise(a, {size}, 14); answer = 0"
            )
            with pauser.paused(target.pid):
                print(target.pid, address, _BLOCKS, file=collapser.stdin, flush=True)
                while not select.select([collapser.stdout], [], [], 0)[0]:
                    walk = walker.walk_extents(target.pid, extents, want_resident=True)
                    there = walk.resident
                    inside = (there.blocks >= address >> 21) & (there.blocks < (address >> 21) + _BLOCKS)
                    found = int(inside.sum()) + len(there.huge)
                    missed += found < _BLOCKS and not walk.changed
                    walks += 1
                made += int(collapser.stdout.readline())
        collapser.stdin.close()
    if made < _BLOCKS:
        pytest.skip("this kernel makes no huge pages when it is asked to (Linux 6.1)")
    assert walks > _ROUNDS
    assert missed == 0, f"of {walks} walks, while {made} huge pages were made"


def assert_within(some: PageSet, pages: PageSet) -> None:
    assert some.difference(pages).touch_count == 0


def test_files_are_cleared_while_the_rest_is_read(target):
    """What is found is what a walk finds; what was asked is answered, of files before they are cleared."""
    target.do(_BESIDE)
    handle, split = Handle.open(target.pid), SplitWalker(Walker())
    began: list[str] = []

    def clear():
        began.append("clear")
        return split.pool.submit(handle.clear_mapped_files)

    for with_query in (False, True):
        target.do("c[::2].sum(); answer = 0")  # the marks of files that the last turn cleared
        with Pauser().paused(target.pid):
            whole = split.first.walk(target.pid, want_resident=True)
            resident = PageSet.from_blocks(whole.resident.blocks, whole.resident.bits)
            half = len(resident.blocks) // 2
            parts = tuple(
                PageSet(resident.blocks[part], resident.bits[part], resident.huge, resident.giant)
                for part in (slice(None, half), slice(half, None))
            )
            expected = split.first.noted(target.pid, resident)
            files = split.first.walk(target.pid, leave_anonymous=True)
            split.prepare(2, pages=0)
            walk, noted, clearing = split.walk_and_clear(
                target.pid, clear, want_resident=True, query=parts if with_query else None
            )
            clearing.result()
            after = split.first.walk(target.pid)
        assert_within(walk.pages, whole.pages)
        assert_within(after.pages, walk.pages)
        assert walk.pages.touch_count > 0.9 * whole.pages.touch_count, "DAMON, where it runs, takes some marks"
        assert files.pages.page_count < whole.pages.page_count
        assert files.pages.difference(walk.pages).touch_count < 0.2 * files.pages.touch_count
        assert_within(walk.resident, whole.resident)
        assert_within(whole.resident, walk.resident)
        assert expected.difference(noted).touch_count == 0 if with_query else noted.touch_count == 0
        assert after.pages.page_count < walk.pages.page_count, "marks of files are gone"
    assert began == ["clear", "clear"]
    split.close()
    handle.close()


def test_an_error_beside_the_clearing_waits_for_its_end(target):
    """Whoever lets the target go after it must not have somebody clear its marks then."""
    ended = threading.Event()
    split = SplitWalker(Walker())

    def slow() -> None:
        time.sleep(0.1)
        ended.set()

    def clear():
        os.kill(target.pid, signal.SIGKILL)
        target.wait_for_end()
        return split.pool.submit(slow)

    with pytest.raises(ProcessLookupError):
        split.walk_and_clear(target.pid, clear, want_resident=False)
    assert ended.is_set()
    split.close()


@pytest.mark.parametrize("kind", ["full", "working-set"])
@pytest.mark.parametrize(("pages", "touched"), [(20000, 17), (65536, 5000), (65536, 65536)])
def test_every_window_is_exact(eager, target, kind, pages, touched):
    address = target.touch_for_ever(pages, touched, seed=5, write=True)
    tracker = PageTableTracker("cold", rearm=kind)
    observer = Observer(tracker)
    observer.start(target.pid)
    try:
        for _ in range(8):
            target.let_run(0.005)
            tracker.start_round(1)
            window = observer.window(target.pid)
            assert window.rearm == kind
            assert_touched(target.pid, window.pages, address, pages, drawn(pages, touched, 5))
        assert len(threading.enumerate()) > 1
    finally:
        observer.close()
        tracker.close()


def test_what_was_opened_ahead_sees_what_is_touched_afterwards(eager, target):
    """And leaves no descriptor behind: when it ran, when it never did, when the process is forgotten."""

    def descriptors() -> int:
        return len(names_in("/proc/self/fd"))

    address = target.do("a = anonymous(4000, align=1 << 21); v = view(a, 4000); answer = a")
    assert isinstance(address, int)

    def touched() -> int:
        """Pages of the range: the marks of all others are taken by DAMON, where it runs, as some of these are."""
        pages = first.walk(target.pid).pages.pages()
        return int(np.count_nonzero((pages >= address >> 12) & (pages < (address >> 12) + 4000)))

    first = Walker()
    split = SplitWalker(first)
    try:
        split.open_ahead(target.pid, ())  # nothing is linked yet
        assert touched() == 0
        linked = descriptors()
        for _ in range(3):
            split.open_ahead(target.pid, ())
            split.open_ahead(target.pid, ())
            assert descriptors() == linked + 1, "no question was asked yet"
        target.do("v[:] = 1")
        assert touched() >= 3000
        split.open_ahead(target.pid, ())
        assert descriptors() == linked + 1, "the one that ran is closed"
        split.forget(target.pid)
        assert descriptors() == linked - 1
    finally:
        split.close()


def test_a_process_that_ended_after_it_was_opened_is_told(target):
    with closing(Walker()) as walker:
        walker.walk(target.pid)
        walker.open_ahead(target.pid)
        target.close()
        with pytest.raises(ProcessLookupError):
            walker.walk(target.pid)
