"""Energy from a counter and from a sensor, against loads whose energy is known in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.energy import NS, Energy, agreement, edges, from_counter, from_power, tick_ns
from tests.support.recordings import recording

MS = 1_000_000


@dataclass(frozen=True)
class Load:
    """Power over time: a plateau, a ramp that ends in one, or bursts."""

    kind: str
    watts: float = 250.0
    low: float = 60.0
    ramp_s: float = 1.0
    period_s: float = 0.3

    def energy_j(self, t_s):
        """Drawn since 0."""
        t = np.asarray(t_s, float)
        if self.kind == "plateau":
            return self.watts * t
        if self.kind == "ramp":
            on = np.minimum(t, self.ramp_s)
            return self.low * on + (self.watts - self.low) * on**2 / (2 * self.ramp_s) + self.watts * (t - on)
        whole, part = np.divmod(t, self.period_s)
        high = np.minimum(part, 0.6 * self.period_s)
        each = (0.6 * self.watts + 0.4 * self.low) * self.period_s
        return whole * each + self.watts * high + self.low * (part - high)

    def power_w(self, t_s):
        step = 1e-6
        return (self.energy_j(np.asarray(t_s) + step) - self.energy_j(np.asarray(t_s) - step)) / (2 * step)


def polled(load: Load, tick_s: float, phase_s: float, until_s: float, seed: int = 0):
    """A counter in millijoules that is brought up to date every tick, read every half to whole millisecond."""
    t = np.cumsum(np.random.default_rng(seed).uniform(0.5e-3, 1e-3, int(until_s / 0.5e-3)))
    t = t[t < until_s]
    updated = np.maximum(np.floor((t - phase_s) / tick_s) * tick_s + phase_s, 0)
    return (t * NS).astype(np.int64), np.floor(load.energy_j(updated) * 1e3) / 1e3


def off(found: Energy, load: Load) -> float:
    """Relative error against the energy that was really drawn in the measured stretch."""
    assert found.energy_j is not None, found.reason
    true = load.energy_j(found.end_ns / NS) - load.energy_j(found.start_ns / NS)
    return abs(found.energy_j / float(true) - 1)


@given(
    st.sampled_from([("plateau", 0.005), ("ramp", 0.01), ("bursts", 0.01)]),
    st.floats(0.02, 0.1),
    st.floats(0, 1),
    st.floats(0.5, 5),
    st.floats(0.2, 0.9),
)
@settings(max_examples=60, deadline=None)
def test_a_window_on_the_counters_own_edges_is_right(kind, tick_s, phase, window_s, begin_s):
    load, tolerance = Load(kind[0]), kind[1]
    t, e = polled(load, tick_s, phase * tick_s, begin_s + window_s + 0.3)
    energy = from_counter(t, e, int(begin_s * NS), int((begin_s + window_s) * NS))
    assert off(energy, load) <= tolerance
    assert energy.start_ns >= begin_s * NS
    assert energy.end_ns - (begin_s + window_s) * NS <= (tick_s + 0.002) * NS
    assert tick_ns(t, e) == pytest.approx(tick_s * NS, abs=1.1 * MS)


def test_the_naive_window_is_not():
    """Half a second on a counter of 100 ms, read at its begin and end: wrong by up to a fifth."""
    load = Load("plateau")
    t, e = polled(load, 0.1, 0.03, 2.0)
    worst = 0.0
    for begin_s in np.arange(0.3, 0.5, 0.01):
        here = np.searchsorted(t, [begin_s * NS, (begin_s + 0.55) * NS])
        naive = e[here[1]] - e[here[0]]
        worst = max(worst, abs(naive / (load.watts * 0.55) - 1))
        assert off(from_counter(t, e, int(begin_s * NS), int((begin_s + 0.55) * NS)), load) <= 0.005
    assert worst > 0.05


def test_constant_power_is_no_reason_for_0_j():
    """A sensor that never changes has no edges, and an integral all the same."""
    t = np.arange(0, 3 * NS, 50 * MS)
    energy = from_power(t, np.full(len(t), 300.0), NS, 2 * NS)
    assert energy.energy_j == pytest.approx(300)
    assert energy.power_w == pytest.approx(300)


@given(st.sampled_from(["plateau", "ramp"]), st.floats(0.5, 5))
@settings(max_examples=30, deadline=None)
def test_the_integral_of_a_sensor_is_right(kind, window_s):
    load = Load(kind)
    t = np.arange(0.001, window_s + 1, 0.02)
    energy = from_power((t * NS).astype(np.int64), load.power_w(t), int(0.3 * NS), int((0.3 + window_s) * NS))
    assert off(energy, load) <= 0.01


def test_a_reset_is_no_measurement():
    t, e = polled(Load("plateau"), 0.05, 0, 3)
    e[len(e) // 2 :] -= 100
    energy = from_counter(t, e, NS // 2, 2 * NS)
    assert (energy.energy_j, energy.power_w) == (None, None)
    assert "reset" in energy.reason


def test_a_counter_that_stands_still_is_not_0_j():
    t = np.arange(0, NS, MS)
    energy = from_counter(t, np.full(len(t), 5.0), 0, NS // 2)
    assert (energy.energy_j, energy.reason) == (None, "the energy counter did not change")


def test_a_counter_that_was_not_read_long_enough_says_so():
    t, e = polled(Load("plateau"), 0.1, 0, 1.05)
    energy = from_counter(t, e, NS // 2, int(1.04 * NS))
    assert (energy.energy_j, energy.reason) == (None, "the energy counter was not read until its next step")


def test_a_reset_right_at_either_end_of_the_window_is_seen_and_one_after_it_is_not():
    t = np.arange(6) * NS
    for falls, known in ((2, False), (3, False), (4, True)):
        e = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 2.5]) + 10
        e[falls:] -= 5
        energy = from_counter(t, e, NS, 3 * NS)
        assert (energy.energy_j is not None) == known, falls
        assert energy.reason == ("" if known else "the energy counter went back: it was reset")


def test_steps_of_less_than_a_joule_are_no_reset():
    t, e = np.arange(6) * NS, np.arange(6) * 0.25
    assert from_counter(t, e, NS, 3 * NS) == Energy(NS, 3 * NS, 0.5, steps=2)


def test_a_counter_or_a_sensor_of_no_power_does_not_work():
    """Below the watt it may be right: a small board that sleeps."""
    t = np.arange(6) * NS
    for watts, works in ((0.0, False), (-1.0, False), (0.5, True), (1.0, True)):
        energy = from_power(t, np.full(6, watts), NS, 3 * NS)
        assert energy.energy_j == (2 * watts if works else None)
        assert energy.reason == ("" if works else "no energy was drawn: the sensor does not work")
        assert (energy.start_ns, energy.end_ns) == (NS, 3 * NS)


def test_the_time_between_steps_needs_two_of_them():
    for count, tick in ((1, None), (2, None), (3, 1e9), (4, 1e9)):
        assert tick_ns(np.arange(count) * NS, np.arange(count) * 2.0) == tick
    assert tick_ns([0, NS, 3 * NS], [1.0, 2.0, 2.5]) == 2e9


def test_readings_may_be_plain_lists():
    """Of any numbers: times are 64-bit integers, so that of long after the epoch no ns is lost, and values floats."""
    t_ns = 1_790_000_000_000_000_001
    times, values = edges([t_ns, t_ns + 1, t_ns + 3], [1, 2, 3])
    assert (times.dtype, values.dtype) == (np.int64, np.float64)
    assert times.tolist() == [t_ns + 1, t_ns + 3]
    assert edges(np.array([0.0, 1.0]), [0, 1])[0].dtype == np.int64
    energy = from_power([0, NS, 2 * NS], [True, 2, None], 0, 2 * NS)
    assert (energy.energy_j, energy.steps) == (3.5, 2)
    assert from_power(np.array([0.5, 1.5]), [1.0, 1.0], 1, 2).steps == 1, "whole nanoseconds"


def test_a_window_between_two_steps_of_the_counter_has_no_energy():
    """Both borders would be moved to the same step, and no time lies between it and itself."""
    t, e = np.array([0, 100, 200, 300]) * MS, np.array([0.0, 10.0, 20.0, 30.0])
    energy = from_counter(t, e, 110 * MS, 150 * MS)
    assert (energy.energy_j, energy.power_w, energy.reason) == (None, None, "the energy counter did not change")
    assert from_counter(t, e, 190 * MS, 110 * MS).energy_j is None, "a window that ends before it begins"


def test_a_step_on_the_border_of_a_window_is_its_border():
    t, e = np.array([0, 100, 200, 300, 400]) * MS, np.array([0.0, 10.0, 30.0, 60.0, 100.0])
    assert from_counter(t, e, 100 * MS, 300 * MS) == Energy(100 * MS, 300 * MS, 50.0, steps=2)
    assert from_counter(t, e, 100 * MS + 1, 300 * MS + 1) == Energy(200 * MS, 400 * MS, 70.0, steps=2)


def test_readings_on_the_borders_of_a_window_belong_to_it():
    """Of a power that rises evenly. Without either reading the one beside it would be held to the border."""
    t, p = np.array([0, 1, 2, 3]) * NS, np.array([100.0, 200.0, 300.0, 400.0])
    assert from_power(t, p, 0, 3 * NS) == Energy(0, 3 * NS, 750.0, steps=4)
    assert from_power(t, p, NS, 2 * NS) == Energy(NS, 2 * NS, 250.0, steps=2)
    assert from_power(t, p, NS + 1, 3 * NS - 1).steps == 1
    assert from_power(t, p, NS, NS).energy_j is None


def test_readings_that_failed_are_left_out():
    load = Load("plateau")
    t, e = polled(load, 0.05, 0, 3)
    e[np.random.default_rng(1).random(len(e)) < 0.2] = np.nan
    assert off(from_counter(t, e, NS // 2, 2 * NS), load) <= 0.005
    assert np.isfinite(edges(t, e)[1]).all()
    assert from_power(t, np.full(len(t), np.nan), 0, NS).reason == "no reading of the power in this time"


def test_more_than_the_board_can_draw_is_no_measurement():
    t, e = polled(Load("plateau", watts=500), 0.05, 0, 3)
    assert from_counter(t, e, NS, 2 * NS, limit_w=450).energy_j is not None
    assert from_counter(t, e, NS, 2 * NS, limit_w=400).reason == "500 W is more than a limit of 400 W lets"
    t = np.arange(4) * NS
    for limit_w, known in ((100.0, True), (99.9, False), (None, True)):
        assert (from_power(t, np.full(4, 120.0), NS, 2 * NS, limit_w).energy_j is not None) == known


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (1.0, "ok"), (0.975, "ok"), (1.029, "ok"), (0.971, "ok"), (1.031, "note"), (0.969, "note"), (1.06, "note"),
        (1.099, "note"), (0.901, "note"), (1.101, "sensor_disagreement"), (0.899, "sensor_disagreement"),
        (327 / 187, "sensor_disagreement"),
    ],
)  # fmt: skip
def test_two_sensors_are_held_against_each_other_and_never_blended(ratio, verdict):
    counter, integral = Energy(0, NS, 187.0), Energy(0, 2 * NS, 2 * 187.0 * ratio)
    result = agreement(counter, integral)
    assert (round(result.ratio, 6), result.verdict) == (round(ratio, 6), verdict)
    assert agreement(Energy(0, NS, None, "absent"), integral) is None


def test_the_counter_and_the_sensor_of_a_real_gpu_agree():
    """An H200 under steady load: its counter moves every 100 ms, and its sensor sees a quarter of the time."""
    t_ns, energy_j, power_w = (np.array(column) for column in zip(*recording("nvml")["steady"], strict=True))
    start, end = int(t_ns[0]) + 200 * MS, int(t_ns[-1]) - 200 * MS
    counted = from_counter(t_ns, energy_j, start, end)
    integrated = from_power(t_ns, power_w, start, end)
    assert tick_ns(t_ns, energy_j) == pytest.approx(100 * MS, abs=12 * MS)  # polled every 24 ms here
    assert counted.power_w == pytest.approx(integrated.power_w, rel=0.01)
    assert 600 < counted.power_w < 700, "the board's limit is 700 W"
