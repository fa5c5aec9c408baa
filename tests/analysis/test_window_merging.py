"""Merging windows: a long window made of short ones holds what a long window would have seen."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.reuse_distance import ReuseTracker
from memtui.analysis.window_merging import merge_windows, reuse_of, similarity, union
from memtui.core.page_set import PageSet

PAGES = st.sets(st.integers(0, 3000), max_size=40)


def page_set(pages) -> PageSet:
    return PageSet.from_pages(np.array(sorted(pages), np.uint64))


@given(accesses=st.lists(PAGES, max_size=24), count=st.integers(1, 6))
def test_the_union_of_neighbours_is_the_long_window(accesses, count):
    merged = [set(pages.pages().tolist()) for pages in merge_windows(list(map(page_set, accesses)), count)]
    long = [set().union(*accesses[index : index + count]) for index in range(0, len(accesses) - count + 1, count)]
    assert merged == long


@given(accesses=st.lists(PAGES, min_size=1, max_size=12), count=st.integers(1, 4))
def test_a_longer_window_never_touches_less(accesses, count):
    windows = list(map(page_set, accesses))
    for pages, index in zip(merge_windows(windows, count), range(0, len(windows), count), strict=False):
        assert pages.size_bytes >= max(one.size_bytes for one in windows[index : index + count])


@given(accesses=st.lists(PAGES, max_size=12), count=st.integers(1, 4))
def test_reuse_of_merged_windows_is_that_of_long_ones(accesses, count):
    exact = reuse_of(merge_windows(list(map(page_set, accesses)), count))
    tracker = ReuseTracker()
    touches = 0
    for index in range(0, len(accesses) - count + 1, count):
        touches += tracker.touch(page_set(set().union(*accesses[index : index + count]))).touches
    assert exact.touches == touches


def test_a_group_with_an_unknown_window_and_a_rest_are_left_out():
    windows = [page_set({1}), None, page_set({2}), page_set({3}), page_set({4})]
    assert [pages.pages().tolist() for pages in merge_windows(windows, 2)] == [[2, 3]]


def test_nothing_can_be_merged_by_none():
    with pytest.raises(ValueError, match="0 windows"):
        list(merge_windows([], 0))


def test_a_page_that_came_in_two_sizes_counts_in_the_larger_one():
    huge = PageSet(
        np.empty(0, np.uint64), np.empty((0, 8), np.uint64), np.array([3], np.uint64), np.empty(0, np.uint64)
    )
    both = union((page_set({3 * 512, 3 * 512 + 1, 5}), huge))
    assert both.size_bytes == (2 << 20) + 4096


@given(one=PAGES, other=PAGES)
def test_similarity_is_the_jaccard_index(one, other):
    index = similarity(page_set(one), page_set(other))
    assert index == (len(one & other) / len(one | other) if one | other else None)
