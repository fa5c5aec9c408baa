"""Statistics with holes, and the interval of the median."""

import math
import statistics as plain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.statistics import mean, median, median_interval, quantile, ratio_of_pairs, summary

numbers = st.one_of(st.none(), st.just(math.nan), st.integers(-1000, 1000))


def known(values):
    return [v for v in values if v is not None and not math.isnan(v)]


@settings(deadline=None)
@given(st.lists(numbers, max_size=30))
def test_holes_are_left_out(values):
    found = summary(values)
    rest = known(values)
    assert (found.count, found.missing) == (len(rest), len(values) - len(rest))
    if not rest:
        assert found.mean is found.median is found.p95 is found.min is found.max is None
        return
    assert found.mean == pytest.approx(plain.fmean(rest))
    assert found.median == plain.median(rest)
    assert (found.min, found.max) == (min(rest), max(rest))
    assert found.p95 == pytest.approx(np.quantile(rest, 0.95))


@settings(deadline=None)
@given(st.lists(st.tuples(numbers, st.integers(0, 5)), max_size=20), st.sampled_from([0, 0.1, 0.5, 0.95, 1]))
def test_weights_are_repetitions(pairs, q):
    values, weights = [v for v, _ in pairs], [w for _, w in pairs]
    repeated = sorted(v for v, w in pairs for _ in range(w) if known([v]))
    if not repeated:
        assert mean(values, weights) is None
        assert quantile(values, q, weights) is None
        return
    assert mean(values, weights) == pytest.approx(plain.fmean(repeated))
    expected = next(v for v in repeated if sum(w <= v for w in repeated) >= q * len(repeated))
    assert quantile(values, q, weights) == expected
    found = summary(values, weights)
    assert (found.mean, found.median) == (mean(values, weights), quantile(values, 0.5, weights))
    assert found.p95 == quantile(values, 0.95, weights)


def test_a_value_in_a_long_window_weighs_more_only_when_asked():
    assert median([1, 1, 9]) == 1
    assert median([1, 1, 9], [1, 1, 5]) == 9


@pytest.mark.parametrize("weights", [[1], [1, -1], [1, math.inf]])
def test_bad_weights(weights):
    with pytest.raises(ValueError, match="weights"):
        mean([1, 2], weights)


def test_bad_quantile():
    with pytest.raises(ValueError, match="quantile -1"):
        quantile([1], -1)


@pytest.mark.parametrize(
    ("n", "k", "covers"),
    [(6, 1, 0.96875), (10, 2, 0.978515625), (20, 6, 0.9586105), (25, 8, 0.9567147), (100, 40, 0.9647998)],
)
def test_intervals_are_those_of_the_tables(n, k, covers):
    """Order statistics (k, n+1-k) at 95 %: e.g. Conover, Practical Nonparametric Statistics, binomial tables."""
    found = median_interval(range(1, n + 1))
    assert found is not None
    assert (found.low, found.high) == (k, n + 1 - k)
    assert found.confidence == pytest.approx(covers, abs=1e-6)
    assert found.median == (n + 1) / 2


def test_too_few_values_have_no_interval():
    found = median_interval([3, None, 1, 2, 5, 4])
    assert found is not None
    assert (found.median, found.low, found.high, found.confidence, found.count) == (3, None, None, 0, 5)
    assert median_interval([None]) is None
    with pytest.raises(ValueError, match="confidence"):
        median_interval([1], 95)


def test_the_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(4)
    hits = 0
    for row in rng.exponential(size=(4000, 20)):
        found = median_interval(row)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= math.log(2) <= found.high
    assert abs(hits / 4000 - 0.9586) < 0.013  # four standard errors


def test_ratio_of_pairs():
    before = [1.0, 2, 4, 8, None, 0, 16, 32]
    after = [1.1, 2.2, 4.4, 8.8, 1, 1, 17.6, 35.2]
    found = ratio_of_pairs(after, before)
    assert found is not None
    assert found.count == 6
    assert found.median == pytest.approx(1.1)
    assert found.low == pytest.approx(1.1)
    assert ratio_of_pairs([1], [0]) is None
    with pytest.raises(ValueError, match="equal lengths"):
        ratio_of_pairs([1], [])
