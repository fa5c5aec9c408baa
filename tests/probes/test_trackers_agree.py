"""One window of one process, read three ways in one pause: page tables, then ``Referenced``, then the idle bitmap."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from memtui.core.page_set import PageSet
from memtui.core.page_sizes import PAGE_SHIFT
from memtui.core.samples import Vma
from memtui.probes.competing_observers import other_observers
from memtui.probes.pages import page_frames
from memtui.probes.pages.idle import tracker as idle
from memtui.probes.pages.idle.tracker import IdleTracker
from memtui.probes.pages.page_frames import flags_of, has
from memtui.probes.pages.pagetable.walk import Walker
from memtui.probes.pages.referenced import _REFERENCED, sizes_by_vma
from tests.support.pagetable_targets import Observer, Target, need_pagetable, vmas_of, within

pytestmark = pytest.mark.real_clock

PAGES, HUGE, TURNS = 4096, 4, 50
KPF_ANON = 12  # include/uapi/linux/kernel-page-flags.h
KINDS = ("read", "write", "huge", "file", "fork")
SET_UP = f"""
a = anonymous({PAGES}); v = view(a, {PAGES}); v[:] = 1
h = anonymous({HUGE * 512}, 14, 0x22, 1 << 21); w = view(h, {HUGE * 512}); w[:] = 1
fd = os.open(PATH, os.O_RDWR | os.O_CREAT, 0o600); os.truncate(fd, {PAGES * 4096})
f = libc.mmap(None, {PAGES * 4096}, 3, 1, fd, 0); x = view(f, {PAGES}); x[:] = 1; os.fsync(fd)
r, s = os.pipe()
def fork():
    p = os.fork()
    if not p:
        os.close(s)
        os.read(r, 1)
        os._exit(0)
    return p
