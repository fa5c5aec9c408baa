"""Growth of series whose rate is known: leaks with noise and saw-teeth, and programs that do not grow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.memory_growth import LONGEST_S, SHORTEST_S, Growth, growth_of

MIB = 1 << 20


def at(seconds: float, every_s: float = 2.0):
    return np.arange(0.0, seconds + every_s / 2, every_s)


def noise(t_s, mib: float, seed: int):
    return np.random.default_rng(seed).normal(0, mib * MIB, len(t_s))


@given(st.floats(0.01, 1000), st.integers(60, 600), st.integers(0, 1000))
def test_the_rate_of_a_leak_is_known(mib_a_second, seconds, seed):
    t_s = at(seconds)
    growth = growth_of(t_s, 1000 * MIB + t_s * mib_a_second * MIB + noise(t_s, mib_a_second, seed))
    assert growth is not None
    assert growth.bytes_per_s == pytest.approx(mib_a_second * MIB, rel=0.25)
    assert growth.low_bytes_per_s <= growth.bytes_per_s <= growth.high_bytes_per_s


def test_the_interval_has_the_rate_in_most_runs():
    t_s = at(120)
    hits = 0
    for seed in range(200):
        growth = growth_of(t_s, t_s * MIB + noise(t_s, 10, seed))
        hits += growth is not None and growth.low_bytes_per_s <= MIB <= growth.high_bytes_per_s
    assert hits >= 180


def test_a_line_has_no_error():
    t_s = at(100)
    assert growth_of(t_s, 3.0 * MIB * t_s) == Growth(*[pytest.approx(3 * MIB)] * 3, span_s=100.0)


@given(st.integers(0, 10_000))
def test_noise_alone_hardly_ever_grows(seed):
    t_s = at(300)
    assert growth_of(t_s, 1000 * MIB + noise(t_s, 20, seed)) is None


def test_too_little_is_known():
    assert growth_of(np.empty(0), np.empty(0)) is None
    assert growth_of(np.zeros(1), np.zeros(1)) is None
    assert growth_of(np.zeros(20), np.arange(20.0)) is None, "no time passes"
    for seconds, grows in ((SHORTEST_S - 1, False), (SHORTEST_S, True)):
        t_s = at(seconds, 1.0)
        assert (growth_of(1000 + t_s, t_s * MIB) is not None) == grows
    t_s = np.array([0, 1, 2, 97, 98, 100.0])
    assert growth_of(t_s, t_s * MIB) is None, "nothing was read in between"


def test_a_start_does_not_grow():
    """A program that loads its data for half a minute, and then computes."""
    for seconds in range(60, 600, 20):
        t_s = at(seconds)
        assert growth_of(t_s, np.minimum(t_s, 30) * 100 * MIB) is None, seconds


def test_a_start_does_not_hide_the_rate_of_a_leak_in_the_first_minute():
    """A training that is watched from its first instruction: imports for 8 s, then 1.5 MiB/s."""
    t_s = at(60, 0.5)
    used = np.minimum(t_s, 8) * 40 * MIB + t_s * 1.5 * MIB + noise(t_s, 1, 3)
    growth = growth_of(t_s, used)
    assert growth.is_even
    assert growth.bytes_per_s == pytest.approx(1.5 * MIB, rel=0.1)
    assert growth.span_s == pytest.approx(50, abs=1)


def test_steps_up_and_down_are_not_an_even_growth():
    t_s = at(60, 0.5)
    levels = np.array([443, 473, 470, 503, 500, 533, 533]) * MIB
    growth = growth_of(t_s, levels[(t_s // 10).astype(int)].astype(float))
    assert growth is not None
    assert not growth.is_even


def test_a_leak_after_a_start_is_seen():
    t_s = at(240)
    growth = growth_of(t_s, np.minimum(t_s, 30) * 100 * MIB + t_s * MIB)
    assert growth is not None
    assert growth.bytes_per_s == pytest.approx(MIB, rel=0.1)


@pytest.mark.parametrize("period_s", [3, 11, 50, 120])
def test_use_that_rises_and_falls_does_not_grow(period_s):
    for seconds in range(2 * period_s + 10, 600, 7):
        t_s = at(seconds, 1.0)
        assert growth_of(t_s, (t_s % period_s) / period_s * 1000 * MIB) is None, seconds


def test_a_leak_below_such_teeth_is_seen_when_it_rose_by_more_than_they():
    t_s = at(600, 1.0)
    growth = growth_of(t_s, (t_s % 10) / 10 * 200 * MIB + t_s * MIB)
    assert growth is not None
    assert growth.bytes_per_s == pytest.approx(MIB, rel=0.2)
    early = t_s <= 100
    assert growth_of(t_s[early], ((t_s % 10) / 10 * 200 * MIB + t_s * MIB)[early]) is None


def test_growth_that_ended_or_falls_is_none():
    t_s = at(400)
    assert growth_of(t_s, np.minimum(t_s, 250) * MIB) is None
    assert growth_of(t_s, -t_s * MIB) is None


def test_of_a_growth_that_became_faster_the_new_rate_counts():
    t_s = at(600)
    growth = growth_of(t_s, np.maximum(t_s - 430, 0) * 10 * MIB)
    assert growth is not None
    assert growth.bytes_per_s == pytest.approx(10 * MIB, rel=0.1)


def test_what_was_before_the_longest_time_does_not_count_up_to_its_last_reading():
    t_s = at(LONGEST_S + 2)
    falls = np.where(t_s < 2, 10_000.0, 0) * MIB
    assert growth_of(t_s, falls + t_s * MIB).span_s == LONGEST_S
    falls = np.where(t_s <= 2, 10_000.0, 0) * MIB
    assert growth_of(t_s, falls + t_s * MIB) is None, "a reading of just then fell deeper than all that it rose"
    slower = np.maximum(t_s - 302, 0) * MIB  # the first half does not grow
    assert growth_of(t_s, slower).span_s == LONGEST_S / 2


def in_blocks(levels, first: float = 0.0, second: float = 0.0):
    """Twelve readings, ten seconds apart: two in each block, above its level by so much. They begin at 1000 s."""
    return 1000 + np.arange(12) * 10.0, np.repeat(levels, 2) + np.tile([first, second], 6)


def test_the_interval_is_that_of_a_fitted_line():
    levels, times = np.array([0, 12, 18, 31, 42, 50.0]), 5 + np.arange(6) * 20.0
    (slope, _), covariance = np.polyfit(times, levels, 1, cov=True)
    error = 2.776 * covariance[0, 0] ** 0.5  # Student's t, four degrees of freedom
    expected = [pytest.approx(rate, rel=1e-9) for rate in (slope, slope - error, slope + error)]
    assert growth_of(*in_blocks(levels)) == Growth(*expected, span_s=110.0)
    assert growth_of(*(column[1:] for column in in_blocks(levels))) is None, "a block has one reading"


@pytest.mark.parametrize(
    ("levels", "first", "second", "grows"),
    [
        (10, -17.5, 17.5, True),  # it falls by 25 from one block to the next: half of the 50 that it rises
        (10, -17.6, 17.6, False),
        (9, 30, -30, True),  # it falls by 60 in each block, and rises by three quarters of that
        (9, 30.1, -30.1, False),
    ],
)
def test_how_deep_it_may_fall(levels, first, second, grows):
    assert (growth_of(*in_blocks(np.arange(6) * levels, first, second)) is not None) == grows


def test_how_much_slower_it_may_become():
    """At the end it rises by 4 from block to block, half of the 8 of the fitted line."""
    assert growth_of(*in_blocks(np.array([0, 8, 18, 30, 34, 38.0]))) is not None
    assert growth_of(*in_blocks(np.array([0, 8, 18, 30, 34, 37.9]))) is None


def test_a_slow_growth_is_one():
    t_s = at(100)
    assert growth_of(t_s, 0.5 * t_s).bytes_per_s == pytest.approx(0.5)


def test_what_is_long_ago_does_not_count():
    t_s = at(3000)
    falls = np.where(t_s < 1000, 10_000.0, 0) * MIB
    growth = growth_of(t_s, falls + t_s * MIB)
    assert growth is not None
    assert t_s[-1] - 1000 > LONGEST_S


@given(st.integers(0, 10_000), st.floats(3.0, 12.0), st.integers(60, 400))
def test_a_short_deep_saw_tooth_grows_where_its_line_does(seed, period_s, seconds):
    """It falls by more than half of what the line rises, in every block, as where a buffer is filled and freed."""
    t_s = at(seconds)
    t_s = t_s + np.random.default_rng(seed).uniform(0, 0.2, len(t_s))
    saw = 80 * (t_s / period_s % 1)
    rises_mib = 2.0 * seconds
    growth = growth_of(t_s, (saw + rises_mib * t_s / seconds) * MIB)
    if rises_mib >= 160:
        assert growth is None or growth.bytes_per_s == pytest.approx(2 * MIB, rel=0.35)
    assert growth_of(t_s, saw * MIB) is None, "without a line it does not"
