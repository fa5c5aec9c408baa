"""Conclusions of studies follow from their numbers, and come out either way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memtui.analysis.reuse_cdf import Knee
from memtui.analysis.statistics import MedianInterval
from memtui.core.page_set import PageSet
from memtui.study.studies import basic, batch_size, cpus, filters, overhead
from memtui.study.studies.pass_separation import PartSimilarity, part_similarity
from memtui.study.studies.sample_time import study

MIB = 1 << 20


def basic_numbers(**changes):
    numbers = basic.BasicNumbers(
        wss_bytes={basic.BARE: [100.0 * MIB] * 6, basic.BOXED: [101.0 * MIB] * 6},
        bundled=True,
        rss_bytes=800.0 * MIB,
        mapped_bytes=None,
        wss_by_interval_bytes={"0.2": 100.0 * MIB, "2": 150.0 * MIB},
        reuse=basic.ReuseNumbers(0, 0, {}, Knee(120.0 * MIB, 0.9, 0.6)),
        passes=PartSimilarity(0.9, 0.4, True),
        asleep={basic.IMPORT: basic.AsleepNumbers(0.1 * MIB, 0.0)},
    )
    return replace(numbers, **changes)


def assert_contains(sentences, *fragments):
    text = " ".join(sentences)
    for fragment in fragments:
        assert fragment in text, text
    return text


def pairs(median, low, high):
    return MedianInterval(median, low, high, 0.97 if low is not None else 0.0, 6)


def test_basic_says_how_much_and_beside_it_what_was_published():
    assert_contains(
        basic.conclude(basic_numbers()),
        "touches 100 MiB, 12.5 % of the 800 MiB",
        "published figure is 98.77 MiB",
    )


def test_basic_without_a_window_of_training():
    none = {basic.BARE: [None], basic.BOXED: []}
    assert_contains(basic.conclude(basic_numbers(wss_bytes=none)), "nothing can be said")


@pytest.mark.parametrize(
    ("ratio", "fragments"),
    [
        (pairs(1.01, 0.99, 1.03), "no difference can be told from chance"),
        (pairs(1.02, 1.01, 1.03), "a difference, and a small one"),
        (pairs(0.80, 0.75, 0.85), "a difference, and not a small one"),
        (pairs(1.01, None, None), "too few pairs"),
    ],
)
def test_basic_on_the_container(ratio, fragments):
    assert_contains(basic.conclude(basic_numbers(container_ratio=ratio)), fragments)


def test_basic_comes_out_either_way():
    assert_contains(
        basic.conclude(basic_numbers()),
        "grows with the window",
        "a clear knee",
        "passes are visible",
        "small beside",
    )
    other = basic_numbers(
        wss_by_interval_bytes={"0.2": 100.0, "2": 100.2},
        reuse=basic.ReuseNumbers(0, 0, {}, Knee(1.0, 0.1, 0.1)),
        passes=PartSimilarity(0.9, 0.9, False),
        asleep={basic.IMPORT: basic.AsleepNumbers(30.0 * MIB, 0.0)},
    )
    assert_contains(basic.conclude(other), "hardly grows", "no clear knee", "cannot be told apart", "no small part")
    unknown = basic_numbers(passes=PartSimilarity(reason="no two steps follow"))
    assert_contains(basic.conclude(unknown), "is not known: no two steps follow")


def windows_of(steps, phase):
    """Windows of 1 ns, 16 a step; ``phase`` says which page is touched at a share of a step."""
    pages = [PageSet.from_pages(np.array([phase(index % 16 / 16)], np.uint64)) for index in range(16 * steps)]
    starts = list(range(16 * steps))
    return starts, [index + 1 for index in starts], pages, list(range(0, 16 * steps + 1, 16))


def test_passes_are_told_apart_where_parts_of_steps_touch_their_own_pages():
    assert part_similarity(*windows_of(4, lambda share: 1 + int(share * 16))) == PartSimilarity(1.0, 0.0, True)
    assert part_similarity(*windows_of(4, lambda share: 7)) == PartSimilarity(1.0, 1.0, False)


def test_passes_are_not_known_where_steps_are_short_or_few():
    starts, ends, pages, _ = windows_of(4, lambda share: 7)
    assert "as little as 4 windows" in part_similarity(starts, ends, pages, list(range(0, 65, 4))).reason
    assert "as little as 1 window, " in part_similarity(starts, ends, pages, list(range(65))).reason
    assert part_similarity(starts, ends, pages, [0, 16]).visible is None
    assert part_similarity(starts, ends, pages, []).visible is None


def point(interval_s, wss, error=0.01, speed=5.0):
    return study.IntervalPoint(interval_s, speed, 5.0, wss * MIB, None, error, 0.0, 9, 9)


def test_sample_time_calls_runs_of_their_own_what_they_are():
    assert_contains(
        study.conclude([point(0.2, 100), point(1, 120), point(2, 140)], 1),
        "grows with the window",
        "differ by at most 1.0 % (at 0.2 s",
        "two runs of the program",
    )
    worse = [point(0.2, 100), point(1, 100, -0.2), point(2, 100)]
    assert_contains(study.conclude(worse, 2), "20.0 % (at 1 s", "does not grow")
    assert_contains(study.conclude([point(0.2, 100)], 1), "nothing can be said")
    slower = [point(0.2, 100), point(1, 100, -0.2, speed=2.5), point(2, 100)]
    assert_contains(study.conclude(slower, 1), "up to 50.0 % faster or slower")
    assert "faster or slower" not in " ".join(study.conclude(worse, 1))


def test_sample_time_tells_a_line_from_a_logarithm():
    line = [point(s, 100 + 10 * s) for s in (0.2, 0.5, 1, 2, 4, 8)]
    assert_contains(study.conclude(line, 1), "a straight line fits better")
    logarithm = [point(s, w) for s, w in ((0.2, 100), (0.5, 140), (1, 170), (2, 200), (4, 230), (8, 260))]
    assert_contains(study.conclude(logarithm, 1), "a logarithm fits better")
    neither = [point(s, w) for s, w in ((0.2, 100), (0.5, 140), (1, 90), (2, 150), (4, 90), (8, 120))]
    assert_contains(study.conclude(neither, 1), "neither a straight line nor a logarithm fits")
    assert study.shape(line[:2]) is None
    assert study.shape([point(s, 100) for s in (1, 2, 3)]) is None
    assert study.error(None, 1.0) is None
    assert study.error(110.0, 100.0) == pytest.approx(0.1)


def lost(wss, moved):
    each = filters.Losses(wss_share=wss, points_moved=moved)
    return filters.FilterNumbers(dict.fromkeys((*filters.TERMS, filters.ALL), each), {})


@pytest.mark.parametrize(
    ("first", "second", "fragments"),
    [
        (lost(0.001, 0.01), lost(0.002, 0.01), '"Probably okay" holds, on one thread and on all.'),
        (lost(0.001, 0.01), lost(0.200, 0.01), "holds with 1 thread and with no other"),
        (lost(0.001, 0.30), lost(0.200, 0.01), '"Probably okay" does not hold here'),
        (lost(0.001, 0.01), lost(None, None), "is not known here"),
    ],
)
def test_the_verdict_on_filters(first, second, fragments):
    assert_contains(filters.conclude({1: first, 2: second}), fragments)


@pytest.mark.parametrize(
    ("ratio", "fragments"),
    [
        (pairs(0.8, 0.7, 0.9), "time is saved"),
        (pairs(1.2, 1.1, 1.3), "they cost time"),
        (pairs(1.0, 0.9, 1.1), "nothing that can be told from chance"),
        (replace(pairs(1.0, None, None), count=2), "too few pairs (2)"),
        (None, "is not known: no pause was measured"),
    ],
)
def test_what_filters_save(ratio, fragments):
    both = replace(lost(0.001, 0.01), saved={filters.ALL: filters.Savings(ratio)})
    assert_contains(filters.conclude({1: both}), fragments)


def batch(size, wss):
    return batch_size.BatchPoint(size, wss * MIB)


@pytest.mark.parametrize(
    ("last", "fragments"), [(300, "grows 3.00 times"), (102, "nearly the same"), (50, "falls to 0.50")]
)
def test_batch_size_comes_out_three_ways(last, fragments):
    assert_contains(batch_size.conclude([batch(16, 100), batch(1024, last)]), fragments)


def test_batch_size_with_too_little():
    assert_contains(batch_size.conclude([batch(16, 100)]), "nothing can be said")
    assert batch_size.slope([batch(16, 100)]) is None
    assert batch_size.slope([batch(16, 100), batch(32, 116)]) == MIB


def cores(threads, wss, rate, speed_up):
    return cpus.CpusPoint(threads, wss * MIB, rate, None, None, speed_up)


def test_cpus_comes_out_either_way_and_says_what_it_cannot_show():
    pays = assert_contains(
        cpus.conclude([cores(1, 100, 1.0, 1.0), cores(2, 180, 1.6, 1.6)]), "1.80 times", "more cores pay", "cannot show"
    )
    assert "do not pay" not in pays
    assert_contains(cpus.conclude([cores(1, 100, 1.0, 1.0), cores(2, 180, 1.0, 1.0)]), "more cores do not pay")
    assert "cannot show" not in " ".join(cpus.conclude([cores(1, 100, 1.0, 1.0), cores(16, 100, 9.0, 9.0)]))
    assert_contains(cpus.conclude([cores(1, 100, None, None), cores(2, 100, None, None)]), "reported no steps")
    assert [cpus.counts(n) for n in (1, 2, 3, 6, 8)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4, 6], [1, 2, 4, 8]]


def cost(interval_s, median, low, high):
    slow_down = None if median is None else pairs(median, low, high)
    return overhead.OverheadPoint("", "pagetable", True, interval_s, slow_down)


def test_overhead_comes_out_either_way():
    assert_contains(
        overhead.conclude([cost(0.2, 0.2, 0.15, 0.25), cost(1.0, 0.02, 0.01, 0.03)]), "surely below 5% from 1 s on"
    )
    assert_contains(
        overhead.conclude([cost(0.2, 0.2, 0.15, 0.25), cost(1.0, 0.2, 0.1, 0.3)]),
        "not even at 1 s is it surely below 5%",
    )
    assert_contains(overhead.conclude([cost(0.2, 0.01, -0.02, 0.03)]), "at 0.2 s it cannot be told from nothing")
    assert_contains(overhead.conclude([cost(0.2, None, None, None)]), "no steps were counted")


def test_cheap_is_what_is_cheap_from_a_window_on():
    cheap, dear, unsure = (0.01, 0.0, 0.02), (0.1, 0.05, 0.2), (0.01, None, None)
    cheap, dear, unsure = (pairs(*each) for each in (cheap, dear, unsure))
    assert overhead.cheap_from([(0.2, dear), (0.5, cheap), (1.0, cheap)]) == 0.5
    assert overhead.cheap_from([(0.2, cheap), (0.5, dear), (1.0, cheap)]) == 1.0
    assert overhead.cheap_from([(0.2, cheap), (1.0, dear)]) is None
    assert overhead.cheap_from([(0.2, cheap), (1.0, unsure)]) is None
