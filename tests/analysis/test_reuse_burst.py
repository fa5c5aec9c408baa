"""Distances of bursts: ever shorter windows, beside streams of touches whose distances are known."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.reuse_truth import Case, period_s, stream, truth
from memtui.analysis.reuse_burst import RESOLVED, RESOLVED_BOUNDS, BurstReuse, PartReuse, part_distances
from memtui.analysis.reuse_distance import ReuseSample, ReuseTracker
from memtui.analysis.reuse_estimate import quantile, spread
from memtui.analysis.reuse_histogram import BIN_EDGES, bin_of
from memtui.core.page_set import PageSet

PAGE, SCALE, LONG_S, PROBE_S = 4096, 1 / 16, 1.0, 0.01
MS = 10**6


def lengths() -> list[float]:
    parts, left_s = [], LONG_S
    while left_s >= 4 * PROBE_S:
        parts.append(left_s / 3)
        left_s *= 2 / 3
    return [*parts, left_s - PROBE_S, PROBE_S]


@cache
def bursts_of(case: Case, count: int, scale: float = SCALE) -> list[tuple[PartReuse, ...]]:
    """Return the parts of bursts at moments that are spread over the period of an order."""
    touches, period, bursts = stream(case, scale), period_s(case, scale), []
    parts_s = lengths()
    for number in range(count):
        t, sets = 3 * case.round_s + number / count * period, []
        for length_s in (LONG_S, *parts_s):
            sets.append(PageSet.from_pages(np.unique(touches(t, t + length_s))))
            t += length_s
        bursts.append(part_distances(sets[0], sets[1:], [round(s * 1e9) for s in parts_s[1:]]))
    return bursts


def added(bursts) -> BurstReuse:
    total = BurstReuse()
    for number, parts in enumerate(bursts):
        total.add(number, parts)
    return total


@pytest.mark.parametrize("round_s", [0.1, 0.5])
@pytest.mark.parametrize("order", ["ring", "uniform", "zipf", "zigzag", "cnn"])
def test_the_bounds_are_close_and_the_estimate_closer(order, round_s):
    case = Case(order, round_s)
    lower, upper, estimate = added(bursts_of(case, 30)).within(0.5)
    true = truth(case, PROBE_S, SCALE)
    assert upper <= 2 * lower
    assert estimate == pytest.approx(true, rel=0.15)
    assert lower <= 1.05 * true  # these bursts are not all moments
    assert true <= 1.05 * upper


def errors(case: Case, bursts, count: int) -> np.ndarray:
    """Return how far the estimates from so many bursts at any moment are off, as shares of the truth."""
    rng, true = np.random.default_rng(3), truth(case, PROBE_S, 1 / 32)
    picked = (rng.integers(0, len(bursts), count) for _ in range(20))
    return np.array([added(bursts[n] for n in numbers).within(0.5)[2] / true - 1 for numbers in picked])


def test_what_two_minutes_tell_of_a_distance_that_is_another_one_at_every_moment():
    """Of 11 probes alone it was off by 47 %."""
    case = Case("zigzag", 0.536)
    bursts = bursts_of(case, 100, 1 / 32)
    off = errors(case, bursts, 33)
    alone = errors(case, [parts[-1:] for parts in bursts], 33)
    assert np.mean(np.abs(off) <= 0.2) >= 0.9
    assert off.std() <= 0.5 * alone.std()
    assert alone.mean() >= 0.1  # a probe alone knows no order: each page may be anywhere in its part


def test_the_order_is_that_of_touches_now_and_the_last_time():
    before, one, two, now, probe = (
        PageSet.from_pages(pages) for pages in ([1, 2, 3, 4], [5, 6], [7, 8], [5, 1], [7, 6, 5])
    )
    first, second = part_distances(before, [one, two, now, probe], [MS, MS])
    assert (first.same_order, first.reverse_order) == (0, 0)  # nothing is known of the part before
    # Now 5 (last in part 1) and 1 (in the window before); in the probe 7 (in part 2) and 6 (in part 1), and not 5.
    assert (second.same_order, second.reverse_order) == (2 / 4, 0)
    assert (first.touched_bytes, first.seen_bytes) == (2 * PAGE, 8 * PAGE)
    (_, back) = part_distances(before, [one, two, PageSet.from_pages([7]), PageSet.from_pages([6])], [MS, MS])
    assert (back.same_order, back.reverse_order) == (0, 1)
    (_, alone) = part_distances(before, [one, two, PageSet.from_pages([9]), PageSet.from_pages([8])], [MS, MS])
    assert (alone.same_order, alone.reverse_order) == (0, 0)


@pytest.mark.parametrize(
    ("order", "round_s", "position"), [("ring", 0.1, 1), ("zigzag", 0.5, 0), ("uniform", 0.1, 0.5)]
)
def test_the_order_of_known_streams(order, round_s, position):
    parts = [part for burst in bursts_of(Case(order, round_s), 30) for part in burst[-4:]]
    same, reverse = sum(part.same_order for part in parts), sum(part.reverse_order for part in parts)
    assert same + reverse > 1
    assert same == pytest.approx(position * (same + reverse), abs=0.02 * (same + reverse))


def test_what_comes_back_within_a_probe_stays_between_wide_bounds():
    case = Case("ring", 0.004)
    lower, upper, estimate = (value / PAGE for value in added(bursts_of(case, 3)).within(0.5))
    assert (lower, upper) == (1, 512)
    assert estimate == pytest.approx(0.81 * 512, rel=0.05)


def test_a_part_tells_no_distance_beyond_what_was_touched_before_it():
    """A part whose past is short has first touches that would have come back in a longer one."""
    pages = [PageSet.from_pages(range(100 * n, 100 * n + 100)) for n in range(4)]
    few = PageSet.from_pages([0])
    bursts = added([part_distances(None, [pages[0], few, *pages[1:3], few], [MS, MS, MS, MS])])
    assert bursts.within(1.0)[:2] == (201 * PAGE, 201 * PAGE)
    assert added([part_distances(None, [pages[0], few, pages[3]], [MS, MS])]).within(0.1) is None


def test_touches_of_pages_that_did_not_come_back_are_beyond_every_distance():
    one, two, three = (PageSet.from_pages(pages) for pages in ([1, 2], [3], [1, 9]))
    bursts = BurstReuse()
    assert (bursts.probe_ns, bursts.within(0.5), bursts.touches) == (None, None, 0)
    bursts.add(4, part_distances(one, [two, three], [10 * MS]))
    assert (bursts.count, bursts.touches, bursts.probe_ns) == (1, 2, 10 * MS)
    assert bursts.within(0.5)[:2] == (2 * PAGE, 4 * PAGE)
    assert bursts.within(0.6) is None
    bursts.add(4, part_distances(one, [two, three], [12 * MS]))  # of another process
    assert (bursts.count, bursts.touches, bursts.probe_ns) == (1, 4, 11 * MS)
    (without,) = part_distances(None, [two, three], [MS])
    assert (without.distances.first_touches, without.distances.touches) == (2, 2)


def test_a_copy_goes_on_alone():
    bursts = added(bursts_of(Case("uniform", 0.5), 30)[:3])
    before, copy = bursts.within(0.5), bursts.copy()
    copy.add(9, bursts_of(Case("ring", 0.5), 30)[0])
    assert (bursts.within(0.5), bursts.count, copy.count) == (before, 3, 4)
    assert copy.within(0.5) != before


PAGES = st.sets(st.integers(0, 11), max_size=6)
BURSTS = st.lists(
    st.tuples(st.none() | PAGES, st.lists(st.tuples(PAGES, st.integers(1, 9)), min_size=1, max_size=6)),
    min_size=1,
    max_size=4,
)
FEW_BINS = 60  # up to 700 KiB: beyond all of these pages, nothing changes
SHARE = st.sampled_from((0.01, 0.25, 1 / 3, 0.5, 2 / 3, 0.75, 0.95, 1.0))


def last_window(page: int, windows: Sequence[set[int]]) -> int | None:
    """Return the last window with the page; those in which nothing was touched have no number."""
    return max((number for number, pages in enumerate(filter(None, windows)) if page in pages), default=None)


@settings(deadline=None)
@given(st.lists(PAGES, min_size=2, max_size=6), st.booleans(), st.data())
def test_parts_are_what_single_pages_show(windows, before_known, data):
    """The order is counted pair by pair: a page of one part, and one of the next part that was not in the first."""
    first = data.draw(st.integers(before_known, len(windows) - 1))
    sets = [PageSet.from_pages(sorted(pages)) for pages in windows]
    lengths = list(range(1, len(windows) - first + 1))
    parts = part_distances(sets[0] if before_known else None, sets[before_known:], lengths)
    tracker = ReuseTracker()
    expected = [tracker.touch(pages) for pages in sets][first:]
    assert [part.length_ns for part in parts] == lengths
    for number, (part, sample) in enumerate(zip(parts, expected, strict=True), start=first):
        past, now = windows[:number], windows[number]
        assert part.touched_bytes == len(now) * PAGE
        assert part.seen_bytes == len(set().union(*past)) * PAGE
        for name in ("upper_bytes", "lower_bytes", "counts", "windows_ago"):
            assert getattr(part.distances, name).tolist() == getattr(sample, name).tolist()
        assert part.distances.first_touches == sample.first_touches
        pairs = [
            (last_window(x, past[:-1]), last_window(y, past))
            for x in (past[-1] if number > first else ())
            for y in now - past[-1]
        ]
        known = [(x, y) for x, y in pairs if x is not None and y is not None]
        same, reverse = sum(y == x + 1 for x, y in known), sum(x == y + 1 for x, y in known)
        assert (part.same_order, part.reverse_order) == (same / max(1, len(known)), reverse / max(1, len(known)))


Distances = Callable[[ReuseSample, int], float]
"""Touches of a window that came back from farther than so many bytes."""


def beyond_by_hand(bursts: Sequence[Sequence[PartReuse]], size: int, farther: Distances, resolved: float) -> float:
    """Return the share of touches of a probe beyond a distance: the formula of the module."""
    count, length_ns = 0.0, 0
    for back in range(1, max(map(len, bursts)) + 1):
        parts = [parts[-back] for parts in bursts if len(parts) >= back]
        touches = max(1, sum(part.distances.touches for part in parts))
        touched = Fraction(sum(part.distances.touches * part.touched_bytes for part in parts), touches)
        seen = Fraction(sum(part.distances.touches * part.seen_bytes for part in parts), touches)
        if back == 1 or Fraction(resolved) * touched <= size <= seen:
            count += sum(farther(part.distances, size) + part.distances.first_touches for part in parts)
            length_ns += sum(part.length_ns for part in parts)
    probes = [parts[-1] for parts in bursts]
    lengths_ns = sum(part.length_ns for part in probes)
    return min(1.0, lengths_ns * count / length_ns / sum(part.distances.touches for part in probes))


def never_rising(values: Sequence[float]) -> list[float]:
    return [max(values[index:]) for index in range(len(values))]


def bounds_by_hand(bursts, share: float) -> list[int | None]:
    sizes, thresholds = set(), set()
    for parts in bursts:
        for part in parts:
            sizes |= {*part.distances.lower_bytes.tolist(), *part.distances.upper_bytes.tolist()}
    for back in range(1, max(map(len, bursts)) + 1):
        parts = [parts[-back].distances.touches * np.array([1, parts[-back].touched_bytes])
                 for parts in bursts if len(parts) >= back]  # fmt: skip
        touches, touched = sum(parts).tolist()
        thresholds.add(round(RESOLVED_BOUNDS * touched / max(1, touches)))
    rising = sorted(sizes | thresholds)
    bounds = []
    for name in ("lower_bytes", "upper_bytes"):

        def farther(sample, size, name=name):
            return int(sample.counts[getattr(sample, name) > size].sum())

        beyond = never_rising([beyond_by_hand(bursts, size, farther, RESOLVED_BOUNDS) for size in rising])
        bounds.append(next((size for size, part in zip(rising, beyond, strict=True) if part <= 1 - share + 1e-9), None))
    return bounds


def reverse_bins(sample: ReuseSample) -> np.ndarray:
    """Return touches by bin, even over the bytes that both windows touched."""
    bins = np.zeros(len(BIN_EDGES))
    edges = [0, *BIN_EDGES[:-1].tolist(), 1 << 62]
    for lower, upper, count, earlier, later in zip(
        sample.lower_bytes.tolist(), sample.upper_bytes.tolist(), sample.counts.tolist(),
        sample.earlier_bytes.tolist(), sample.later_bytes.tolist(), strict=True,
    ):  # fmt: skip
        high = upper - earlier - later
        if high == lower:
            bins[bin_of(np.array([lower]))] += count
        for number, (low_edge, high_edge) in enumerate(pairwise(edges)):
            if high > lower:
                bins[number] += count * max(0, min(high, high_edge) - max(lower, low_edge)) / (high - lower)
    return bins


def same_bins(sample: ReuseSample) -> np.ndarray:
    bins = np.zeros(len(BIN_EDGES))
    np.add.at(bins, bin_of(sample.upper_bytes), sample.counts)
    return bins


def estimate_by_hand(bursts, share: float) -> float | None:
    """Return the estimate: in random order first, then mixed with the order that parts of such distances show."""
    beyond = []
    for bins_of_sample in (reverse_bins, lambda sample: spread([sample], BIN_EDGES), same_bins):
        farther = {}
        for part in (part for parts in bursts for part in parts):
            bins = bins_of_sample(part.distances)
            farther[id(part.distances)] = dict(
                zip(BIN_EDGES.tolist(), [*bins[::-1].cumsum()[-2::-1].tolist(), 0.0], strict=True)
            )
        shares = [
            beyond_by_hand(bursts, size, lambda sample, size, bins=farther: bins[id(sample)][size], RESOLVED)
            for size in BIN_EDGES[:FEW_BINS].tolist()
        ]
        beyond.append(never_rising([*shares, *[shares[-1]] * (len(BIN_EDGES) - FEW_BINS)]))
    reverse, random, same = map(np.array, beyond)

    def place(shares: np.ndarray) -> float | None:
        bins = -np.diff(shares, prepend=1.0)
        total = bins.sum()
        return quantile(bins, BIN_EDGES, min(1.0, share / total)) if share <= total + 1e-9 else None

    first = place(random)
    if first is None:
        return None
    counts, touched = [], []
    for back in range(1, max(map(len, bursts)) + 1):
        parts = [parts[-back] for parts in bursts if len(parts) >= back]
        touches = sum(part.distances.touches for part in parts)
        touched.append(sum(part.distances.touches * part.touched_bytes for part in parts) / max(1, touches))
        counts.append((sum(part.same_order for part in parts), sum(part.reverse_order for part in parts)))
    used = [k for k, both in enumerate(pairwise(touched)) if sum(both) <= first]
    same_order, reverse_order = sum(counts[k][0] for k in used), sum(counts[k][1] for k in used)
    position = (same_order + 0.5) / (same_order + reverse_order + 1)
    if position > 0.5:
        return place(same * (2 * position - 1) + random * (2 - 2 * position))
    return place(reverse * (1 - 2 * position) + random * 2 * position)


BACK_AND_FORTH = [
    ({0, 1}, 3),
    ({2, 3}, 2),
    ({4, 5}, 2),
    ({6, 7}, 2),
    ({8, 9}, 1),
    ({9, 8, 7}, 1),
    ({6, 5}, 1),
    ({4, 3, 2}, 1),
]


@settings(deadline=None)
@given(BURSTS, SHARE)
@example([(None, BACK_AND_FORTH)], 0.5)
@example([(None, BACK_AND_FORTH[:count]) for count in (8, 7, 6)], 0.5)
@example([(None, BACK_AND_FORTH[:count]) for count in (6, 7, 8)], 0.5)
@example([(None, BACK_AND_FORTH), ({1}, BACK_AND_FORTH[:-1])], 0.75)
@example([(None, BACK_AND_FORTH[::-1]), ({1}, BACK_AND_FORTH[:-2])], 0.25)
@example([(None, [*BACK_AND_FORTH[:5]] * 2), ({1}, BACK_AND_FORTH[:5] * 3)], 0.5)  # a loop
def test_the_shares_are_those_that_are_added_up_part_by_part(drawn, share):
    bursts = []
    for before, windows in drawn:
        sets = [PageSet.from_pages(sorted(pages)) for pages, _ in windows]
        known = None if before is None else PageSet.from_pages(sorted(before))
        bursts.append(part_distances(known, sets, [length for _, length in windows]))
    total = added(bursts)
    other = total.copy()
    other.add(len(bursts), part_distances(None, [PageSet.from_pages([n]) for n in (1, 2, 1)], [1, 2, 3]))
    touches = sum(parts[-1].distances.touches for parts in bursts)
    assert total.touches == touches
    if not touches:
        assert total.within(share) is None
        return
    expected, result = bounds_by_hand(bursts, share), total.within(share)
    if None in expected:
        assert result is None
        return
    assert result[:2] == tuple(expected)
    estimate = estimate_by_hand(bursts, share)
    if estimate is None:
        assert result[2] is None
    else:
        assert result[2] == pytest.approx(min(max(estimate, expected[0]), expected[1]), rel=1e-6)


@pytest.mark.parametrize("returning", range(1, 20))
def test_a_share_that_just_came_back_has_an_estimate(returning):
    """Sums of fractions may be a little less than the share: that is no reason to have none."""
    rng = np.random.default_rng(returning)
    between = [sorted(rng.choice(returning, min(returning, 7), replace=False)) for _ in range(5)]
    probe = [*range(returning), *range(1000, 1020 - returning)]
    sets = [PageSet.from_pages(pages) for pages in (range(returning), *between, probe)]
    bursts = added([part_distances(None, sets, [10 * MS])])
    lower, upper, estimate = bursts.within(returning / 20)
    assert lower <= estimate <= upper
    assert bursts.within((returning + 1) / 20) is None
