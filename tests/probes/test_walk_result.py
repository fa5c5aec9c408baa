"""What a walk returns: extents that do not overlap, and the page frames behind its pages."""

from __future__ import annotations

import numpy as np
import pytest

from memtui.core.page_set import PageSet
from memtui.probes.pages.pagetable.walk_result import TABLE_ENTRIES, NotedTables, Tables, Users, disjoint

MASK = (1 << 46) - 1 & ~0xFFF
PRESENT, ACCESSED = 1, 1 << 5


def u8(*values: int) -> np.ndarray:
    return np.array(values, np.uint64)


def test_extents_that_rise_stay_as_they_are():
    starts, ends = u8(1, 5), u8(5, 9)
    assert disjoint(starts, ends) == (starts, ends)


def test_each_extent_begins_where_the_one_before_has_ended():
    starts, ends = disjoint(u8(1, 3, 4, 20), u8(9, 5, 12, 30))
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == [(1, 9), (9, 12), (20, 30)]


def test_page_frames_of_present_and_of_inaccessible_pages():
    entries = np.zeros((1, TABLE_ENTRIES), np.uint64)
    entries[0, 3] = 77 << 12 | PRESENT | ACCESSED
    entries[0, 9] = (78 << 12 ^ MASK) | ACCESSED  # PROT_NONE: not present, and the number inverted
    entries[0, 11] = 79 << 12 | PRESENT  # nobody accessed it
    tables = Tables(u8(2), entries, u8(4), u8(5 << 21 | PRESENT | ACCESSED | 1 << 12), MASK)
    block = PageSet.from_pages([2 * 512 + 3, 2 * 512 + 9, 7 * 512])
    frames = tables.frames_behind(PageSet(block.blocks, block.bits, u8(4), u8()))
    assert frames.pages.tolist() == [2 * 512 + 3, 2 * 512 + 9]
    assert frames.frames.tolist() == [77, 78]
    assert frames.huge.tolist() == [4]
    assert frames.huge_frames.tolist() == [5 << 9]


def test_page_frames_of_noted_pages_are_added():
    """A block that the walk has, too, counts once, and one whose pages are of the program before an exec not at all."""
    entries = np.arange(3 * TABLE_ENTRIES, dtype=np.uint64).reshape(3, TABLE_ENTRIES) << np.uint64(12) | np.uint64(1)
    noted = NotedTables(u8(5, 7, 9), entries)
    tables = Tables(u8(5), entries[:1] + np.uint64(1 << 30), u8(), u8(), MASK, noted)
    frames = tables.frames_behind(PageSet.from_pages([5 * 512 + 3, 6 * 512, 7 * 512 + 1, 7 * 512 + 2]))
    assert frames.pages.tolist() == [5 * 512 + 3, 7 * 512 + 1, 7 * 512 + 2]
    assert frames.frames.tolist() == [(1 << 18) + 3, 513, 514]


@pytest.mark.parametrize(("users", "paused", "all_paused"), [(2, 2, True), (3, 2, False)])
def test_all_are_held_where_every_user_is(users, paused, all_paused):
    assert Users(users, paused, users - paused).all_traced is all_paused


def test_tasks_that_were_not_paused_are_described():
    assert Users(3, 1, 2).describe_running().startswith("2 task(s) that share its memory ran meanwhile")
    assert Users(3, 1, 0).describe_running() == "", "a reader of /proc is not a task"
    assert Users(2, 2, 0).describe_running() == ""
