"""The estimate of reuse distances, beside random orders that are played out touch by touch."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memtui.analysis.reuse_distance import ReuseSample, ReuseTracker
from memtui.analysis.reuse_estimate import quantile, spread
from memtui.analysis.reuse_histogram import BIN_EDGES, bin_of
from memtui.core.page_set import PageSet

PAGE, HUGE = 4096, 2 << 20


def distances_of(orders: list[list[int]], size: dict[int, int]) -> list[int]:
    """Return the distance of every returning touch where the windows are touched in these orders."""
    sizes = np.array([size.get(page, 0) for page in range(max(size) + 1)])
    last, distances = np.zeros(len(sizes), np.int64), []
    for now, page in enumerate((page for order in orders for page in order), start=1):
        if last[page]:
            distances.append(int(sizes[last >= last[page]].sum()))
        last[page] = now
    return distances


def samples_of(windows: list[list[int]]) -> list[ReuseSample]:
    tracker = ReuseTracker()
    return [tracker.touch(PageSet.from_pages(sorted(window))) for window in windows]


def mean_of(sample: ReuseSample) -> float:
    """Return the sum of the mean distances of the sample's touches, as the docstring of the module says it."""
    both = sample.upper_bytes - sample.lower_bytes - sample.earlier_bytes - sample.later_bytes
    means = sample.lower_bytes + sample.earlier_bytes / 2 + sample.later_bytes / 2 + 0.75 * both
    return float((means * sample.counts).sum())


windows_of_pages = st.lists(st.sets(st.integers(0, 7), min_size=1, max_size=6), min_size=2, max_size=4)


@settings(deadline=None, max_examples=25)
@given(windows_of_pages, st.integers(0, 2**32 - 1))
def test_the_mean_is_that_of_random_orders(windows, seed):
    rng, tries = np.random.default_rng(seed), 300
    size = dict.fromkeys(range(8), PAGE)
    sums = [sum(distances_of([rng.permutation(list(w)).tolist() for w in windows], size)) for _ in range(tries)]
    expected = sum(map(mean_of, samples_of([list(w) for w in windows])))
    # Six standard errors: one failure in a thousand million.
    assert abs(np.mean(sums) - expected) <= 6 * np.std(sums) / math.sqrt(tries) + 1e-6 * expected


def test_the_mean_counts_pages_of_two_sizes():
    rng, tries = np.random.default_rng(7), 1000
    tracker = ReuseTracker()
    windows = [([0, 1, 2], [5, 6]), ([3, 4], [6, 7]), ([0, 2, 9], [5, 6, 8])]
    samples = [
        tracker.touch(PageSet.from_blocks((s := PageSet.from_pages(small)).blocks, s.bits, huge, []))
        for small, huge in windows
    ]
    size = dict.fromkeys(range(10), PAGE) | {1000 + number: HUGE for number in range(10)}
    names = [[*small, *(1000 + number for number in huge)] for small, huge in windows]
    sums = [sum(distances_of([rng.permutation(w).tolist() for w in names], size)) for _ in range(tries)]
    assert np.mean(sums) == pytest.approx(sum(map(mean_of, samples)), abs=6 * np.std(sums) / math.sqrt(tries))


def bins_of(windows: list[list[int]]) -> np.ndarray:
    bins = spread(samples_of(windows), BIN_EDGES)
    assert bins is not None
    return bins


CASES = {
    "the same pages in each window": [list(range(512))] * 4,
    "few pages return, and many windows lie between": [
        list(range(400)), list(range(300, 900)), list(range(900, 950)), list(range(200)),
        [*range(500), *range(940, 945)],
    ],
    "a small window after a large one": [list(range(2000)), list(range(40)), list(range(2000))],
}  # fmt: skip


@pytest.mark.parametrize("windows", CASES.values(), ids=CASES)
def test_the_distribution_is_that_of_random_orders(windows):
    rng, tries = np.random.default_rng(1), 12
    size = dict.fromkeys(range(2000), PAGE)
    simulated = np.zeros(len(BIN_EDGES))
    for _ in range(tries):
        distances = distances_of([rng.permutation(w).tolist() for w in windows], size)
        np.add.at(simulated, bin_of(np.array(distances)), 1 / tries)
    bins = bins_of(windows)
    assert bins.sum() == pytest.approx(simulated.sum())
    far = np.abs(np.cumsum(bins) - np.cumsum(simulated)).max() / simulated.sum()
    assert far < 0.02
    for share in (0.25, 0.5, 0.75, 0.95):
        assert quantile(bins, BIN_EDGES, share) == pytest.approx(quantile(simulated, BIN_EDGES, share), rel=0.05)


