"""Distances of probes: ever shorter windows, beside streams of touches whose distances are known."""

import numpy as np
import pytest

from memtui.analysis.reuse_burst import BurstReuse, probe_distances
from memtui.core.page_set import PageSet

PAGE, PAGES, LONG_S, PROBE_S = 4096, 2048, 2.0, 0.01


def lengths() -> list[float]:
    parts, left_s = [], LONG_S
    while left_s >= 4 * PROBE_S:
        parts.append(left_s / 3)
        left_s *= 2 / 3
    return [*parts, left_s - PROBE_S, PROBE_S]


def bursts_of(stream, count: int = 8) -> tuple[BurstReuse, float]:
    """Return the distances of probes, and the median of the true ones in pages. ``stream``: touches in a time."""
    bursts, truth, t = BurstReuse(), [], 0.3
    last, now = np.full(PAGES, -1), 0
    for burst in range(count):
        sets = []
        for length in (LONG_S, *lengths()):
            touched = stream(t, t + length)
            t += length
            if length == PROBE_S:
                for number, page in enumerate(touched):
                    if last[page] < now:  # its first touch in the probe
                        truth.append(np.count_nonzero(last >= last[page]))
                        last[page] = now + number
            pages, from_end = np.unique(touched[::-1], return_index=True)
            last[pages] = now + len(touched) - 1 - from_end
            now += len(touched)
            sets.append(PageSet.from_pages(pages))
        bursts.add(burst, round(PROBE_S * 1e9), probe_distances(sets[0], sets[1:]))
    return bursts, float(np.median(truth))


def ring(rate: float):
    return lambda start, end: np.arange(int(start * rate), int(end * rate)) % PAGES


def uniform(rate: float):
    rng = np.random.default_rng(5)
    return lambda start, end: rng.integers(0, PAGES, int(end * rate) - int(start * rate))


def zipf(rate: float):
    rng = np.random.default_rng(6)
    below = np.cumsum(1 / np.arange(1, PAGES + 1))
    order = rng.permutation(PAGES)
    return lambda start, end: order[
        np.searchsorted(below, rng.random(int(end * rate) - int(start * rate)) * below[-1], side="right")
    ]


@pytest.mark.parametrize("period_s", [0.05, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("order", [ring, uniform, zipf])
def test_the_bounds_are_close_and_the_estimate_closer(order, period_s):
    bursts, truth = bursts_of(order(PAGES / period_s))
    lower, upper, estimate = (value / PAGE for value in bursts.within(0.5))
    assert upper <= 2 * lower
    assert estimate == pytest.approx(truth, rel=0.2)
    if order is ring:  # of other streams the bounds' medians are those of other touches
        assert lower <= truth <= upper


def test_what_comes_back_within_a_probe_stays_between_wide_bounds():
    bursts, truth = bursts_of(ring(PAGES / 0.004), 3)
    lower, upper, estimate = (value / PAGE for value in bursts.within(0.5))
    assert (lower, upper) == (1, PAGES)
    assert truth == PAGES
    assert estimate == pytest.approx(0.81 * PAGES, rel=0.05)


def test_touches_of_pages_that_did_not_come_back_are_beyond_every_distance():
    one, two, three = (PageSet.from_pages(pages) for pages in ([1, 2], [3], [1, 9]))
    bursts = BurstReuse()
    assert (bursts.probe_ns, bursts.within(0.5), bursts.touches) == (None, None, 0)
    bursts.add(4, 10_000_000, probe_distances(one, [two, three]))
    assert (bursts.count, bursts.touches, bursts.probe_ns) == (1, 2, 10_000_000)
    assert bursts.within(0.5)[:2] == (2 * PAGE, 4 * PAGE)
    assert bursts.within(0.6) is None
    bursts.add(4, 12_000_000, probe_distances(one, [two, three]))  # of another process
    assert (bursts.count, bursts.touches, bursts.probe_ns) == (1, 4, 11_000_000)
    without = probe_distances(None, [two, three])
    assert (without.first_touches, without.touches) == (2, 2)
