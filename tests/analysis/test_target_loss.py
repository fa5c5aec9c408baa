"""The share of its time that a program loses, beside sums over single windows."""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memtui.analysis.target_loss import LastPart, budget_cost, last_part, lost_fraction, lost_in_all, recent_loss
from memtui.core.samples import End

WINDOWS = st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 10**10)), min_size=1, max_size=20)
NAN = math.nan


@given(WINDOWS, st.integers(1, 10**10))
@example([(3, 1)], 1)
def test_each_window_is_paid_for_by_the_interval_that_follows_it(windows, next_ns):
    """Windows are (time lost, interval until the next one); the interval before the first one pays for nothing."""
    lost, intervals = zip(*windows, strict=True)
    ends = 7 * 10**15 + np.cumsum([0, *intervals[:-1]])
    share = recent_loss(np.array(lost, float), ends.astype(np.int64), next_ns)
    expected = Fraction(sum(lost), sum(intervals[:-1]) + next_ns)
    assert share == pytest.approx(float(expected), rel=1e-12)


def test_without_a_window_a_cost_or_time_there_is_no_recent_share():
    ends = np.array([10, 20], np.int64)
    assert recent_loss(np.array([1.0, NAN]), ends, 10) is None
    assert recent_loss(np.array([NAN, 1.0]), ends, 10) is None
    assert recent_loss(np.empty(0), ends[:0], 10) is None
    assert recent_loss(np.array([1.0]), ends[:1], 0) is None
    assert recent_loss(np.array([1.0]), ends[:1], -1) is None
    assert recent_loss(np.array([1.0]), ends[:1], 0.5) == 2


def windows(again_ns: float = 50.0):
    """Three, the last of 100 ns; CPU times of sampler and recorder. No two of them have one value of anything."""
    arrays = {
        "start_ns": [-300, -40, 100],
        "end_ns": [-50, 90, 200],
        "sampler_cpu_ns": [2, 10, 20],
        "recorder_cpu_ns": [1, 5, 9],
    }
    return SimpleNamespace(
        **{name: np.array(values) for name, values in arrays.items()},
        set_again_ns=np.array([7, 0, again_ns]),
        next_ns=np.array([NAN, 40.0, 300.0]),
        lost_ns=np.array([60.0, NAN, 40.0]),
    )


def test_after_the_last_window_its_bits_are_set_again():
    assert last_part(windows(), None) == LastPart(), "its recorder was killed"
    assert last_part(windows(), None, alive=True) == LastPart(300, 50.0, None), "the next interval pays"
    assert last_part(windows(), End(200, "stopped")) == LastPart()
    assert last_part(windows(), End(150, "stopped")) == LastPart()
    assert last_part(windows(), End(220, "stopped", "", 23, 10)) == LastPart(20, 10.0, 4.0)
    assert last_part(windows(), End(900, "stopped", "", 23, 10)) == LastPart(700, 50.0, 4.0)
    assert last_part(windows(NAN), End(900, "stopped", "", 23, 10)).lost_ns == 0
    assert last_part(windows(), End(900, "stopped")).cpu_ns is None
    assert last_part(windows(), End(900, "stopped", "", 30)).cpu_ns is None
    assert last_part(windows(), End(900, "stopped", "", 1, 1)).cpu_ns == 0


def test_the_loss_in_all_is_of_the_time_from_the_first_window_to_the_end():
    assert lost_in_all(windows(), LastPart()) == pytest.approx(100 / 500)
    assert lost_in_all(windows(), LastPart(300, 60.0, None)) == pytest.approx(160 / 800)
    unknown = windows()
    unknown.lost_ns[:] = NAN
    assert lost_in_all(unknown, LastPart(300, 60.0)) is None


@pytest.mark.parametrize(
    ("part", "share"), [(LastPart(), 0.4), (LastPart(300, 0.0, 20.0), 0.15), (LastPart(300, 0.0, None), 0.4)]
)
def test_the_cpu_time_after_the_last_window_counts_with_its_length(part, share):
    assert part.cpu_share(40, 100) == pytest.approx(share)


@given(st.lists(st.one_of(st.integers(0, 10**9), st.just(NAN)), max_size=20), st.integers(1, 10**12))
def test_the_share_of_a_session_is_of_windows_whose_loss_is_known(lost, span_ns):
    known = [value for value in lost if not math.isnan(value)]
    share = lost_fraction(np.array(lost, float), span_ns)
    assert share == (pytest.approx(sum(known) / span_ns, rel=1e-12) if known else None)


@pytest.mark.parametrize(("span_ns", "share"), [(0, None), (-1, None), (0.5, 6)])
def test_a_session_without_time_has_no_share(span_ns, share):
    assert lost_fraction(np.array([3.0]), span_ns) == share


@pytest.mark.parametrize(
    ("lost", "cpu", "paused", "cost"),
    [
        (5.0, 3.0, 4.0, 5.0),  # the larger one: the target's loss has the pauses in it
        (1.0, 6.0, 4.0, 2.0),  # a third of memtui's CPU time
        (0.0, 0.0, 4.0, 0.0),
        (None, 3.0, 4.0, 7.0),  # formats before 10
        (None, 3.0, None, 3.0),
        (None, 3.0, 0.0, 3.0),
    ],
)
def test_a_budget_bounds_the_larger_cost_and_in_old_sessions_the_sum(lost, cpu, paused, cost):
    assert budget_cost(lost, cpu, paused) == cost
