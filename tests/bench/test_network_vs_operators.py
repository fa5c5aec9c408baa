"""A network held against its operators: the arithmetic, and once for real on small images."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtui.bench.configuration import make
from memtui.bench.network_vs_operators import by_weight, compose, lines, macs, to_dict
from memtui.bench.plan import BenchWindow
from memtui.bench.result import BenchRow, failed
from memtui.bench.spaces import resnet50_counts
from tests.support.bench_readings import PLAN

NETWORK = make("resnet50", {"size": 64})
COUNTS = {make("conv2d", {"n": 1}): 3, make("relu", {}): 5}
TIMES = {NETWORK: (100.0, 200.0), make("conv2d", {"n": 1}): (20.0, 40.0), make("relu", {}): (4.0, 10.0)}


def rows(energy=True) -> list[BenchRow]:
    """Two rounds on a machine that becomes twice as slow: the sums follow it."""
    return [
        BenchRow(
            configuration,
            PLAN,
            call_ns=1.0,  # of quiet blocks only: a pass of the network has none
            windows=(BenchWindow(0, 1, 1, (ns[n],)),),
            energy_j=ns[n] / 50 if energy else None,
            energy_reason="" if energy else "no RAPL",
        )
        for n in range(2)
        for configuration, ns in TIMES.items()
    ]


def test_sums_and_shares_are_of_the_same_round():
    result = compose(NETWORK, COUNTS, rows())
    assert result.rounds == 2
    assert result.network_ns == 150
    assert result.network_j == pytest.approx(3)
    assert result.drift == pytest.approx(1.0)
    assert result.time["conv2d"].value == 90  # 60 and 120
    assert result.time["conv2d"].ratio == pytest.approx((0.6, 0.6, 0.6))
    assert result.time["all"].value == 125  # 80 and 170
    assert result.time["all"].ratio[0] == pytest.approx((0.80 + 0.85) / 2)
    low, high = result.time["all"].ratio[1:]
    assert high - low == pytest.approx(2 * 12.706 * 0.025, rel=1e-3), "Student's t with 1 degree of freedom"
    assert result.energy["conv2d"].ratio == pytest.approx((0.6, 0.6, 0.6))
    text = "\n".join(lines(result))
    assert "sum of 3 convolutions" in text
    assert "sum of 8 operators" in text
    assert to_dict(result)["time"]["conv2d"]["ratio"] == pytest.approx(0.6)


def test_one_round_has_no_interval():
    result = compose(NETWORK, COUNTS, rows()[:3])
    assert result.time["all"].ratio == (pytest.approx(0.8), None, None)


def test_without_energy_there_is_a_reason_and_no_figure():
    result = compose(NETWORK, COUNTS, rows(energy=False))
    assert (result.energy, result.network_j, result.energy_reason) == (None, None, "no RAPL")
    assert result.time["all"].value == 125
    assert any("energy is unavailable: no RAPL" in text for text in lines(result))


@pytest.mark.parametrize("lost", range(6))
def test_nothing_is_left_out_silently(lost):
    some = rows()
    broken = [*some[:lost], failed(some[lost].configuration, PLAN, "out of memory", "much"), *some[lost + 1 :]]
    assert "out of memory" in compose(NETWORK, COUNTS, broken).reason
    fewer = compose(NETWORK, COUNTS, some[:lost] + some[lost + 1 :])
    assert fewer.reason == "not everything was measured equally often"
    assert fewer.time is None


def test_a_quick_look_sums_what_it_measured_and_says_what_that_is():
    """Of two operators the convolution was measured: it is the only one that multiplies."""
    some = [row for row in rows()[:3] if row.configuration.op != "relu"]
    result = compose(NETWORK, COUNTS, some, partial=True)
    assert result.reason == ""
    every, convolutions = result.covered["all"], result.covered["conv2d"]
    assert (every.operators, every.of_operators, every.calls, every.of_calls) == (1, 2, 3, 8)
    assert every.macs == every.of_macs > 0
    assert convolutions.whole
    assert result.time["all"].value == 60  # 3 calls of 20 ns, and nothing for the other
    text = "\n".join(lines(result))
    assert "sum of 3 of 8 operators" in text
    assert "not measured: 1 of 2 operators (5 calls) with 0.0 % of the MACs" in text
    document = to_dict(result)
    assert document["covered"]["all"]["macs_share"] == 1.0
    assert document["drift"] is None, "one round drifts from nothing"


def test_a_quick_look_without_its_network_is_none():
    without = [row for row in rows() if row.configuration is not NETWORK]
    result = compose(NETWORK, COUNTS, without, partial=True)
    assert result.time is None
    assert lines(result) == ["no comparison: not everything was measured equally often"]


def test_what_the_network_is_stands_in_the_json():
    counts = resnet50_counts()
    document = to_dict(compose(make("resnet50", {}), counts, []))
    assert (document["parameters"], document["convolutions"], document["macs"]) == (25_557_032, 53, 4_089_184_256)


def test_what_weighs_most_comes_first():
    counts = resnet50_counts()
    order = by_weight(counts)
    assert set(order) == set(counts)
    assert len(order) == 48
    half = {c: counts[c] for c in order[:24]}
    assert macs(half) > 0.95 * macs(counts)


def test_energy_that_is_missing_once_is_missing():
    some = rows()
    some[4] = replace(some[4], energy_j=None, energy_reason="the counter was reset")
    result = compose(NETWORK, COUNTS, some)
    assert (result.energy, result.energy_reason) == (None, "the counter was reset")


def test_the_whole_list_is_what_is_measured():
    counts = resnet50_counts(usual={"cache": "warm"})
    assert sum(counts.values()) == 174
    assert {c.conditions["cache"] for c in counts} == {"warm"}
