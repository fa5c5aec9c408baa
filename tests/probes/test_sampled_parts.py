"""Parts of a process's memory, read in turn: a walker and a rearmer that note what they are asked stand in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from memtui.core.block_sample import BlockSample
from memtui.core.page_set import PageSet
from memtui.probes.pages.pagetable import sampled_parts
from memtui.probes.pages.pagetable.first_accesses import FirstAccessReader
from memtui.probes.pages.pagetable.rearm import Rearmed
from memtui.probes.pages.pagetable.recent_pages import RecentPages
from memtui.probes.pages.pagetable.sampled_parts import ALL_PAGES, PartReader
from memtui.probes.pages.pagetable.tracker_state import Tracked
from memtui.probes.pages.pagetable.walk_result import Walk
from memtui.probes.pages.tlb_flush import COLD, Handle

NONE = PageSet.empty()
NO_EXTENTS = np.empty(0, np.uint64), np.empty(0, np.uint64)
PID, SPACE = 7, (1, 1)
SAMPLE = BlockSample(seed=5)
BLOCKS = 400  # of 512 pages
BLOCK_PAGES = 512
MAPPINGS = np.array([[0, BLOCKS * BLOCK_PAGES << 12, 0, 0]], np.uint64)


def first_pages(count: int, blocks: Sequence[int] = range(BLOCKS)) -> PageSet:
    """So many pages at the start of each block."""
    return PageSet.from_pages(np.concatenate([np.arange(count) + block * BLOCK_PAGES for block in blocks]))


def addresses(pages: PageSet) -> list[int]:
    return pages.pages().tolist()


@dataclass
class FakeWalker:
    """Finds the same accessed and resident pages at each walk."""

    touched: PageSet = field(default_factory=lambda: first_pages(10))
    resident: PageSet = field(default_factory=lambda: first_pages(20))
    anonymous: tuple = (MAPPINGS[:, 0], MAPPINGS[:, 1])
    noted_pages: PageSet = NONE
    space: tuple[int, int] = SPACE
    reads_young_flags: bool = True
    knows_page_frames: bool = True
    doubts: list[int] = field(default_factory=list)
    parts: list = field(default_factory=list)
    queries: list = field(default_factory=list)

    def take_doubts(self) -> int:
        return self.doubts.pop(0) if self.doubts else 0

    def walk(self, pid: int, *, want_resident: bool, parts: tuple) -> Walk:
        assert (pid, want_resident) == (PID, True)
        self.parts.append(parts)
        return Walk(self.touched, self.resident, self.space, vmas=1, mappings=MAPPINGS, changed=0, errors=0,
                    anonymous=self.anonymous, hugetlb=NO_EXTENTS)  # fmt: skip

    def noted(self, pid: int, pages: PageSet) -> PageSet:
        assert pid == PID
        self.queries.append(pages)
        return pages.difference(pages.difference(self.noted_pages))


class FakeRearmer:
    def __init__(self) -> None:
        self.asked: list = []

    def rearm(self, *what: object, shared: bool) -> Rearmed:
        self.asked.append((*what, shared))
        clock.now_ns += 3_000_000
        return Rearmed(COLD, "some", first_pages(1, [0]))


clock = SimpleNamespace(now_ns=0)


@pytest.fixture
def rearmer(monkeypatch):
    monkeypatch.setattr(sampled_parts, "time", SimpleNamespace(monotonic_ns=lambda: clock.now_ns))
    return FakeRearmer()


@pytest.fixture
def tracked() -> Tracked:
    empty = Walk(
        NONE, NONE, SPACE, vmas=0, mappings=None, changed=0, errors=0, anonymous=NO_EXTENTS, hugetlb=NO_EXTENTS
    )
    return Tracked(Handle(PID, -1, -1), SPACE, True, RecentPages(), FirstAccessReader(empty), sample=SAMPLE)


def take(reader: PartReader, tracked: Tracked, *, first: bool = False, shared: bool = False):
    bits = reader.read(tracked, PID, tracked.sample, first=first)
    done = reader.clear(tracked, bits, bits.part, shared=shared)
    return bits, done


def test_each_window_reads_the_part_that_was_cleared_last(tracked, rearmer):
    walker = FakeWalker()
    reader = PartReader(walker, rearmer)
    first, _ = take(reader, tracked, first=True)
    assert walker.parts == [(SAMPLE, 0, 0)], "before the first window one part is cleared, and none is read"
    assert addresses(first.part.marked) == addresses(SAMPLE.select(walker.touched, 0))
    for part in (*range(SAMPLE.parts), 0):
        bits, _ = take(reader, tracked)
        following = (part + 1) % SAMPLE.parts
        assert walker.parts[-1] == (SAMPLE, part, following)
        assert addresses(bits.touched) == addresses(SAMPLE.select(walker.touched, part))
        assert addresses(bits.part.present) == addresses(SAMPLE.select(walker.resident, part))
        assert addresses(rearmer.asked[-1][2]) == addresses(SAMPLE.select(walker.touched, following))
        assert tracked.part == following


def test_a_sample_becomes_finer_from_the_next_part_on(tracked, rearmer):
    walker = FakeWalker()
    reader = PartReader(walker, rearmer)
    take(reader, tracked, first=True)
    tracked.small_page_blocks = 10**6
    finer = SAMPLE.for_blocks(tracked.small_page_blocks)
    assert finer.parts > SAMPLE.parts
    bits, _ = take(reader, tracked)
    assert addresses(bits.touched) == addresses(SAMPLE.select(walker.touched, 0)), "that part was cleared as a whole"
    assert addresses(bits.part.marked) == addresses(finer.select(walker.touched, 1))
    assert tracked.sample == finer


@pytest.mark.parametrize("shared", [True, False])
def test_clearing_is_asked_for_and_recorded(shared, tracked, rearmer):
    walker = FakeWalker(touched=first_pages(BLOCK_PAGES), resident=first_pages(BLOCK_PAGES))
    bits, done = take(PartReader(walker, rearmer), tracked, shared=shared)
    assert rearmer.asked == [(tracked.handle, bits.walk, bits.part.marked, bits.noted, ALL_PAGES, shared)]
    assert bits.part.marked.page_count >= 10_000, "enough for their time to count"
    assert tracked.clear_page_ns == 3_000_000 / bits.part.marked.page_count
    assert addresses(tracked.uncertain.unknown) == addresses(done.unknown)
    assert tracked.uncertain.unflushed.page_count == 0


def test_what_other_observers_noted_was_touched_or_is_in_doubt(tracked, rearmer):
    noted = first_pages(12)  # two pages of each block whose bits somebody else took
    walker = FakeWalker(noted_pages=noted)
    reader = PartReader(walker, rearmer)
    first, _ = take(reader, tracked, first=True)
    assert addresses(first.noted) == addresses(SAMPLE.select(noted, 0).difference(walker.touched)), "to be cleared"
    bits, _ = take(reader, tracked)
    assert addresses(bits.touched) == addresses(SAMPLE.select(noted, 0))
    assert addresses(bits.noted) == addresses(SAMPLE.select(noted, 1).difference(walker.touched))
    assert addresses(bits.part.marked) == addresses(SAMPLE.select(noted, 1))
    assert bits.walk.in_doubt == 0

    walker.anonymous = NO_EXTENTS  # all lies near files: another process may have accessed them
    bits, _ = take(reader, tracked)
    assert addresses(bits.touched) == addresses(SAMPLE.select(walker.touched, 1))
    assert bits.walk.in_doubt == SAMPLE.select(noted, 1).difference(walker.touched).page_count
    assert addresses(bits.part.marked) == addresses(SAMPLE.select(noted, 2)), "their notes are cleared all the same"


def test_doubts_are_those_of_this_window(tracked, rearmer):
    walker = FakeWalker(doubts=[100, 3])
    bits, _ = take(PartReader(walker, rearmer), tracked)
    assert bits.walk.in_doubt == 3, "100 came of clearing after the last window"


def test_without_page_frames_every_page_that_looks_untouched_is_in_doubt(tracked, rearmer):
    walker = FakeWalker(knows_page_frames=False, noted_pages=first_pages(12))
    bits, _ = take(PartReader(walker, rearmer), tracked)
    assert bits.walk.in_doubt == SAMPLE.select(walker.resident.difference(walker.touched), 0).page_count
    assert walker.queries == []


def test_where_nobody_takes_bits_nobody_is_asked(tracked, rearmer):
    walker = FakeWalker(reads_young_flags=False, noted_pages=first_pages(12))
    bits, _ = take(PartReader(walker, rearmer), tracked)
    assert walker.queries == []
    assert (bits.walk.in_doubt, bits.noted.page_count) == (0, 0)
    assert addresses(bits.part.marked) == addresses(SAMPLE.select(walker.touched, 1))


def test_a_new_program_has_no_old_notes(tracked, rearmer):
    walker = FakeWalker(space=(2, 2), noted_pages=first_pages(12))
    reader = PartReader(walker, rearmer)
    tracked.record_clear(NONE, COLD, first_pages(3))
    bits, _ = take(reader, tracked)
    assert bits.uncertain.unknown.page_count == 0
    assert (tracked.address_space, tracked.generation) == ((2, 2), 1)
    assert addresses(bits.touched) == addresses(SAMPLE.select(walker.touched, 0))
    again, _ = take(reader, tracked)
    assert addresses(again.touched) == addresses(SAMPLE.select(first_pages(12), 1)), "from then on there are"
