"""A CPU whose speed changes, and what is left of that in the time of a call."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.bench.configuration import make
from memtui.bench.cpu_speed import SMOOTHED, References, Yardstick, scaled_to_reference, share_that_follows
from memtui.bench.plan import BenchPlan, BenchWindow
from memtui.bench.result import Conditions, Series, Visit, evaluate
from memtui.bench.text import remarks

CONFIGURATION = make("linear", {"m": 10, "in": 100, "out": 50})
PLAN = BenchPlan(windows=5, seconds=1.0)


def blocks(speeds, share, seed=0, noise=0.02):
    """(block_ns, yard_ns) of 40 blocks at each speed; both readings are noisy."""
    chance = np.random.default_rng(seed)
    speed = np.repeat(np.asarray(speeds, float), 40)
    yards = 38_000 / speed * np.exp(chance.normal(0, noise, len(speed)))
    return 1e6 / speed**share * np.exp(chance.normal(0, noise / 2, len(speed))), yards


def row(speeds, share, seed=0, reference_ns=38_000.0):
    block_ns, yard_ns = blocks(speeds, share, seed)
    windows = tuple(
        BenchWindow(n, n + 1, 1, tuple(b), None, 0, tuple(y))
        for n, (b, y) in enumerate(zip(np.array_split(block_ns, 5), np.array_split(yard_ns, 5), strict=True))
    )
    limit_ns = 1.08 * float(np.percentile(yard_ns, 2))
    return evaluate(
        CONFIGURATION, PLAN, Visit(windows, Series(), Conditions(yard_limit_ns=limit_ns, reference_ns=reference_ns))
    )


@given(st.floats(0, 1), st.integers(0, 1000))
def test_the_share_that_follows_is_found(share, seed):
    result = share_that_follows(*blocks([0.94, 1.0, 1.06, 0.97, 1.03], share, seed))
    assert result == pytest.approx(share, abs=0.15)


@given(st.integers(0, 1000), st.integers(0, 2 * SMOOTHED))
def test_of_a_steady_cpu_and_of_few_blocks_nothing_is_said(seed, few):
    for noise in (0.002, 0.02):
        # In two of these thousand, chance looks like a change of speed; nothing follows it.
        assert share_that_follows(*blocks([1.0] * 5, 0.5, seed, noise)) in (None, 0.0)
    block_ns, yard_ns = blocks([0.9, 1.1], 0.5, seed)
    assert share_that_follows(block_ns[:few], yard_ns[:few]) is None
    assert (scaled_to_reference(block_ns, yard_ns, 30_000.0, None) == block_ns).all()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_rows_of_a_fast_and_of_a_slow_minute_agree(share):
    fast, slow = row([1.1, 1.06, 1.08], share, 1), row([0.92, 0.9, 0.94], share, 2)
    assert fast.call_ns == pytest.approx(slow.call_ns, rel=0.02)
    assert fast.call_ns == pytest.approx(1e6, rel=0.02)
    assert fast.measured_ns == pytest.approx(1e6 / 1.08**share, rel=0.02)
    assert (fast.speed, slow.speed) == pytest.approx((1.09, 0.93), abs=0.02)
    assert fast.low_ns < fast.call_ns < fast.high_ns
    lines = [word for word in remarks(fast) if word.startswith("measured ")]
    assert ["of its reference speed" in word for word in lines] == [True]


def test_a_reference_that_no_clock_explains_is_flagged():
    assert row([1.0, 1.05, 0.95], 1.0, reference_ns=38_000.0).flags == ()
    assert row([1.0, 1.05, 0.95], 1.0, reference_ns=57_000.0).flags == ("off_speed",)


def test_a_steady_row_far_from_the_reference_is_flagged_and_left_as_it_was():
    block_ns, yard_ns = blocks([0.8] * 5, 1.0, noise=0.002)
    window = BenchWindow(0, 1, 1, tuple(block_ns), None, 0, tuple(yard_ns))
    conditions = Conditions(yard_limit_ns=60_000.0, reference_ns=38_000.0)
    result = evaluate(CONFIGURATION, PLAN, Visit((window,), Series(), conditions))
    assert result.flags == ("off_speed",)
    assert result.call_ns == result.measured_ns == pytest.approx(1.25e6, rel=0.01)
    near = evaluate(CONFIGURATION, PLAN, Visit((window,), Series(), replace(conditions, reference_ns=47_000.0)))
    assert near.flags == ()


def test_the_reference_is_that_of_the_first_sweep(tmp_path):
    path = tmp_path / "state" / "speed.json"
    assert References(path).of("a", 38_000.0) == 38_000
    again = References(path)
    assert (again.of("a", 50_000.0), again.of("b", 1.0)) == (38_000, 1)
    assert path.stat().st_mode & 0o777 == 0o600
    for damaged in ("", "[]", "7", json.dumps({"a": "x"}), json.dumps({"a": -1})):
        path.write_text(damaged)
        assert References(path).of("a", 4.0) == 4
    assert References(tmp_path / "state" / "speed.json" / "no").of("a", 5.0) == 5
    assert References(None).of("a", 6.0) == 6


def test_a_load_without_an_undisturbed_reading_gives_no_reference(tmp_path):
    """A median of nothing is not a number, which the file of references kept but could not give back."""
    torch = pytest.importorskip("torch")
    yardstick = Yardstick(torch, 1)
    times = iter([1_000] * 100 + [1_500] * 50)
    yardstick._read = lambda: next(times)
    for _ in range(100):
        yardstick.read()
    assert yardstick.usual_ns() == 1_000
    yardstick.start_load()
    for _ in range(50):
        yardstick.read()
    assert yardstick.usual_ns() is None
    path = tmp_path / "speed.json"
    references = References(path)
    assert references.of("a", None) is None
    assert not path.exists()
    assert references.of("a", 7.0) == 7
    assert References(path).of("a", None) == 7
