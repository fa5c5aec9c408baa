"""The heat map: columns of bins over time."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.heat_layout import HeatRange, Layout
from memtui.analysis.heat_map import HeatMap, bin_column
from memtui.core.page_set import PageSet
from memtui.core.page_sizes import PAGE_BYTES


def pages_of(*numbers: int) -> PageSet:
    return PageSet.from_pages(list(numbers))


LAYOUT = Layout.build([HeatRange(1, 0, 2 * PAGE_BYTES)], 2)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=2, max_size=6, unique=True).map(sorted),
    st.lists(st.tuples(st.integers(-5, 45), st.integers(1, 20), st.sampled_from([(), (0,), (1,), (0, 1)])), max_size=8),
)
def test_columns_are_means_weighted_by_shared_time(edges, windows):
    heat = HeatMap(LAYOUT, edges)
    for start, length, touched in windows:
        heat.add(start, start + length, pages_of(*touched))
    share = heat.share()
    assert share.shape == (2, len(edges) - 1)
    for column, (low, high) in enumerate(pairwise(edges)):
        for row in range(2):
            total = weight = 0
            for t in range(low, high):  # one nanosecond after the other
                values = [row in touched for start, n, touched in windows if start <= t < start + n]
                total += sum(values)
                weight += len(values)
            if weight:
                assert share[row, column] == pytest.approx(total / weight)
            else:
                assert math.isnan(share[row, column])


def test_windows_without_page_set_leave_no_trace():
    heat = HeatMap(LAYOUT, [0, 10, 20])
    heat.add(0, 10, None)
    heat.add(10, 20, bin_column(pages_of(1), LAYOUT))
    assert np.isnan(heat.share()[:, 0]).all()
    assert heat.share()[:, 1].tolist() == [0, 1]
    assert np.isnan(bin_column(None, LAYOUT)).all()


def test_bad_heat_maps():
    with pytest.raises(ValueError, match="edges"):
        HeatMap(LAYOUT, [0, 0])
    heat = HeatMap(LAYOUT, [0, 1])
    with pytest.raises(ValueError, match="window ends"):
        heat.add(1, 1, None)
    with pytest.raises(ValueError, match="shape"):
        heat.add(0, 1, np.zeros(5, np.float32))
