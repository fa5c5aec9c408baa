"""Flushing the TLB: where it is safe, that it works, and what is done where it does not."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.page_set import PageSet
from memtui.core.page_sizes import BLOCK_BYTES
from memtui.core.samples import Capability, Status
from memtui.probes.pages import tlb_flush
from memtui.probes.pages.pagetable.proof import flush_capabilities
from memtui.probes.pages.pagetable.tracker import PageTableTracker
from memtui.probes.pages.pagetable.walk import Walker
from memtui.probes.pages.pagetable.walk_result import Walk
from memtui.probes.pages.tlb_flush import UNFLUSHED, Flusher, Handle, Span, soft_dirty_is_tracked, spans
from memtui.probes.pages.tracker import TrackerError
from tests.support.pagetable_targets import Observer, Target, assert_touched, need_pagetable

pytestmark = pytest.mark.real_clock

BASE = 0x7F00_0000_0000
FIRST = BASE >> 12
WORKS = (Capability("cold", True), Capability("soft-dirty", True))


def found(pages, *anonymous) -> list[Span]:
    return list(spans(Handle(0, -1, -1), PageSet.from_pages(np.asarray(pages)), extents(*anonymous)))


def memory(start_page, pages) -> tuple[int, int]:
    return BASE + start_page * 4096, BASE + (start_page + pages) * 4096


def extents(*anonymous):
    starts, ends = zip(*anonymous, strict=True) if anonymous else ((), ())
    return np.array(starts, np.uint64), np.array(ends, np.uint64)


def walk_of(pages: PageSet) -> Walk:
    return Walk(pages, None, (0, 0), vmas=1, mappings=None, changed=0, errors=0, anonymous=extents(), hugetlb=extents())


def test_a_whole_block_is_preferred():
    assert found(range(FIRST + 512, FIRST + 1024), memory(0, 2048))[0] == Span(
        BASE + BLOCK_BYTES, BASE + 2 * BLOCK_BYTES
    )


def test_a_block_is_clipped_to_its_mapping():
    assert found(range(FIRST + 10, FIRST + 100), memory(5, 200))[0] == Span(BASE + 5 * 4096, BASE + 205 * 4096)


def test_a_span_over_several_blocks_is_widened_to_whole_ones():
    """So that no large folio at its ends is cut."""
    assert found([FIRST + 3, FIRST + 1030], memory(0, 4096))[0] == Span(BASE, BASE + 3 * BLOCK_BYTES)


@pytest.mark.parametrize(
    ("pages", "anonymous"),
    [
        (range(FIRST, FIRST + 63), [memory(0, 512)]),  # too short
        ([FIRST, FIRST + 100], [memory(0, 50), memory(50, 400)]),  # in two mappings
        ([FIRST, FIRST + 30_000], [memory(0, 40_000)]),  # too long
        (range(FIRST, FIRST + 512), [memory(512, 512)]),  # somewhere else: files, shared memory
        (range(FIRST, FIRST + 512), []),
        ([], [memory(0, 512)]),
    ],
)
def test_where_no_span_is_safe(pages, anonymous):
    assert found(list(pages), *anonymous) == []


def test_candidates_are_few():
    assert len(found(range(FIRST, FIRST + 100_000), memory(0, 100_000))) <= 8


def test_the_block_that_served_last_comes_first():
    handle = Handle(0, -1, -1, good_block=(BASE >> 21) + 3)
    accessed = PageSet.from_pages(np.arange(FIRST, FIRST + 512 * 8))
    assert next(iter(spans(handle, accessed, extents(memory(0, 512 * 8))))).start == BASE + 3 * BLOCK_BYTES


def test_an_unknown_flush_is_refused():
    with pytest.raises(ValueError, match="one of auto"):
        Flusher(Walker.__new__(Walker), "hot")


def test_auto_takes_the_first_that_works():
    refused = Capability("cold", False, "too old")
    walker = Walker.__new__(Walker)
    assert Flusher(walker, "auto", WORKS).choice == "cold"
    flusher = Flusher(walker, "auto", (refused, WORKS[1]))
    assert (flusher.choice, flusher.rejected) == ("soft-dirty", (refused,))
    none = Flusher(walker, "auto", (refused, Capability("soft-dirty", False, "it failed")))
    assert none.choice == "off"
    assert len(none.rejected) == 2


@given(st.integers(0, 2000), st.integers(1, 2000))
def test_every_page_of_a_span_and_none_beside_it(first, count):
    """A library in the same 2 MiB may lie in large folios, which are no reason to refuse the span."""
    pages = tlb_flush._every_page(Span(first << 12, first + count << 12))
    assert pages.pages().tolist() == list(range(first, first + count))


def test_both_flushes_prove_themselves():
    need_pagetable()
    children = set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
    capabilities = flush_capabilities()
    assert [c.name for c in capabilities] == ["cold", "soft-dirty"]
    assert all(c.ok for c in capabilities), capabilities
    assert set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()) <= children


def test_a_flush_that_is_refused_does_not_prove_itself(monkeypatch):
    need_pagetable()
    monkeypatch.setattr(tlb_flush, "madvise_cold", lambda _pidfd, _span: False)
    cold, soft_dirty = flush_capabilities()
    assert not cold.ok
    assert "refused" in cold.reason
    assert soft_dirty.ok


def test_a_proof_that_sees_too_little_fails(monkeypatch):
    """Here nothing is flushed, and half of the marks stay unset as if translations were stale."""
    need_pagetable()
    monkeypatch.setattr(Flusher, "flush", lambda self, *_: self.choice)
    monkeypatch.setattr(tlb_flush, "_pages_within", lambda *_: range(128))
    assert all("seen as 128" in capability.reason for capability in flush_capabilities())


def test_arm64_has_one_flush(monkeypatch):
    """MADV_COLD does not flush the whole address space there."""
    need_pagetable()
    monkeypatch.setattr(tlb_flush, "ARM64", True)
    cold, soft_dirty = flush_capabilities()
    assert (cold.ok, cold.reason) == (False, tlb_flush.NOT_ON_ARM64)
    assert soft_dirty.ok
    tracker = PageTableTracker()
    assert (tracker.flush, tracker.rearm) == ("soft-dirty", "full")
    tracker.close()
    with pytest.raises(TrackerError, match=r"flush cold does not work here: .*; auto, soft-dirty and off would"):
        PageTableTracker("cold")
    monkeypatch.setattr("memtui.probes.pages.pagetable.rearm.ARM64", True)
    with pytest.raises(TrackerError, match=r"rearm working-set does not work here: .*; auto and full would"):
        PageTableTracker(rearm="working-set")


@pytest.fixture
def target():
    need_pagetable()
    with Target() as target:
        yield target


@pytest.mark.parametrize("mode", ["cold", "soft-dirty"])
def test_either_flush_alone_is_exact(target, mode):
    address = target.touch_for_ever(256, 256, seed=1)
    with PageTableTracker(mode) as tracker:
        observer = Observer(tracker)
        observer.start(target.pid)
        for _ in range(12):
            target.let_run(0.005)
            window = observer.window(target.pid)
            assert window.flush == mode
            assert_touched(target.pid, window.pages, address, 256, range(256))
        observer.close()


def test_a_cold_flush_costs_the_target_no_fault(target):
    """The other flush may: where soft-dirty pages are tracked, one for each page written in a window."""
    target.touch_for_ever(256, 256, seed=1)
    with PageTableTracker("cold") as tracker:
        observer = Observer(tracker)
        observer.start(target.pid)
        before = _minor_faults(target.pid)
        for _ in range(5):
            target.let_run(0.005)
            assert observer.window(target.pid).flush == "cold"
        assert _minor_faults(target.pid) - before < 256
        observer.close()


def _minor_faults(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])


def test_without_a_flush_the_window_says_so(target):
    target.touch_for_ever(256, 256, seed=1)
    with PageTableTracker("off") as tracker:
        observer = Observer(tracker)
        observer.start(target.pid)
        assert observer.window(target.pid).flush == "off"
        observer.close()


@pytest.mark.parametrize("mode", ["off", "auto"])
def test_memory_that_was_cleared_without_a_flush_may_have_been_touched(target, mode):
    target.do("a = anonymous(1024); v = view(a, 1024); v[:] = 1")
    with PageTableTracker(mode, rearm="full") as tracker:
        observer = Observer(tracker)
        observer.start(target.pid)
        target.do("v[:] = 2")
        first = observer.window(target.pid)  # sees the most of it: the TLB holds some of what it cleared
        windows = [observer.window(target.pid) for _ in range(2)]
        observer.close()
    if mode == "auto":
        assert {(w.status, w.reason) for w in (first, *windows)} == {(Status.OK, "")}
        return
    for window in windows:
        assert window.status == Status.APPROXIMATE
        assert window.reason.endswith(f"more may have been touched: {UNFLUSHED}")
        assert window.reason.startswith("up to ")
    assert windows[-1].pages.size_bytes < 1 << 20


def test_a_new_program_has_no_stale_translations(target):
    target.do("a = anonymous(1024); v = view(a, 1024); v[:] = 1")
    with PageTableTracker("off") as tracker:
        observer = Observer(tracker)
        observer.start(target.pid)
        observer.window(target.pid)
        target.do(f"os.execv(sys.executable, [sys.executable, '-c', {'print(None, flush=True); input()'!r}])")
        window = observer.window(target.pid)
        observer.close()
    assert (window.generation, window.status) == (1, Status.OK), window.reason


def test_sparse_pages_are_flushed_by_a_longer_span(target):
    """Sixteen pages, of which no block holds two that lie far enough apart."""
    address = target.do("a = anonymous(16 * 512, align=1 << 21); v = view(a, 8192); v[:] = 1; answer = a")
    target.send("loop(v, np.arange(0, 8192, 512), True)")
    target.let_run(0.01)
    with PageTableTracker("cold") as tracker:
        observer = Observer(tracker)
        observer.start(target.pid)
        for _ in range(12):
            target.let_run(0.005)
            seen = observer.window(target.pid)
            assert seen.flush == "cold"
            assert_touched(target.pid, seen.pages, address, 8192, range(0, 8192, 512))
        observer.close()


def test_a_refused_span_is_followed_by_the_other_flush(target, monkeypatch):
    target.touch_for_ever(512, 512, seed=1)
    asked = []
    monkeypatch.setattr(tlb_flush, "madvise_cold", lambda _pidfd, span: bool(asked.append(span)))
    walker = Walker()
    handle = Handle.open(target.pid)
    try:
        walk = walker.walk(target.pid)
        assert Flusher(walker, "auto", WORKS).flush(handle, walk) == "soft-dirty"
        assert 1 <= len(asked) <= 8
        assert Flusher(walker, "cold").flush(handle, walk) == "off"
    finally:
        handle.close()
        walker.close()


def test_a_span_that_cleared_nothing_is_not_believed(target, monkeypatch):
    target.touch_for_ever(512, 512, seed=1)
    monkeypatch.setattr(tlb_flush, "madvise_cold", lambda _pidfd, _span: True)
    walker = Walker()
    handle = Handle.open(target.pid)
    try:
        with Observer(None).pauser.paused(target.pid):
            assert Flusher(walker, "cold").flush(handle, walker.walk(target.pid)) == "off"
    finally:
        handle.close()
        walker.close()


def test_a_tiny_working_set_is_not_worth_write_protecting_everything(target, monkeypatch):
    monkeypatch.setattr(tlb_flush, "soft_dirty_is_tracked", lambda: True)
    walker = Walker()
    handle = Handle.open(target.pid)
    try:
        few = walk_of(PageSet.from_pages(np.arange(FIRST, FIRST + 5)))
        assert Flusher(walker, "auto", WORKS).flush(handle, few) == "off"
        many = walk_of(PageSet.from_pages(np.arange(FIRST, FIRST + 500)))
        assert Flusher(walker, "auto", WORKS).flush(handle, many) == "soft-dirty"
        monkeypatch.setattr(tlb_flush, "soft_dirty_is_tracked", lambda: False)
        assert Flusher(walker, "auto", WORKS).flush(handle, few) == "soft-dirty"
    finally:
        handle.close()
        walker.close()


def test_a_cold_flush_splits_no_huge_page(target):
    """Huge pages and small ones in one mapping: the flush takes the small ones only."""
    target.do(
        "a = anonymous(8 * 512, 14, align=1 << 21); v = view(a, 4096); v[:] = 1; "
        "libc.madvise(a + (1 << 21), 1 << 21, 4); libc.madvise(a, 8 << 21, 15); v[512:1024] = 1"
    )
    huge = _huge_kib(target.pid)
    if not huge:
        pytest.skip("this kernel gave no huge pages (transparent_hugepage is never, or memory is fragmented)")
    with PageTableTracker("cold") as tracker:
        observer = Observer(tracker)
        observer.start(target.pid)
        target.do("v[:] = 2")
        assert observer.window(target.pid).flush == "cold"
        observer.close()
    assert _huge_kib(target.pid) == huge


def _huge_kib(pid: int) -> int:
    return sum(int(n) for n in re.findall(r"^AnonHugePages:\s+(\d+) kB", Path(f"/proc/{pid}/smaps").read_text(), re.M))


def test_whether_soft_dirty_is_tracked_agrees_with_the_kernel_configuration():
    import gzip

    need_pagetable()
    config = Path("/proc/config.gz")
    if not config.exists():
        pytest.skip("this kernel does not show its configuration")
    assert soft_dirty_is_tracked() == ("\nCONFIG_MEM_SOFT_DIRTY=y" in gzip.decompress(config.read_bytes()).decode())
