"""Three averages and what they say, against readings of which the fault is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from memtui.analysis.robust_mean import averages, mean_interval, ratio_interval, student_t

TRUE_W, SIGMA_W, COUNT = 250.0, 2.0, 300


def clean(count: int = COUNT, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(TRUE_W, SIGMA_W, count)


def ramp(share: float) -> np.ndarray:
    values, many = clean(), int(share * COUNT)
    values[:many] *= np.linspace(60 / TRUE_W, 1, many)
    return values


def idle(share: float) -> np.ndarray:
    values = clean()
    values[np.random.default_rng(2).permutation(COUNT)[: int(share * COUNT)]] = 60
    return values


def test_clean_readings_agree():
    result = averages(clean())
    assert result.verdict == "agree"
    assert result.best == result.mean == pytest.approx(TRUE_W, abs=0.5)
    assert result.error == pytest.approx(SIGMA_W / np.sqrt(COUNT), rel=0.1)


@pytest.mark.parametrize(
    ("share", "mean", "mean_3s"), [(0.05, 245.2, 249.2), (0.15, 235.8, 242.6), (0.40, 211.9, 211.9)]
)
def test_a_ramp_pulls_the_means_down(share, mean, mean_3s):
    result = averages(ramp(share))
    assert result.mean == pytest.approx(mean, abs=0.7)
    assert result.mean_3s == pytest.approx(mean_3s, abs=0.7)
    assert result.median == pytest.approx(TRUE_W, abs=2.5)


def test_the_cause_of_a_long_ramp_is_a_drift():
    assert averages(ramp(0.4)).verdict == "drift"


def test_one_pass_of_rejection_fails_from_a_tenth_on():
    """At 9 % of readings at idle the rejection works, at 11 % none is rejected: 3 standard deviations hold them all."""
    assert averages(idle(0.09)).mean_3s == pytest.approx(TRUE_W, abs=0.5)
    many = averages(idle(0.11))
    assert many.mean_3s == many.mean < 231
    assert (many.verdict, many.best) == ("outliers", pytest.approx(TRUE_W, abs=0.5))


def test_bursts_are_no_fault_and_their_median_is_no_mean():
    values = np.where(np.arange(COUNT) % 5 < 3, 300.0, 120.0) + np.random.default_rng(3).normal(0, 1, COUNT)
    result = averages(values)
    assert result.median == pytest.approx(300, abs=1)
    assert (result.verdict, result.best) == ("two levels", pytest.approx(228, abs=1))


@given(st.lists(st.floats(1, 1000), min_size=1, max_size=10))
def test_ten_values_reject_none(values):
    result = averages(values)
    assert result.mean_3s == pytest.approx(result.mean)
    assert result.verdict in ("agree", "too few")


def test_readings_that_failed_are_left_out():
    assert averages([np.nan, 5.0, np.nan]).mean == 5
    assert averages([np.nan]) is None


def test_values_that_are_told_twice_say_no_more():
    once = averages(clean(50))
    twice = averages(np.repeat(clean(50), 2), independent=50)
    assert twice.error == pytest.approx(once.error, rel=0.02)


@pytest.mark.parametrize(
    ("p", "degrees", "t"),
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.3027),
        (0.975, 4, 2.7764),
        (0.975, 9, 2.2622),
        (0.95, 5, 2.0150),
        (0.995, 30, 2.75),
    ],
)
def test_students_t_is_that_of_the_tables(p, degrees, t):
    assert student_t(p, degrees) == pytest.approx(t, rel=1e-4)


def test_students_t_nears_the_normal_distribution():
    assert student_t(0.975, 100_000) == pytest.approx(1.95996, abs=1e-4)
    with pytest.raises(ValueError, match="degrees"):
        student_t(0.4, 3)


def test_an_interval_of_five_windows_covers_the_mean_as_often_as_it_says():
    random = np.random.default_rng(4)
    intervals = [mean_interval(random.normal(10, 1, 5)) for _ in range(2000)]
    covered = np.mean([low <= 10 <= high for _, low, high in intervals])
    assert covered == pytest.approx(0.95, abs=0.015)
    assert mean_interval([1.0]) is None


def test_a_ratio_has_an_interval_that_holds_the_truth():
    chance = np.random.default_rng(7)
    held = 0
    for _ in range(400):
        base, values = np.exp(chance.normal(0, 0.02, 5)), 1.1 * np.exp(chance.normal(0, 0.05, 7))
        ratio, low, high = ratio_interval(values, base)
        assert low < ratio < high
        held += low <= 1.1 <= high
    assert 0.92 <= held / 400 <= 0.985


@pytest.mark.parametrize(("values", "base"), [([1.0], [1.0, 2.0]), ([1.0, 2.0], []), ([1.0, 0.0], [1.0, 2.0])])
def test_no_ratio_without_two_positive_values(values, base):
    assert ratio_interval(values, base) is None


def test_values_that_do_not_vary_are_certain():
    assert ratio_interval([2.0, 2.0], [1.0, 1.0]) == pytest.approx((2, 2, 2))


@pytest.mark.parametrize("p", [0.5, 0.51, 0.6, 0.75, 0.84, 0.9])
@pytest.mark.parametrize("degrees", [1, 2, 5, 8])
def test_students_t_is_that_of_scipy_below_one_too(p, degrees):
    assert student_t(p, degrees) == pytest.approx(stats.t.ppf(p, degrees), abs=1e-9)


@pytest.mark.parametrize(("p", "degrees"), [(1.0, 3), (1.1, 3), (0.4999, 3), (0.9, 0)])
def test_there_is_no_quantile_out_of_range(p, degrees):
    with pytest.raises(ValueError, match=f"no quantile at {p} with {degrees} degrees"):
        student_t(p, degrees)


@pytest.mark.parametrize(
    ("values", "base"),
    [([1.0, 3.0], [1.0, 1.0001, 1.0002]), ([1.0, 3.0], [2.0, 2.5]), ([3, 4, 5, 9], [2, 3, 2, 2, 3])],
)
@pytest.mark.parametrize("confidence", [0.95, 0.8])
def test_the_interval_of_a_ratio_is_that_of_welch(values, base, confidence):
    """Of scipy: the logarithms' difference, with whole degrees of freedom, at least one."""
    tested = stats.ttest_ind(np.log(values), np.log(base), equal_var=False)
    difference, error = np.log(values).mean() - np.log(base).mean(), tested._standard_error
    half = error * stats.t.ppf((1 + confidence) / 2, max(1, int(tested.df + 1e-9)))
    expected = np.exp([difference, difference - half, difference + half])
    assert ratio_interval(values, base, confidence) == pytest.approx(expected.tolist(), rel=1e-6)


@pytest.mark.parametrize(("ones", "agree"), [(7, True), (8, False)])
def test_averages_differ_by_more_than_twice_what_both_may_be_wrong_by(ones, agree):
    """25 readings of 0, some of 1: the mean is 0.28 or 0.32, the bound 0.294 or 0.305."""
    values = np.zeros(25)
    values[np.linspace(0, 24, ones).astype(int)] = 1
    assert (averages(values).verdict == "agree") == agree
