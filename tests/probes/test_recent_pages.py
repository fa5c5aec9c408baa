"""Which pages are asked about where another observer takes marks away: those of the last windows, by what is mapped."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.page_set import PageSet
from memtui.probes.pages.pagetable.recent_pages import RecentPages, resident_in_files

BLOCK = 1 << 21


def walk(mappings, anonymous=()):
    """Of (start, end) of all mappings, and which of them are private anonymous memory."""
    table = np.array([(start, end, 0, 0) for start, end in mappings], np.uint64).reshape(-1, 4)
    chosen = np.array([mappings[n] for n in anonymous], np.uint64).reshape(-1, 2)
    return SimpleNamespace(mappings=table, anonymous=(chosen[:, 0], chosen[:, 1]))


def pages(*numbers) -> PageSet:
    return PageSet.from_pages(numbers)


def test_a_page_is_known_for_four_to_eight_windows():
    asked = []
    for windows_before in range(4):
        recent = RecentPages()
        for n in range(windows_before + 1):
            recent.record(pages(7) if n == windows_before else pages(), walk([]))
            recent.update()
        asked.append(0)
        while recent.pages.page_count:
            asked[-1] += 1
            recent.record(pages(), walk([]))
            recent.update()
    assert sorted(asked) == [5, 6, 7, 8]


def test_what_was_touched_before_the_first_window_is_known_unless_it_is_too_much():
    assert RecentPages(pages(1, 2)).pages.page_count == 2
    assert RecentPages(pages(1, 2)).in_files.page_count == 2, "what is mapped there is not known yet"
    once = RecentPages(PageSet.from_pages(np.arange(40_000)))
    assert once.pages.page_count == 40_000
    once.record(pages(50_000), walk([]))
    once.update()
    assert once.pages.page_count == 1
    assert RecentPages(PageSet.from_pages(np.arange(300_000))).pages.page_count == 0


def test_resident_pages_of_files_are_known_from_the_first_window_on():
    """The bits of some were taken before it: they are not among those that were accessed."""
    recent = RecentPages(pages(1, 2), pages(2, 7))
    assert recent.pages.pages().tolist() == [1, 2, 7]
    files = PageSet.from_pages(np.arange(100_000, 200_000))
    recent = RecentPages(PageSet.from_pages(np.arange(40_000)), files)
    assert recent.pages.page_count == 140_000
    recent.record(pages(), walk([]))
    recent.update()
    assert recent.pages.pages().tolist() == files.pages().tolist(), (
        "what was accessed and is too much is asked about once"
    )
    assert RecentPages(pages(1), PageSet.from_pages(np.arange(200_000))).pages.page_count == 1, "too much"


def test_resident_pages_of_files_are_those_outside_of_private_anonymous_memory():
    of_walk = walk([(0, BLOCK), (BLOCK, 2 * BLOCK), (2 * BLOCK, 3 * BLOCK)], anonymous=(1,))
    huge = np.array([9], np.uint64)
    small = pages(5, 512, 900, 1024)
    of_walk.resident = PageSet(small.blocks, small.bits, huge, huge[:0])
    assert resident_in_files(of_walk).pages().tolist() == [5, 1024]
    assert not len(resident_in_files(of_walk).huge)
    of_walk.resident = None
    assert resident_in_files(of_walk).page_count == 0


def test_nothing_is_taken_in_twice():
    recent = RecentPages()
    recent.record(pages(7), walk([]))
    for _ in range(20):
        recent.update()
    assert recent.pages.page_count == 1


def test_a_block_with_a_file_in_it_is_asked_about_before_files_are_cleared():
    file, heap, far = (3 * BLOCK - 4096, 3 * BLOCK + 4096), (3 * BLOCK + 4096, 5 * BLOCK), (9 * BLOCK, 10 * BLOCK)
    recent = RecentPages()
    recent.record(pages(2 * 512, 3 * 512, 4 * 512, 9 * 512, 20 * 512), walk([file, heap, far], anonymous=(1, 2)))
    recent.update()
    assert (recent.in_files.blocks.tolist(), recent.elsewhere.blocks.tolist()) == ([2, 3], [4, 9, 20])
    unknown = walk([file])
    unknown.mappings = None
    recent.record(pages(), unknown)
    recent.update()
    assert recent.in_files.page_count == 5


@given(
    st.lists(st.integers(0, 40 * 512), min_size=1),
    st.lists(st.tuples(st.integers(0, 40 * 512), st.integers(1, 1500), st.booleans()), max_size=8),
)
def test_by_mapping_is_as_looked_up_one_by_one(numbers, drawn):
    mappings, anonymous, at = [], [], 0
    for gap, length, is_anonymous in drawn:
        start = at + gap
        at = start + length
        if is_anonymous:
            anonymous.append(len(mappings))
        mappings.append((start << 12, at << 12))
    recent = RecentPages()
    recent.record(pages(*numbers), walk(mappings, anonymous))
    recent.update()
    others = [mapping for n, mapping in enumerate(mappings) if n not in anonymous]
    beside = {
        number
        for number in numbers
        if any(start < ((number >> 9) + 1) * BLOCK and end > (number >> 9) * BLOCK for start, end in others)
    }
    assert set(recent.in_files.pages().tolist()) == beside
    assert set(recent.elsewhere.pages().tolist()) == set(numbers) - beside
