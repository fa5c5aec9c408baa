"""What is read from reuse curves: where they bend, how far apart they lie, and how much memory they ask for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.reuse_cdf import advice, apart, cdf, knee, quantiles, shift
from memtui.core.page_sizes import PAGE_BYTES


class Counts:
    """Reuse counts with one bound."""

    estimated = None

    def __init__(self, distances, counts=None, first_touches=0) -> None:
        self._distances = np.array(distances, np.int64) * PAGE_BYTES
        self._counts = np.ones(len(distances), np.int64) if counts is None else np.array(counts, np.int64)
        self.first_touches = first_touches

    def entries(self, bound):
        return self._distances, self._counts


RISING = st.sets(st.integers(1, 5000), min_size=1, max_size=60).map(sorted)


@given(distances=RISING, first=st.integers(0, 50))
def test_a_curve_rises_to_all_but_the_first_touches(distances, first):
    curve = cdf(Counts(distances, first_touches=first))
    assert (np.diff(curve.least) >= 0).all()
    assert (curve.least <= curve.most).all()
    assert curve.least[-1] == pytest.approx(1 - curve.first_share)
    assert curve.first_share == first / (first + len(distances))


def test_no_page_that_came_back_is_no_curve():
    assert cdf(Counts([], first_touches=3)) is None


def test_a_step_has_a_clear_knee_where_it_ends_and_an_even_curve_has_none():
    step = knee(cdf(Counts([100, 1000], [990, 10])))
    assert step.clear
    assert step.size_bytes == pytest.approx(100 * PAGE_BYTES, rel=0.05)
    assert step.share == pytest.approx(0.99)
    assert not knee(cdf(Counts(range(1, 1001)))).clear


@given(one=RISING, other=RISING)
def test_distance_of_curves_is_a_distance(one, other):
    assert apart(Counts(one), Counts(one)) == 0
    assert apart(Counts(one), Counts(other)) == pytest.approx(apart(Counts(other), Counts(one)))
    assert 0 <= apart(Counts(one), Counts(other)) <= 1


def test_distance_and_shift_of_known_curves():
    assert apart(Counts([10]), Counts([20])) == 1
    assert apart(Counts([10, 20]), Counts([20])) == 0.5
    assert shift(Counts([100]), Counts([110])) == pytest.approx(0.1)
    assert shift(Counts([100]), Counts([])) is None
    assert apart(Counts([100]), Counts([])) is None


def test_quantiles_of_returning_touches():
    bounds = quantiles(Counts([10, 20, 30, 40]))
    assert bounds[0.5] == (20 * PAGE_BYTES, 20 * PAGE_BYTES)
    assert bounds[0.95] == (40 * PAGE_BYTES, 40 * PAGE_BYTES)


def test_advice_is_one_size_where_two_intervals_agree_and_a_range_where_not():
    agreed = advice([(0.2, Counts([100])), (0.4, Counts([105]))], 0.05)
    assert agreed.agree
    assert agreed.bytes_ == (105 * PAGE_BYTES,) * 2
    not_so = advice([(0.2, Counts([200])), (0.4, Counts([100]))], 0.05)
    assert not not_so.agree
    assert not_so.bytes_ == (100 * PAGE_BYTES, 200 * PAGE_BYTES)
    assert advice([(0.2, Counts([])), (0.4, Counts([1]))], 0.05) is None
    with pytest.raises(ValueError, match="two intervals"):
        advice([(0.2, Counts([1]))], 0.05)
