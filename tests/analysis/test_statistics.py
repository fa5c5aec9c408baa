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
    result = summary(values)
    rest = known(values)
    assert (result.count, result.missing) == (len(rest), len(values) - len(rest))
    if not rest:
        assert result.mean is result.median is result.p95 is result.min is result.max is None
        return
    assert result.mean == pytest.approx(plain.fmean(rest))
    assert result.median == plain.median(rest)
    assert (result.min, result.max) == (min(rest), max(rest))
    assert result.p95 == pytest.approx(np.quantile(rest, 0.95))


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
    result = summary(values, weights)
    assert (result.mean, result.median) == (mean(values, weights), quantile(values, 0.5, weights))
    assert result.p95 == quantile(values, 0.95, weights)


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
    interval = median_interval(range(1, n + 1))
    assert interval is not None
    assert (interval.low, interval.high) == (k, n + 1 - k)
    assert interval.confidence == pytest.approx(covers, abs=1e-6)
    assert interval.median == (n + 1) / 2


def test_too_few_values_have_no_interval():
    interval = median_interval([3, None, 1, 2, 5, 4])
    assert interval is not None
    assert (interval.median, interval.low, interval.high, interval.confidence, interval.count) == (3, None, None, 0, 5)
    assert median_interval([None]) is None
    with pytest.raises(ValueError, match="confidence"):
        median_interval([1], 95)


def test_the_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(4)
    hits = 0
    for row in rng.exponential(size=(4000, 20)):
        interval = median_interval(row)
        assert interval is not None
        assert interval.low is not None
        assert interval.high is not None
        hits += interval.low <= math.log(2) <= interval.high
    assert abs(hits / 4000 - 0.9586) < 0.013  # four standard errors


def test_ratio_of_pairs():
    before = [1.0, 2, 4, 8, None, 0, 16, 32]
    after = [1.1, 2.2, 4.4, 8.8, 1, 1, 17.6, 35.2]
    interval = ratio_of_pairs(after, before)
    assert interval is not None
    assert interval.count == 6
    assert interval.median == pytest.approx(1.1)
    assert interval.low == pytest.approx(1.1)
    assert ratio_of_pairs([1], [0]) is None
    with pytest.raises(ValueError, match="equal lengths"):
        ratio_of_pairs([1], [])
