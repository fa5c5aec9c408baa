"""The verdict on two ways of timing."""

from __future__ import annotations

import math
import random

import pytest

from memtui.placement.graph import Configuration
from memtui.placement.presenter import verdict
from memtui.placement.profile import Pool, Profile, Samples
from memtui.placement.slowdown import cells, effects
from memtui.placement.timing_agreement import CONSISTENT, NEITHER, NOTHING, RANKING, compare, pearson
from tests.support.placements import SLOW, graph_of, profile_of, slow_pool

FIRST, SECOND = "simultaneous", "single"


def profile(pairs: list[tuple[list[float], list[float]]], resolution_ns: float = 0.0) -> Profile:
    """An op for each pair of sample lists."""
    graph = graph_of({f"n{number}": ("x", f"y{number}") for number in range(len(pairs))}, {})
    configuration = Configuration(("dram",), ("dram",))
    samples = [
        Samples(f"n{number}", configuration, mode, tuple(times), (*range(len(times)),))
        for number, pair in enumerate(pairs)
        for mode, times in zip((FIRST, SECOND), pair, strict=True)
    ]
    return Profile(graph, (Pool("dram"),), tuple(samples), resolution_ns)


def test_means_and_ratio() -> None:
    (pair,) = compare(profile([([2.0, 4.0], [1.0, 3.0])]), FIRST, SECOND).pairs
    assert (pair.first_ns, pair.second_ns, pair.ratio) == (3, 2, 1.5)
    assert pair.first_spread == pytest.approx(math.sqrt(2) / 3)


def test_four_fifths_within_a_fifth_are_consistent() -> None:
    assert compare(profile([([1.2], [1.0])] * 8 + [([3.0], [1.0])] * 2), FIRST, SECOND).verdict == CONSISTENT
    below = compare(profile([([1.2 * n], [1.0 * n]) for n in range(1, 8)] + [([30.0], [1.0])] * 3), FIRST, SECOND)
    assert below.within(0.2) == 0.7
    assert below.verdict == NEITHER


def test_times_that_differ_but_keep_their_order() -> None:
    """As the notebook's: half of the ratios within a fifth, the logarithms correlated."""
    chance = random.Random(1)
    pairs = [
        ([base * chance.choice((1.05, 1.1, 1.5, 2.0))], [base])
        for base in (10.0**n for n in range(1, 7))
        for _ in "1234"
    ]
    comparison = compare(profile(pairs), FIRST, SECOND)
    assert 0.3 < (comparison.within(0.2) or 0) < 0.8
    assert (comparison.correlation or 0) > 0.97
    assert comparison.verdict == RANKING


def test_some_of_the_notebooks_figures() -> None:
    """Those of its printed pairs that are whole in the excerpt of convolutions, in microseconds."""
    pairs = [
        (820.5, 746.3), (204.1, 198.1), (198.1, 192.3), (791.5, 762.7), (163.3, 154.5), (322.3, 231.5),
        (1635.6, 1413.1), (383.1, 327.0), (2381.3, 1450.4), (1275.2, 219.1), (1085.9, 202.4), (384.2, 230.0),
        (1477.6, 1458.5),
    ]  # fmt: skip
    comparison = compare(profile([([a * 1e3], [b * 1e3]) for a, b in pairs], 1000.0), FIRST, SECOND)
    assert 0.5 <= (comparison.within(0.2) or 0) < 0.8
    assert comparison.correlation == pytest.approx(0.766, abs=0.001)
    assert comparison.verdict == NEITHER
    assert [round(p.ratio or 0, 1) for p in comparison.outliers] == [5.8, 5.4]


def test_what_the_clock_hardly_sees_is_listed_and_not_judged() -> None:
    comparison = compare(profile([([500.0], [50.0]), ([100.0], [100.0]), ([0.0], [0.0])], 10.0), FIRST, SECOND)
    assert [pair.judged for pair in comparison.pairs] == [False, True, False]
    assert comparison.verdict == CONSISTENT
    assert comparison.pairs[2].ratio is None
    assert compare(profile([([5.0], [5.0])], 10.0), FIRST, SECOND).verdict == NOTHING


def test_spread_of_each_way() -> None:
    comparison = compare(profile([([9.0, 11.0], [10.0, 10.0]), ([5.0, 15.0], [10.0])]), FIRST, SECOND)
    middle, small = comparison.spread("first") or (0, 0)
    assert middle == pytest.approx((math.sqrt(2) / 10 + math.sqrt(50) / 10) / 2)
    assert small == 0.5
    assert comparison.spread("second") == (0, 1)


def test_pairs_that_one_way_has_alone_are_counted() -> None:
    measured = profile([([1.0], [1.0]), ([1.0], [])])
    assert compare(measured, FIRST, SECOND).unmatched == 1


def test_correlation() -> None:
    assert pearson([(0, 1), (1, 3), (2, 5)]) == 1
    assert pearson([(0, 1), (1, -1)]) == -1
    assert pearson([(0, 1), (1, 1)]) is None


def test_slow_down_of_a_configuration_and_of_outputs_and_inputs() -> None:
    graph = graph_of({"a": ("x", "t"), "b": ("t", "y")}, {"t": 4})
    measured = profile_of(graph, {"t": 1}, {"t": 40}, slow_pool(1, 1))
    assert [cell.ratio for cell in cells(measured, graph.ops[0], SLOW, "isolated")] == [1, 5]
    slowdown = effects(measured, SLOW, "isolated")
    assert (slowdown["output"].median, slowdown["output"].ops) == (5, 1)
    assert slowdown["input"].worst == pytest.approx(1.1)


def test_the_screen_says_in_words_that_they_do_not_agree() -> None:
    pairs = [([1.2 * n], [1.0 * n]) for n in range(1, 8)] + [([30.0], [1.0])] * 3
    longest, short, _ = verdict(compare(profile(pairs), FIRST, SECOND))
    assert longest.startswith("neither times nor their order agree · 70.0 % within 20 %")
    assert "log r" in short
    assert len(short) < 78, "it fits the narrowest terminal"
