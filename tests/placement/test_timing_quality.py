"""How far times can be relied upon: what the samples of two configurations prove, and what is doubtful."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtui.placement.profile import Profile
from memtui.placement.timing_agreement import CONSISTENT, NEITHER
from memtui.placement.timing_quality import TimingQuality, all_fast, counted_ns, proven_faster, quality_of
from tests.support.placement_cases import STATIC_CASE
from tests.support.placements import FAST, SLOW, times_of

MODE = "isolated"
OP = "n3"  # it reads two tensors and writes one


def slow_ones(profile: Profile) -> list:
    return [s.configuration for s in profile.samples if s.op == OP and SLOW in s.configuration.pools]


def in_two_modes(profile: Profile, factor: float) -> Profile:
    """Return the profile with times of another mode; ``factor`` of every second of them."""
    others = tuple(
        replace(s, mode="single", time_ns=tuple(ns * (factor if number % 2 else 1) for ns in s.time_ns))
        for number, s in enumerate(profile.samples)
    )
    return Profile(profile.graph, profile.pools, (*profile.samples, *others))


def test_all_fast_has_every_tensor_in_fast_memory():
    assert set(all_fast(STATIC_CASE, OP, SLOW).pools) == {FAST}
    assert len(slow_ones(STATIC_CASE)) == 7


@pytest.mark.parametrize(
    ("slower_by", "spread", "count", "counted"),
    [
        (5, 0, 20, 105), (5, 50, 20, 105), (-5, 50, 20, 100), (-5, 1, 20, 95), (-5, 1, 5, 100), (-40, 50, 20, 60),
        (-5, 1, 6, 95),
    ],
)  # fmt: skip
def test_a_time_below_all_fast_counts_where_samples_prove_it(slower_by, spread, count, counted):
    profile = times_of(STATIC_CASE, slower_by, spread, count)
    base = all_fast(profile, OP, SLOW)
    assert counted_ns(profile, OP, base, SLOW, MODE) == 100
    for configuration in slow_ones(profile):
        assert counted_ns(profile, OP, configuration, SLOW, MODE) == pytest.approx(counted)
        assert proven_faster(profile, OP, configuration, base, MODE) == (counted < 100)
        assert not proven_faster(profile, OP, base, configuration, MODE) or slower_by > 0


def test_what_was_not_measured_has_no_time_and_proves_nothing():
    profile = times_of(STATIC_CASE, -40, 1, 20)
    base, slow = all_fast(profile, OP, SLOW), slow_ones(profile)[0]
    assert counted_ns(profile, OP, slow, SLOW, "single") is None
    assert not proven_faster(profile, OP, slow, base, "single")
    without = Profile(
        profile.graph, profile.pools, tuple(s for s in profile.samples if (s.op, s.configuration) != (OP, base))
    )
    assert not proven_faster(without, OP, slow, base, MODE)
    assert counted_ns(without, OP, slow, SLOW, MODE) == pytest.approx(60)


def test_good_times_have_no_doubts():
    quality = quality_of(times_of(STATIC_CASE, 5, 10, 20), SLOW, MODE)
    assert (quality.mode, quality.least_samples, quality.unproven) == (MODE, 20, 0)
    assert quality.spread == pytest.approx(0.029, abs=0.003)  # uniform over 10 of 105
    assert (quality.verdict, quality.against) == (None, None)
    assert quality.doubts == []
    assert quality.lines() == [f"isolated times: 20 samples or more of each, spread {100 * quality.spread:.1f} %"]
    assert quality.to_dict()["doubts"] == []


def test_the_least_number_of_samples_and_the_unproven_are_counted():
    profile = times_of(STATIC_CASE, -5, 50, 20)
    short = replace(profile.samples[0], time_ns=(100.0,), run=(0,))
    quality = quality_of(Profile(profile.graph, profile.pools, (short, *profile.samples[1:])), SLOW, MODE)
    slow = sum(SLOW in s.configuration.pools for s in profile.samples)
    assert quality.least_samples == 1
    assert quality.unproven == slow
    assert quality.doubts == ["1 samples of some (fewer than 6)"]
    assert quality.lines() == [
        "isolated times are worth little: 1 samples of some (fewer than 6)",
        f"{slow} configurations were faster than all in fast memory without proof, and count as that",
    ]


def test_times_of_other_pools_do_not_count():
    profile = times_of(STATIC_CASE, 5, 10, 20)
    assert quality_of(profile, "another", MODE).least_samples == 20, "all in fast memory is of every pair"
    slow = tuple(s for s in profile.samples if SLOW in s.configuration.pools)
    nothing = quality_of(Profile(profile.graph, profile.pools, slow), "another", MODE)
    assert (nothing.least_samples, nothing.spread, nothing.unproven) == (0, None, 0)


@pytest.mark.parametrize(("factor", "verdict"), [(1, CONSISTENT), (10, NEITHER)])
def test_another_way_of_timing_agrees_or_does_not(factor, verdict):
    profile = in_two_modes(times_of(STATIC_CASE, 5, 1, 20), factor)
    for mode, other in (("isolated", "single"), ("single", "isolated")):
        quality = quality_of(profile, SLOW, mode)
        assert (quality.verdict, quality.against) == (verdict, other)
        doubt = f"compare with {other} says neither times nor order can be relied upon"
        assert (doubt in quality.doubts) == (verdict == NEITHER)
        if verdict == CONSISTENT:
            assert quality.lines()[0].endswith(f"; compare with {other}: consistent")


def test_single_times_are_what_others_are_compared_with():
    isolated = times_of(STATIC_CASE, 5, 1, 20)
    two = in_two_modes(isolated, 10)
    third = tuple(replace(s, mode="simultaneous") for s in two.samples if s.mode == "single")
    profile = Profile(two.graph, two.pools, (*two.samples, *third))
    by_mode = {mode: quality_of(profile, SLOW, mode) for mode in ("simultaneous", "single", "isolated")}
    assert {mode: (quality.against, quality.verdict) for mode, quality in by_mode.items()} == {
        "simultaneous": ("single", CONSISTENT),
        "single": ("isolated", NEITHER),
        "isolated": ("single", NEITHER),
    }


def test_a_wide_spread_is_a_doubt():
    quality = TimingQuality(MODE, 6, 0.2, 0, None, None)
    assert quality.doubts == []
    assert replace(quality, spread=0.21).doubts == ["spread 21.0 % (more than 20.0 %)"]
