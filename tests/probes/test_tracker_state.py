"""What is kept of a process between windows: how its accessed bits were cleared, and what that leaves uncertain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memtui.core.page_set import PageSet
from memtui.probes.pages.pagetable import tracker_state
from memtui.probes.pages.pagetable.first_accesses import FirstAccessReader
from memtui.probes.pages.pagetable.recent_pages import RecentPages
from memtui.probes.pages.pagetable.tracker_state import Tracked
from memtui.probes.pages.pagetable.walk_result import Walk
from memtui.probes.pages.tlb_flush import COLD, OFF, UNFLUSHED, Handle

NONE = PageSet.empty()
_EXTENTS = np.empty(0, np.uint64), np.empty(0, np.uint64)
EMPTY = Walk(NONE, NONE, (1, 1), vmas=0, mappings=None, changed=0, errors=0, anonymous=_EXTENTS, hugetlb=_EXTENTS)


def pages(first: int, count: int) -> PageSet:
    return PageSet.from_pages(np.arange(first, first + count))


@pytest.fixture
def tracked() -> Tracked:
    return Tracked(Handle(1, -1, -1), (1, 1), False, RecentPages(), FirstAccessReader(EMPTY))


def test_pages_that_were_cleared_stay_unflushed_until_a_flush(tracked):
    tracked.record_clear(pages(0, 5), OFF, NONE)
    tracked.record_clear(pages(3, 5), OFF, NONE)
    assert tracked.uncertain.unflushed.pages().tolist() == list(range(8))
    tracked.record_clear(pages(100, 5), COLD, NONE)
    assert tracked.uncertain.unflushed.page_count == 0


def test_the_time_of_clearing_a_page_is_that_of_the_last_windows(tracked):
    usual_ns = tracked.clear_page_ns
    tracked.record_clear(pages(0, 9_999), COLD, NONE, 10**9)
    assert tracked.clear_page_ns == usual_ns, "few pages say little"
    for took_ns, page_ns in ((10**6, 100), (10**5, 50), (0, 25), (6 * 10**5, 60)):
        tracked.record_clear(pages(0, 10_000), COLD, NONE, took_ns)
        assert tracked.clear_page_ns == page_ns


def test_what_could_not_be_cleared_is_that_of_the_last_time(tracked):
    tracked.record_clear(pages(0, 5), COLD, pages(0, 2))
    tracked.record_clear(pages(0, 5), COLD, pages(1, 1))
    assert tracked.uncertain.unknown.pages().tolist() == [1]


def test_a_new_program_begins_with_nothing_uncertain(tracked):
    tracked.record_clear(pages(0, 5), OFF, pages(0, 2))
    tracked.record_exec((2, 2))
    assert (tracked.generation, tracked.address_space) == (1, (2, 2))
    assert tracked.uncertain.unflushed.page_count == tracked.uncertain.unknown.page_count == 0
    tracked.record_exec((3, 3))
    assert (tracked.generation, tracked.address_space) == (2, (3, 3))


def test_notes_of_other_observers_are_cleared_with_all_bits_alone(tracked, monkeypatch):
    cleared: list[FirstAccessReader] = []
    monkeypatch.setattr(FirstAccessReader, "record_clear", lambda reader: cleared.append(reader))
    tracked.record_clear(pages(0, 5), COLD, NONE)
    assert cleared == []
    tracked.record_clear(pages(0, 5), COLD, NONE, full=True)
    tracked.record_exec((2, 2))
    assert cleared == [tracked.first_accesses] * 2


def test_pages_that_are_gone_may_not_have_been_touched(tracked):
    tracked.record_clear(pages(0, 1000), OFF, pages(0, 2))
    tracked.record_resident(pages(900, 500))
    assert tracked.uncertain.unflushed.pages().tolist() == list(range(900, 1000))
    assert tracked.uncertain.unknown.page_count == 2


def test_few_pages_are_no_reason_for_doubt(tracked):
    tracked.record_clear(pages(0, 256), OFF, NONE)
    assert tracked.uncertain.unflushed_doubt(NONE) == ""
    tracked.record_clear(pages(256, 1), OFF, NONE)
    assert tracked.uncertain.unflushed_doubt(NONE) == f"up to 1.00 MiB more may have been touched: {UNFLUSHED}"
    assert tracked.uncertain.unflushed_doubt(pages(0, 200)) == ""


BEFORE, AFTER = (
    b"00001000-00002000 rw-p 00000000 00:00 0 \n",
    b"00001000-00002000 rw-p 00000000 08:01 7                          /renamed\n",
)
NAMED = np.array([[0x1000, 0x2000, 3, 5]], np.uint64)  # start, end, rights, and a name that /proc alone tells
UNNAMED = np.array([[0x1000, 0x2000, 3, 0]], np.uint64)
GROWN = np.array([[0x1000, 0x3000, 3, 0]], np.uint64)


@pytest.fixture
def tables(monkeypatch):
    """Tables of mappings that are read one after the other, and the PIDs of which they were."""
    to_read, pids = [BEFORE, AFTER], []

    def read_maps(pid: int) -> bytes:
        pids.append(pid)
        return to_read[len(pids) - 1]

    monkeypatch.setattr(tracker_state, "read_maps", read_maps)
    return pids


MOST_IN_PAUSE = 2048


@pytest.mark.parametrize(("mappings", "within_pause"), [(MOST_IN_PAUSE, True), (MOST_IN_PAUSE + 1, False)])
def test_a_long_table_is_read_after_the_pause(tracked, tables, mappings, within_pause):
    for known in (None, NAMED):
        tables.clear()
        text = tracked.maps(replace(EMPTY, mappings=known, vmas=mappings), anew=False)
        assert tables == [1] * within_pause
        assert text() == BEFORE
        assert tables == [1]


def test_a_long_table_that_is_read_later_is_that_of_the_walk(tracked, tables):
    walk = replace(EMPTY, mappings=GROWN, vmas=MOST_IN_PAUSE + 1)
    assert tracked.maps(walk, anew=False)() == b"00001000-00003000 rw-p 00000000 00:00 0 \n"
    assert tables == [1]


def test_a_table_is_composed_where_only_memory_without_a_name_changed(tracked, tables):
    assert tracked.maps(replace(EMPTY, mappings=NAMED), anew=False)() == BEFORE
    assert tracked.maps(replace(EMPTY, mappings=NAMED), anew=False)() == BEFORE
    assert tracked.maps(replace(EMPTY, mappings=GROWN), anew=False)() == b"00001000-00003000 rw-p 00000000 00:00 0 \n"
    assert tables == [1], "it was read once"
    assert tracked.maps(replace(EMPTY, mappings=NAMED), anew=False)() == AFTER, "a name that is new has to be read"
    assert tables == [1, 1]


def test_a_table_is_read_anew_when_it_is_to(tracked, tables):
    assert tracked.maps(replace(EMPTY, mappings=UNNAMED), anew=False)() == BEFORE
    assert tracked.maps(replace(EMPTY, mappings=UNNAMED), anew=True)() == AFTER
    assert tables == [1, 1]