def test_a_loop_in_a_fixed_order_is_estimated_below_its_length():
    ring = list(range(1000))
    bins = bins_of([ring] * 20)
    # The median of 1 - u (1 - v) is 0.813, where x (1 - ln x) = 1/2 at x = 0.187.
    assert quantile(bins, BIN_EDGES, 0.5) == pytest.approx(0.813 * 1000 * PAGE, rel=0.03)


def test_what_is_known_is_not_spread():
    windows = [[k % 100 * 7] for k in range(300)]  # one page in a window: no order to be unsure of
    bins = bins_of(windows)
    assert np.flatnonzero(bins).tolist() == bin_of(np.array([100 * PAGE])).tolist()
    assert bins.sum() == 200


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sets(st.integers(0, 3000), min_size=1, max_size=60), min_size=2, max_size=8))
@example([{1, 2}, set(range(3, 18)), {1, 2}])  # every place in the windows is in one bin
def test_it_lies_between_the_bounds(windows):
    samples = samples_of([list(w) for w in windows])
    bins = spread(samples, BIN_EDGES)
    lower, upper = np.zeros(len(BIN_EDGES)), np.zeros(len(BIN_EDGES))
    for sample in samples:
        assert (sample.earlier_bytes >= 0).all()
        assert (sample.later_bytes >= 0).all()
        assert (sample.lower_bytes + sample.earlier_bytes + sample.later_bytes <= sample.upper_bytes).all()
        np.add.at(lower, bin_of(sample.lower_bytes), sample.counts)
        np.add.at(upper, bin_of(sample.upper_bytes), sample.counts)
    assert bins.sum() == pytest.approx(lower.sum())
    assert (np.cumsum(upper) <= np.cumsum(bins) + 1e-6).all()
    assert (np.cumsum(bins) <= np.cumsum(lower) + 1e-6).all()


def test_a_huge_page_that_collapsed_keeps_its_parts_within_the_bounds():
    tracker = ReuseTracker()
    tracker.touch(PageSet.from_pages([512, 513, 5000]))
    sample = tracker.touch(PageSet.from_blocks([], np.empty((0, 8), np.uint64), [1], []))
    assert sample.counts.tolist() == [1]
    both = sample.upper_bytes - sample.lower_bytes - sample.earlier_bytes - sample.later_bytes
    assert min(sample.earlier_bytes[0], sample.later_bytes[0], both[0]) >= 0


def test_without_the_parts_there_is_no_estimate():
    (first, second) = samples_of([[1, 2, 3], [2, 3]])
    old = ReuseSample(0, 0, second.upper_bytes, second.lower_bytes, second.counts)
    assert spread([first, second, old], BIN_EDGES) is None
    assert spread([first], BIN_EDGES).sum() == 0
    assert quantile(np.zeros(len(BIN_EDGES)), BIN_EDGES, 0.5) is None


EDGES = np.array([4096, 6000, 8192, 40960, 1 << 20])


@given(st.lists(st.sampled_from((0.0, 0.125, 0.5, 1.0, 7.0)), min_size=5, max_size=5), st.integers(0, 16))
@example([0.0, 0.0, 0.0, 0.0, 1.0], 16)
@example([0.0, 0.5, 0.0, 0.0, 0.125], 8)
def test_a_share_lies_in_a_bin_as_far_as_its_touches_go(bins, sixteenths):
    """Even over the logarithm: the first bin has no lower edge, so all of it lies at its upper one."""
    value = quantile(np.array(bins), EDGES, sixteenths / 16)
    if not sum(bins):
        assert value is None
        return
    wanted = Fraction(sixteenths, 16) * Fraction(sum(bins))
    below = [Fraction(sum(bins[:k])) for k in range(6)]
    k = next(k for k in range(5) if below[k + 1] >= wanted)
    if k == 0:
        assert value == EDGES[0]
        return
    part = float((wanted - below[k]) / Fraction(bins[k]))
    expected = math.exp(math.log(EDGES[k - 1]) * (1 - part) + math.log(EDGES[k]) * part)
    assert value == pytest.approx(expected, rel=1e-9)


def test_what_lies_below_the_first_edge_and_above_the_last_is_counted():
    """Each of 8 touches lies evenly between 1 and 3 pages, or between 9 and 11."""
    pages = np.array([1, 9], np.int64) * PAGE
    sample = ReuseSample(0, 0, pages + 2 * PAGE, pages, np.array([8, 8]), np.array([2, 2]) * PAGE, np.array([0, 0]))
    assert spread([sample], np.array([2, 4, 10]) * PAGE) == pytest.approx([4, 4, 8])
    assert spread([sample], np.array([2, 4, 10, 20]) * PAGE) == pytest.approx([4, 4, 4, 4])
