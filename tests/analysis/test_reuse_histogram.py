"""Sums of reuse distances: bins, exact accumulation, storage."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.reuse_distance import ReuseSample
from memtui.analysis.reuse_histogram import BIN_EDGES, ExactReuse, ReuseHistogram, bin_of

PAGE = 4096

distances = st.integers(1, 1 << 36).map(lambda pages: pages * PAGE) | st.integers(1, 40).map(lambda p: p * PAGE)
entries = st.tuples(distances, distances, st.integers(1, 1000)).map(lambda e: (min(e[:2]), max(e[:2]), e[2]))
reuse_samples = st.builds(lambda rows, first: sample(rows, first), st.lists(entries, max_size=8), st.integers(0, 100))


def sample(rows, first=0) -> ReuseSample:
    lower, upper, counts = (np.array([r[i] for r in rows], np.int64) for i in range(3))
    return ReuseSample(first, first * PAGE, upper, lower, counts, upper - lower, np.zeros(len(rows), np.int64))


def naive_quantile(values: list[int], q: float) -> int:
    return sorted(values)[max(math.ceil(q * len(values)) - 1, 0)]


def test_edges_are_eight_per_octave_and_exact_at_powers_of_two():
    assert (len(BIN_EDGES), BIN_EDGES[0], BIN_EDGES[-1]) == (289, PAGE, 1 << 48)
    assert BIN_EDGES[::8].tolist() == [1 << s for s in range(12, 49)]
    assert np.allclose(BIN_EDGES[1:] / BIN_EDGES[:-1], 2 ** (1 / 8), rtol=1e-3)


@settings(deadline=None)
@given(distances)
def test_a_bin_holds_what_lies_above_the_edge_before(distance):
    k = int(bin_of(np.array([distance]))[0])
    assert distance <= BIN_EDGES[k] or k == 288
    assert k == 0 or distance > BIN_EDGES[k - 1]


@settings(deadline=None)
@given(st.lists(reuse_samples, max_size=6))
def test_both_sums_agree_with_lists(samples):
    histogram, exact = ReuseHistogram(), ExactReuse()
    for s in samples:
        histogram.add(s)
        exact.add(s)
    first = sum(s.first_touches for s in samples)
    for total in (histogram, exact):
        assert (total.first_touches, total.first_touch_bytes) == (first, first * PAGE)
        assert total.touches == sum(s.touches for s in samples)
    for bound in ("lower", "upper"):
        parts = [(getattr(s, f"{bound}_bytes"), s.counts) for s in samples]
        flat = [d for values, counts in parts for d in np.repeat(values, counts).tolist()]
        values, counts = exact.entries(bound)
        assert (np.diff(values) > 0).all()
        assert np.repeat(values, counts).tolist() == sorted(flat)
        for shift in (12, 20, 30, 40):  # exact at powers of two
            below = sum(d <= 1 << shift for d in flat)
            values, counts = histogram.entries(bound)
            assert int(counts[values <= 1 << shift].sum()) == below


@settings(deadline=None)
@given(st.lists(entries, min_size=1, max_size=8), st.sampled_from([0.0, 0.25, 0.5, 0.95, 1.0]))
def test_quantiles_are_order_statistics(rows, q):
    exact, histogram = ExactReuse(), ReuseHistogram()
    exact.add(sample(rows))
    histogram.add(sample(rows))
    result, binned = exact.quantile(q), histogram.quantile(q)
    assert result is not None
    assert binned is not None
    for i in range(2):
        truth = naive_quantile([r[i] for r in rows for _ in range(r[2])], q)
        assert result[i] == truth
        # A bin is 9 % wide, or one page at small distances.
        assert (binned[0] <= truth) if i == 0 else (binned[1] >= truth)
        assert abs(binned[i] - truth) <= max(0.1 * truth, PAGE)


def test_quantiles_without_a_return():
    assert ExactReuse().quantile(0.5) is None
    assert ReuseHistogram().quantile(0.95) is None


@pytest.mark.parametrize("source", [ExactReuse, ReuseHistogram])
def test_bad_quantile_and_bound(source):
    with pytest.raises(ValueError, match="within"):
        source().quantile(1.5)
    with pytest.raises(ValueError, match="neither"):
        source().entries("middle")


@settings(deadline=None)
@given(reuse_samples, reuse_samples)
def test_adding_subtracting_and_storing(a, b):
    one, two, both = ReuseHistogram(), ReuseHistogram(), ReuseHistogram()
    one.add(a)
    two.add(b)
    both.add(a)
    both.add(b)
    assert one + two == both
    assert both - one == two
    assert ReuseHistogram.from_bytes(both.to_bytes()) == both
    x, y, z = ExactReuse(), ExactReuse(), ExactReuse()
    x.add(a)
    y.add(b)
    z.add(a)
    z.add(b)
    x += y
    for bound in ("lower", "upper"):
        assert all(np.array_equal(p, q) for p, q in zip(x.entries(bound), z.entries(bound), strict=True))
    assert x.touches == z.touches


def test_a_restored_histogram_goes_on_counting():
    histogram = ReuseHistogram.from_bytes(ReuseHistogram().to_bytes())
    histogram.add(sample([(PAGE, 2 * PAGE, 3)], first=1))
    assert histogram.touches == 4


def test_storage_is_small():
    histogram = ReuseHistogram()
    rng = np.random.default_rng(0)
    for _ in range(1000):
        d = int(rng.normal(35000, 3000)) * PAGE
        histogram.add(sample([(d, d + 900 * PAGE, 20000)], first=3))
    assert len(histogram.to_bytes()) < 500


def with_parts(rows, first=0) -> ReuseSample:
    lower, upper, counts, earlier, later = (np.array([r[i] for r in rows], np.int64) for i in range(5))
    return ReuseSample(first, first * PAGE, upper, lower, counts, earlier, later)


def test_the_estimate_is_stored_and_added_up():
    window = with_parts([(PAGE, 1000 * PAGE, 100, 300 * PAGE, 0), (64 * PAGE, 64 * PAGE, 10, 0, 0)], 5)
    histogram, exact = ReuseHistogram(), ExactReuse()
    for total in (histogram, exact):
        assert total.estimate(0.5) is None
        total.add(window)
    back = ReuseHistogram.from_bytes(histogram.to_bytes())
    assert back == histogram
    assert back.estimate(0.5) == histogram.estimate(0.5) == pytest.approx(exact.estimate(0.5), rel=0.09)
    assert histogram.estimated.sum() == pytest.approx(110)
    twice = histogram + back
    assert twice.estimate(0.5) == pytest.approx(histogram.estimate(0.5))
    assert twice - back == histogram
    exact += exact
    assert exact.estimate(0.5) == pytest.approx(histogram.estimate(0.5), rel=0.09)
    twice.estimated[0] += 1
    assert twice != histogram + back


def test_the_estimate_stays_between_the_bounds():
    """A bin of 9 % would lead beyond them."""
    histogram, exact = ReuseHistogram(), ExactReuse()
    for total in (histogram, exact):
        total.add(with_parts([(37 * PAGE, 37 * PAGE, 100, 0, 0)]))
        low, high = total.quantile(0.5)
        assert low <= total.estimate(0.5) <= high
    assert exact.estimate(0.5) == 37 * PAGE


def test_one_window_of_an_older_format_leaves_no_estimate():
    histogram, exact = ReuseHistogram(), ExactReuse()
    for total in (histogram, exact):
        total.add(with_parts([(PAGE, PAGE, 1, 0, 0)]))
        total.add(replace(sample([(PAGE, 2 * PAGE, 3)]), earlier_bytes=None, later_bytes=None))
        assert total.estimate(0.5) is None
        assert total.quantile(0.5) is not None
    assert ReuseHistogram.from_bytes(histogram.to_bytes()) == histogram
    assert (histogram - histogram).estimated is None
    assert histogram != ReuseHistogram()


def test_a_stored_estimate_of_other_touches_is_refused():
    histogram = ReuseHistogram()
    histogram.add(with_parts([(PAGE, PAGE, 1, 0, 0)]))
    for wrong in (-1.0, 3.0, np.nan, np.inf):
        histogram.estimated[7] = wrong
        with pytest.raises(ValueError, match="the estimate counts different touches"):
            ReuseHistogram.from_bytes(histogram.to_bytes())


@pytest.mark.parametrize("data", [b"", b"\x01\x08\x21\x01garbage", ReuseHistogram().to_bytes()[:-3], b"\x02" * 50])
def test_damaged_storage_is_refused(data):
    with pytest.raises(ValueError, match="damaged reuse histogram"):
        ReuseHistogram.from_bytes(data)


def test_many_samples_are_merged_along_the_way():
    exact = ExactReuse()
    exact._MERGE_ENTRIES = 10
    for i in range(100):
        exact.add(sample([(PAGE * (i % 7 + 1), PAGE * (i % 7 + 2), 1)]))
    assert exact._waiting_entries < 10
    assert exact.entries("lower")[1].sum() == 100