answer = a, h, f
"""
FOUND = idle.prove()
needs_idle = pytest.mark.skipif(not FOUND.ok, reason=f"no idle page tracking here: {FOUND.reason}")


@dataclass
class Patterns:
    """Fifty random patterns of touches of one process, ten of each kind; what was touched is known to the page."""

    target: Target
    path: object
    memory: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))

    def __post_init__(self) -> None:
        self.anonymous, self.huge, self.file = self.target.do(f"PATH = {str(self.path)!r}{SET_UP}")

    def touch(self, turn: int) -> tuple[list[int], list[int], list[int]]:
        """(pages, huge pages, pages of the file) that this turn touches."""
        kind = KINDS[turn % len(KINDS)]
        places = sorted(self.memory.choice(PAGES, int(self.memory.integers(1, 600)), replace=False).tolist())
        blocks = sorted(self.memory.choice(HUGE, int(self.memory.integers(1, HUGE)), replace=False).tolist())
        if kind == "huge":
            self.target.do(f"w[{[b * 512 + places[0] % 512 for b in blocks]}] += 1")
            return [], blocks, []
        if kind == "file":
            self.target.do(f"x[{places}] += 1" if turn % 2 else f"x[{places}].sum()")
            return [], [], places
        if kind == "fork":
            # Half of what the two share is read, half is written and so copied.
            read, written = places[::2], places[1::2]
            self.target.do(f"p = fork(); v[{read}].sum(); v[{written}] += 1")
            return places, [], []
        self.target.do(f"v[{places}] += 1" if kind == "write" else f"v[{places}].sum()")
        return places, [], []

    def after(self, turn: int) -> None:
        if KINDS[turn % len(KINDS)] == "fork":
            self.target.do("os.kill(p, 9); os.waitpid(p, 0)")

    def found(self, pages: PageSet) -> tuple[list[int], list[int], list[int]]:
        """What a set of pages says of the same memory."""
        first = self.huge >> 21
        return (
            within(pages, self.anonymous, PAGES),
            [int(b) - first for b in pages.huge if first <= b < first + HUGE],
            within(pages, self.file, PAGES),
        )


@pytest.fixture
def patterns(tmp_path):
    need_pagetable()
    with Target() as target:
        yield Patterns(target, tmp_path / "file")


@pytest.fixture
def walker():
    made = Walker()
    yield made
    made.close()


def anonymous_vmas(pid: int) -> list[Vma]:
    """Private memory of no file, program or library.

    Not the stack: on it lies the command line, and whoever reads that (``ps``) leaves a note that smaps counts.
    """
    return [v for v in vmas_of(pid) if v.perms.endswith("p") and v.name in ("", "[heap]")]


def size_within(pages: PageSet, vma: Vma) -> int:
    """Bytes of a set in one mapping."""
    small, huge = pages.pages(), pages.huge
    first, last = np.uint64(vma.start >> PAGE_SHIFT), np.uint64(vma.end >> PAGE_SHIFT)
    inside = int(((small >= first) & (small < last)).sum())
    return (inside << 12) + (int(((huge >= first >> np.uint64(9)) & (huge < last >> np.uint64(9))).sum()) << 21)


def accessed(walker: Walker, pid: int) -> PageSet:
    """What the page tables say; they stay as they are. Where DAMON takes marks away, all pages are asked for notes."""
    walker.reads_young_flags = bool(other_observers())
    walk = walker.walk(pid, want_resident=True)
    assert (walk.errors, walk.changed) == (0, 0)
    if not walker.reads_young_flags:
        return walk.pages
    return walk.pages.union(walker.noted(pid, walk.resident.difference(walk.pages)))


def referenced(pid: int) -> dict[int, int]:
    with Path(f"/proc/{pid}/smaps").open("rb") as smaps:
        return dict(sizes_by_vma(smaps.read(), _REFERENCED))


def clear(pid: int) -> None:
    with Path(f"/proc/{pid}/clear_refs").open("wb", buffering=0) as file:
        for order in (b"1", b"4"):
            file.write(order)


def test_referenced_is_the_page_exact_working_set_of_anonymous_memory(patterns, walker):
    pid, observer = patterns.target.pid, Observer(None)
    compared = 0
    try:
        observer.paused(pid, lambda: clear(pid))
        for turn in range(TURNS):
            truth = patterns.touch(turn)
            pages, sizes, vmas = observer.paused(
                pid, lambda: (accessed(walker, pid), referenced(pid), anonymous_vmas(pid), clear(pid))[:3]
            )
            found = patterns.found(pages)
            assert found[:2] == truth[:2], f"turn {turn}"
            # Large folios of a file have one note for all their pages, so what DAMON took there stays unseen.
            assert set(found[2]) <= set(truth[2]) if walker.reads_young_flags else found[2] == truth[2], f"turn {turn}"
            for vma in vmas:
                assert sizes.get(vma.start, 0) == size_within(pages, vma), vma
                compared += bool(sizes.get(vma.start))
            patterns.after(turn)
    finally:
        observer.close()
    assert compared > 4 * TURNS, "heap, interpreter, and what the pattern touched"


@needs_idle
def test_page_tables_and_idle_bits_agree_on_every_page(patterns, walker, monkeypatch):
    """The walk leaves the marks as they are, so the bitmap is asked about the same window."""
    pid, tracker = patterns.target.pid, IdleTracker()
    observer = Observer(tracker)
    unknown = np.empty(0, np.uint64)
    by_cause: dict[str, int] = {}
    plain = untrackable = 0
    explain = tracker._reason

    def spy(pages, mask):
        nonlocal unknown
        unknown = pages.numbers[mask]
        for cause, count in causes(pages.frames[mask]).items():
            by_cause[cause] = by_cause.get(cause, 0) + count
        return explain(pages, mask)

    monkeypatch.setattr(tracker, "_reason", spy)
    try:
        observer.start(pid)
        observer.paused(pid, lambda: clear(pid))  # setting idle bits leaves notes, which count as referenced
        for turn in range(TURNS):
            truth = patterns.touch(turn)
            walked, sizes, window, vmas = observer.paused(
                pid,
                lambda: (
                    accessed(walker, pid),
                    referenced(pid),
                    tracker.window(pid, vmas_of(pid), want_resident=False),
                    anonymous_vmas(pid),
                    clear(pid),
                )[:4],
            )
            assert patterns.found(walked) == patterns.found(window.pages) == truth, f"turn {turn}"
            # All other private memory of the process, too, but for what is unknown.
            doubtful = PageSet.from_pages(unknown)
            for vma in vmas:
                assert sizes.get(vma.start, 0) == size_within(walked, vma), (turn, vma)
                seen, expected = (size_within(p.difference(doubtful), vma) for p in (window.pages, walked))
                # The mark is the page frame's: what a child touches of its own, as it starts, is marked for both.
                forked = KINDS[turn % len(KINDS)] == "fork"
                assert (seen >= expected) if forked else (seen == expected), (turn, vma, seen, expected)
            # Each page that cannot be tracked is counted in the reason, by its cause.
            assert sum(map(int, re.findall(r"(\d+) pages", window.reason))) == len(unknown)
            first = np.uint64(patterns.anonymous >> PAGE_SHIFT)
            plain += len(truth[0])
            untrackable += int(((unknown >= first) & (unknown < first + np.uint64(PAGES))).sum())
            patterns.after(turn)
    finally:
        observer.close()
        tracker.close()
    print(f"{untrackable} of {plain} plain pages were untrackable; elsewhere: {by_cause}")
    assert untrackable <= plain / 100
    assert not by_cause.get("none"), "a page that cannot be tracked, and its flags do not say why"


def causes(frames: np.ndarray) -> dict[str, int]:
    """What /proc/kpageflags says of page frames: why they cannot be tracked by themselves."""
    fd = os.open(page_frames.KPAGEFLAGS, os.O_RDONLY)
    try:
        flags, _ = flags_of(fd, frames)
    finally:
        os.close(fd)
    folio = has(flags, page_frames.COMPOUND_HEAD) | has(flags, page_frames.COMPOUND_TAIL)
    unlisted = ~folio & ~has(flags, page_frames.LRU)
    # Of a file that others run, too: they touch it while its bit is being set.
    of_file = ~folio & ~unlisted & ~has(flags, KPF_ANON)
    none = ~folio & ~unlisted & ~of_file
    counts = {"large folio": folio, "in no list": unlisted, "of a file": of_file, "none": none}
    return {cause: int(mask.sum()) for cause, mask in counts.items() if mask.any()}
