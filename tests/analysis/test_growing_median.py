"""The median of growing numbers is that of all of them, and few are kept."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.growing_median import GrowingMedian
from memtui.core.fast_numpy import median

NUMBERS = st.lists(st.one_of(st.integers(0, 9), st.integers(-1000, 1000)), max_size=60)


@given(NUMBERS, NUMBERS, st.integers(0, 3), st.sampled_from([0, -(10**6), 10**6]))
def test_it_is_the_median_of_all_values(first, more, spare, offset):
    growing = GrowingMedian(
        (np.array(first[:3], float), np.array(first[3:], float)), len(more) + spare, len(first) + spare
    )
    values = list(first)
    assert growing.value == (median(np.array(values, float)) if values else None)
    for value in more:
        growing.add(np.array([value + offset], float))
        values.append(value + offset)
        assert growing.value == median(np.array(values, float))
        assert len(growing) == len(values)


@pytest.mark.parametrize("count", [5000, 50_000])
def test_few_values_are_kept(count):
    values = np.random.default_rng(0).random(count + 64)
    tracemalloc.start()
    try:
        growing = GrowingMedian((values[:999], values[999:count]), 64, count)
        growing.add(values[count:])
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert growing.value == median(values)
    assert kept_bytes < 20_000  # 128 floats of 32 bytes and a list; the values are 40,000 at least


def test_more_than_were_announced_are_refused():
    growing = GrowingMedian((np.arange(5.0),), 2, 5)
    with pytest.raises(ValueError, match="announced"):
        growing.add(np.arange(3.0))
