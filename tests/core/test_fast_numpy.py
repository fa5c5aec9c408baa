"""What replaces functions of numpy gives the same as they do."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memtui.core.fast_numpy import distinct, is_in, median, ranked, union1d

NUMBERS = st.lists(st.integers(0, 40) | st.integers(0, 1 << 52), max_size=40)
PAGES = NUMBERS.map(lambda numbers: np.array(numbers, np.uint64))


@given(PAGES, PAGES)
def test_sets_of_numbers(some, others):
    assert distinct(some).tolist() == np.unique(some).tolist()
    assert distinct(some).dtype == some.dtype
    assert union1d(some, others).tolist() == np.union1d(some, others).tolist()


@given(PAGES, PAGES)
def test_membership_in_numbers_near_one_another_and_far_apart(values, among):
    assert is_in(values, np.sort(among)).tolist() == np.isin(values, among).tolist()


def test_both_ways_to_find_members():
    near, far = np.arange(0, 100, 3), np.arange(0, 100, 3) << 40
    asked = np.array([0, 1, 99, 100, 1 << 50])
    assert is_in(asked, near).tolist() == [True, False, True, False, False]
    assert is_in(np.array([0, 1 << 40, 99 << 40, 1 << 50]), far).tolist() == [True, False, True, False]
    assert is_in(asked[:0], far).tolist() == is_in(asked, far[:0])[:0].tolist() == []


@given(PAGES.filter(len))
def test_ranks_and_the_median(values):
    rising, rank = ranked(values)
    assert rising[rank].tolist() == values.tolist()
    assert rising.tolist() == sorted(set(values.tolist()))
    assert median(values) == np.median(values.astype(float))
