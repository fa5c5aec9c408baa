"""What the windows of a configuration amount to, on loads whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memtui.bench.result import INTEGRATED, MEASURED, UNAVAILABLE, Conditions, Series, Visit, evaluate, failed, joined
from tests.support.bench_readings import CONFIGURATION, MS, PLAN, S, series, windows


def test_time_is_the_median_of_blocks_with_an_interval_over_windows():
    result = windows((1.0e6, 1.1e6, 1.2e6))
    result[2] = replace(result[2], block_ns=(9e6, *result[2].block_ns[1:]))  # a hiccup does not move it
    row = evaluate(CONFIGURATION, PLAN, Visit(tuple(result), Series(reason="none here"), Conditions()))
    assert row.call_ns == 1.1e6
    assert row.mean_ns == pytest.approx(np.mean([w.call_ns for w in result]))
    # Student's t with 2 degrees of freedom: 4.303 standard errors of three medians.
    expected = 4.303 * np.std([1.0e6, 1.1e6, 1.2e6], ddof=1) / np.sqrt(3)
    assert row.high_ns - 1.1e6 == 1.1e6 - row.low_ns == pytest.approx(expected, rel=1e-3)
    assert row.half_width == pytest.approx(expected / 1.1e6, rel=1e-3)
    assert row.tflops == pytest.approx(2 * 10 * 100 * 50 / 1.1e6 / 1e3)
    assert row.gb_per_s == pytest.approx(4 * (1000 + 5000 + 50 + 500) / 1.1e6)


def test_no_source_is_no_energy_and_says_why():
    row = evaluate(CONFIGURATION, PLAN, Visit(windows(), Series(reason="no RAPL zone"), Conditions()), assumed_w=95.0)
    assert (row.energy_status, row.energy_j, row.power_w) == (UNAVAILABLE, None, None)
    assert row.energy_reason == "no RAPL zone"
    assert row.estimate_j == pytest.approx(95e-3)
    assert "95 W" in row.estimate_model
    assert evaluate(CONFIGURATION, PLAN, Visit(windows(), Series(), Conditions())).estimate_j is None


def test_two_visits_are_one_row():
    """The counter went on between them, and whatever spoils one of them spoils the row."""
    result, all_of_it = windows((1.0e6, 1.1e6, 1.2e6)), series(lambda t: 250.0, idle_w=60.0)
    cut = int(np.searchsorted(all_of_it.t_ns, result[1].end_ns + 200 * MS))
    sides = [
        replace(all_of_it, **{name: getattr(all_of_it, name)[part] for name in ("t_ns", "energy_j", "power_w")})
        for part in (slice(cut), slice(cut, None))
    ]
    whole = evaluate(CONFIGURATION, PLAN, Visit(tuple(result), all_of_it, Conditions()))
    first = Visit(tuple(result[:2]), sides[0], Conditions(yard_limit_ns=50.0), 100, 3)
    second = Visit(tuple(result[2:]), sides[1], Conditions(False, 0.5, ("neighbours",), yard_limit_ns=40.0), 100, 3)
    both = joined([first, second])
    assert joined([first]) is first
    assert both.conditions == Conditions(False, 0.5, ("neighbours",), yard_limit_ns=40.0)
    row = evaluate(CONFIGURATION, PLAN, replace(both, conditions=Conditions()))
    assert (row.call_ns, row.low_ns, row.high_ns) == (whole.call_ns, whole.low_ns, whole.high_ns)
    assert row.energy_j == pytest.approx(whole.energy_j, rel=1e-9)
    assert (row.walked_bytes, row.copies) == (100, 3)


@pytest.mark.parametrize("tick_ns", [20 * MS, 50 * MS, 100 * MS])
def test_energy_by_the_counter(tick_ns):
    row = evaluate(CONFIGURATION, PLAN, Visit(windows(), series(lambda t: 250.0, tick_ns, idle_w=60.0), Conditions()))
    assert row.energy_status == MEASURED
    assert row.energy_j == pytest.approx(0.250, rel=0.005)
    assert row.above_idle_j == pytest.approx(0.190, rel=0.005)
    assert row.power_w == pytest.approx(250, rel=0.005)
    assert row.energy_low_j <= row.energy_j <= row.energy_high_j
    assert (row.power_3s_w, row.power_median_w, row.power_verdict) == (250, 250, "agree")
    assert row.flags == ()


def test_without_a_counter_the_sensor_is_integrated():
    row = evaluate(CONFIGURATION, PLAN, Visit(windows(), series(lambda t: 250.0, counter=False), Conditions()))
    assert (row.energy_status, row.energy_reason) == (INTEGRATED, "the energy counter did not change")
    assert row.energy_j == pytest.approx(0.250, rel=0.005)


def test_a_counter_that_was_reset_gives_no_measured_energy():
    result = series(lambda t: 250.0, sensor=False)
    back = result.energy_j.copy()
    back[result.t_ns > 10.5 * S] -= 300
    row = evaluate(CONFIGURATION, PLAN, Visit(windows(), replace(result, energy_j=back), Conditions()))
    assert (row.energy_status, row.energy_j) == (UNAVAILABLE, None)
    assert "reset" in row.energy_reason


def test_two_sensors_that_disagree_are_flagged_and_not_blended():
    result = series(lambda t: 250.0)
    row = evaluate(CONFIGURATION, PLAN, Visit(windows(), replace(result, power_w=result.power_w * 0.8), Conditions()))
    assert "sensor_disagreement" in row.flags
    assert row.energy_j == pytest.approx(0.250, rel=0.005)


def test_bursts_are_two_levels_and_energy_is_the_mean():
    def bursts(t):
        return 300.0 if t % 0.1 < 0.06 else 120.0

    row = evaluate(CONFIGURATION, PLAN, Visit(windows(), series(bursts), Conditions()))
    assert row.energy_j == pytest.approx(0.228, rel=0.01)
    assert row.power_median_w == 300
    assert "power_two_levels" in row.flags


def test_more_than_the_board_allows_is_not_believed():
    row = evaluate(CONFIGURATION, PLAN, Visit(windows(), series(lambda t: 900.0, limit_w=300.0), Conditions()))
    assert (row.energy_status, row.energy_j) == (UNAVAILABLE, None)
    assert "more than a limit of 300 W" in row.energy_reason


@pytest.mark.parametrize(
    ("call_ns", "conditions", "flag"),
    [
        ((1e6, 1e6, 1e6), Conditions(settled=False), "not_settled"),
        ((1e6, 1.2e6, 1.4e6), Conditions(), "wide_interval"),
        ((1e6, 1e6, 1e6), Conditions(launch_share=0.97), "launch_bound"),
        ((1e6, 1e6, 1e6), Conditions(stolen=0.1), "stolen_time"),
        ((1e6, 1e6, 1e6), Conditions(flags=("throttled",)), "throttled"),
    ],
)
def test_flags(call_ns, conditions, flag):
    row = evaluate(CONFIGURATION, PLAN, Visit(windows(call_ns), Series(), conditions))
    assert flag in row.flags


def test_what_is_quiet_has_no_flag():
    assert evaluate(CONFIGURATION, PLAN, Visit(windows(), Series(), Conditions(launch_share=0.6))).flags == ()


def test_blocks_that_vary_are_flagged():
    result = [replace(w, block_ns=(1e6, 1.4e6) * 25) for w in windows()]
    assert evaluate(CONFIGURATION, PLAN, Visit(tuple(result), Series(), Conditions())).flags == ("noisy",)


def test_one_window_has_no_interval():
    row = evaluate(CONFIGURATION, PLAN, Visit(windows((1e6,)), series(lambda t: 250.0), Conditions()))
    assert (row.low_ns, row.high_ns, row.half_width, row.energy_low_j) == (None, None, None, None)
    assert row.mean_ns == 1e6


def test_a_failed_row_has_no_figure():
    row = failed(CONFIGURATION, PLAN, "out of memory", "it takes 3 bytes, and 2 are free")
    assert (row.status, row.call_ns, row.energy_j, row.tflops, row.gb_per_s) == ("failed", None, None, None, None)
    assert row.flags == ("out_of_memory",)
    assert row.reason == "out of memory: it takes 3 bytes, and 2 are free"
