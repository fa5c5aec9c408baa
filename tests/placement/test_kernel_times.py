"""Rows of every op in every configuration."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, stdev

import pytest

from memtui.placement.configurations import pair_configurations
from memtui.placement.kernel_times import timed_configurations
from memtui.placement.profile import SINGLE, Profile
from tests.support.placement_cases import STATIC_CASE, in_pages
from tests.support.placements import SLOW


@pytest.fixture
def profile() -> Profile:
    profile = in_pages(STATIC_CASE)
    first = profile.samples[0]
    times = (4.0, 1.0, 10.0)
    return replace(profile, samples=(replace(first, time_ns=times, run=(0, 1, 2)), *profile.samples[1:-1]))


def test_every_configuration_is_a_row_measured_or_not(profile: Profile) -> None:
    rows = list(timed_configurations(profile))
    assert [(row.op, row.configuration) for row in rows] == pair_configurations(profile.graph, ("dram", SLOW))
    assert sum(len(row.times) for row in rows) == len(profile.samples) == 2 * len(rows) - 1
    lacking = [row for row in rows if len(row.times) == 1]
    last = in_pages(STATIC_CASE).samples[-1]
    assert [(row.op.name, row.configuration) for row in lacking] == [(last.op, last.configuration)]


def test_times_of_a_row(profile: Profile) -> None:
    first = profile.samples[0]
    rows = {(row.op.name, row.configuration): row for row in timed_configurations(profile)}
    times = rows[first.op, first.configuration].times[SINGLE]
    assert (times.samples, times.median_ns, times.mean_ns, times.least_ns) == (3, 4.0, 5.0, 1.0)
    assert times.spread == pytest.approx(stdev((4, 1, 10)) / fmean((4, 1, 10)))
    others = [
        each for key, row in rows.items() if key != (first.op, first.configuration) for each in row.times.values()
    ]
    assert {each.spread for each in others} == {None}, "a single sample has no spread"
