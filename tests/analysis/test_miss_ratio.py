"""Miss-ratio curve, against a simulated LRU memory."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.miss_ratio import MissRatioCurve
from memtui.analysis.reuse_distance import ReuseTracker
from memtui.analysis.reuse_histogram import ExactReuse, ReuseHistogram
from memtui.core.page_set import PageSet

PAGE = 4096


def curve_of(windows, kind=ExactReuse) -> MissRatioCurve:
    tracker, reuse = ReuseTracker(), kind()
    for window in windows:
        reuse.add(tracker.touch(PageSet.from_pages(list(window))))
    return MissRatioCurve.of(reuse)


def lru_misses(trace: list[int], pages: int) -> int:
    memory: list[int] = []
    misses = 0
    for page in trace:
        if page in memory:
            memory.remove(page)
        else:
            misses += 1
        memory = [page, *memory][:pages]
    return misses


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=40))
def test_one_page_per_window_is_an_exact_lru(trace):
    """With single-page windows nothing is unknown: both bounds are the simulated memory."""
    curve = curve_of([[page] for page in trace])
    first = len(set(trace))
    for pages in range(12):
        misses = lru_misses(trace, pages)
        lower, upper = curve.miss_ratio_at(pages * PAGE)
        assert lower == upper == misses / len(trace)
        if len(trace) > first:
            without = curve.miss_ratio_at(pages * PAGE, first_touches=False)
            assert without[0] == without[1] == (misses - first) / (len(trace) - first)


@settings(deadline=None)
@given(st.lists(st.sets(st.integers(0, 15), max_size=6), max_size=12), st.randoms(use_true_random=False))
def test_any_order_inside_windows_lies_between_the_bounds(windows, random):
    trace = []
    for window in windows:
        order = sorted(window)
        random.shuffle(order)
        trace += order
    for kind in (ExactReuse, ReuseHistogram):
        curve = curve_of(windows, kind)
        sizes = np.arange(18) * PAGE
        lower, upper = curve.miss_ratio_at(sizes)
        assert lower.shape == sizes.shape
        if not trace:
            assert np.isnan(lower).all()
            assert np.isnan(upper).all()
            continue
        truth = np.array([lru_misses(trace, pages) for pages in range(18)]) / len(trace)
        assert (lower <= truth + 1e-12).all()
        assert (truth <= upper + 1e-12).all()
        assert (np.diff(lower) <= 0).all()
        assert (np.diff(upper) <= 0).all()


@settings(deadline=None)
@given(
    st.lists(st.sets(st.integers(0, 15), max_size=6), max_size=12),
    st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    st.booleans(),
)
def test_size_for_is_the_smallest_size(windows, ratio, first):
    curve = curve_of(windows)
    sizes = range(0, 20 * PAGE, PAGE)
    for i, result in enumerate(curve.size_for(ratio, first_touches=first)):
        enough = [s for s in sizes if curve.miss_ratio_at(s, first_touches=first)[i] <= ratio]
        assert result == (enough[0] if enough else None)


def test_a_loop_fits_or_does_not():
    """The classic of LRU: a cyclic sweep over 100 pages misses always below 100 pages, never from there on."""
    curve = curve_of([[i % 100] for i in range(1000)])
    lower, upper = curve.miss_ratio_at([99 * PAGE, 100 * PAGE], first_touches=False)
    assert lower.tolist() == upper.tolist() == [1.0, 0.0]
    assert curve.miss_ratio_at(100 * PAGE)[0] == 0.1  # the 100 first touches of 1000
    assert curve.size_for(0.05) == (100 * PAGE, 100 * PAGE)
    assert curve.size_for(0.05, first_touches=True) == (None, None)


def test_bad_ratio():
    with pytest.raises(ValueError, match="miss ratio 2"):
        curve_of([[1]]).size_for(2)


def test_the_estimate_is_that_of_random_orders_in_windows():
    """Each window is 40 of 60 pages, in any order."""
    rng = np.random.default_rng(8)
    windows = [rng.permutation(60)[:40] for _ in range(60)]
    for curve in (curve_of(windows), curve_of(windows, ReuseHistogram)):
        for pages in (10, 30, 45, 52, 60):
            misses = lru_misses([int(page) for window in windows for page in window], pages) / (60 * 40)
            lower, upper = curve.miss_ratio_at(pages * PAGE)
            estimate = curve.estimate_at(pages * PAGE)
            assert lower <= estimate <= upper
            assert estimate == pytest.approx(misses, abs=0.04)
            assert upper - lower > 0.4 or pages in (10, 60)
        assert curve.estimate_at([PAGE, 60 * PAGE], first_touches=False) == pytest.approx([1.0, 0.0], abs=0.04)


def test_without_what_an_estimate_needs_there_is_none():
    curve = replace(curve_of([[1, 2], [1, 2]]), estimated=None)
    assert curve.estimate_at(PAGE) is None
    assert curve_of([]).estimate_at(PAGE) is None
