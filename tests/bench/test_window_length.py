"""How long a window has to be, on rows whose precision is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtui.analysis.energy import Energy
from memtui.bench.configuration import make
from memtui.bench.plan import BenchPlan, BenchWindow
from memtui.bench.result import INTEGRATED, MEASURED, BenchRow, WindowEnergy, failed
from memtui.bench.window_length import lines, shortest, study, to_dict

CONFIGURATION = make("relu", {})
S = 10**9


def row(seconds: float, factors=(1.0, 1.0, 1.0), watts=None) -> BenchRow:
    plan = BenchPlan(windows=len(factors), seconds=seconds)
    windows = tuple(BenchWindow(0, round(1e6 * f * 1000), 1000, (1e6 * f,)) for f in factors)
    result = BenchRow(CONFIGURATION, plan, windows=windows)
    if watts is None:
        return result
    nothing = Energy(0, S, None, "no counter")
    energies = tuple(WindowEnergy(Energy(0, S, w), nothing) for w in watts)
    return replace(result, energies=energies, energy_status=MEASURED, energy_j=1.0)


def test_error_and_interval_against_the_longest():
    points = study([row(20.0), row(0.1, (1.02, 1.04, 1.06)), row(1.0, (1.001, 0.999, 1.0))])
    assert [p.seconds for p in points] == [0.1, 1.0, 20.0]
    assert points[0].time.error == pytest.approx(0.04)
    assert points[0].time.spread == pytest.approx(0.02 / 1.04)
    assert points[0].time.half_width == pytest.approx(4.303 * 0.02 / 3**0.5 / 1.04, rel=1e-3)
    assert not points[0].time.enough
    assert points[1].time.enough
    assert shortest(points, "time") == 1.0
    assert shortest(points, "energy") is None
    assert points[0].energy is None


def test_a_short_window_that_happens_to_be_right_is_not_enough():
    points = study([row(0.05), row(0.1, (1.1, 1.2, 1.3)), row(1.0), row(20.0)])
    assert shortest(points, "time") == 1.0


def test_energy():
    points = study(
        [row(0.1, watts=(200.0, 250.0, 300.0)), row(2.0, watts=(249.0, 250.0, 251.0)), row(20.0, watts=(250.0,) * 3)]
    )
    assert shortest(points, "energy") == 2.0
    assert points[0].energy.spread == pytest.approx(0.2)
    document = to_dict(points)
    assert document["shortest_s"] == {"time": 0.1, "energy": 2.0}
    assert document["points"][0]["energy"]["error"] == pytest.approx(0)
    assert any("energy: 1 % is reached from 2 s on" in text for text in lines(points))


def test_the_sensor_where_there_is_no_counter():
    one = row(20.0, watts=(250.0,) * 3)
    swapped = tuple(WindowEnergy(e.integral, e.counter) for e in one.energies)
    points = study([replace(one, energies=swapped, energy_status=INTEGRATED)])
    assert points[0].energy.error == pytest.approx(0)


def test_nothing_measured_is_nothing():
    assert study([failed(CONFIGURATION, BenchPlan(), "out of memory", "")]) == []
    assert shortest([], "time") is None
