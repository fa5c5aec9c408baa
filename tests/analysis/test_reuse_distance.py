"""Reuse-distance bounds: the golden case, a naive tracker with dicts, and theory."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.reuse_distance import ReuseSample, ReuseTracker
from memtui.core.page_set import PageSet

PAGE, HUGE, GIANT = 4096, 2 << 20, 1 << 30


def make(pages=(), huge=(), giant=()):
    small = PageSet.from_pages(list(pages))
    return PageSet.from_blocks(small.blocks, small.bits, list(huge), list(giant))


def tally(samples: list[ReuseSample], unit: int = PAGE) -> tuple[dict[int, int], dict[int, int]]:
    upper: Counter[int] = Counter()
    lower: Counter[int] = Counter()
    for s in samples:
        upper[-1] += s.first_touches
        lower[-1] += s.first_touches
        for u, low, n in zip(s.upper_bytes.tolist(), s.lower_bytes.tolist(), s.counts.tolist(), strict=True):
            assert u % PAGE == 0
            assert low % PAGE == 0
            upper[u // unit] += n
            lower[low // unit] += n
    return dict(upper), dict(lower)


def test_golden_case_of_memsnoop():
    tracker = ReuseTracker()
    samples = [tracker.touch(make(p)) for p in ([1, 2, 3, 4], [1, 5], [1, 2], [2, 4, 5, 6])]
    upper, lower = tally(samples)
    assert upper == {-1: 6, 3: 1, 5: 4, 6: 1}
    assert lower == {-1: 6, 1: 3, 3: 2, 4: 1}
    assert tracker.seen_bytes == 6 * PAGE


def test_cyclic_sweep_has_the_distance_of_its_length():
    tracker = ReuseTracker()
    samples = [tracker.touch(make([i % 100 * 7])) for i in range(1000)]
    assert tally(samples) == ({-1: 100, 100: 900}, {-1: 100, 100: 900})


class Naive:
    """Pages by (number, size) in dicts; unions as sets, after the definition rather than the identity."""

    def __init__(self):
        self.last: dict[tuple[int, int], int] = {}  # (address, size) -> window
        self.window = 0

    def touch(self, pages: PageSet) -> tuple[Counter, int, int]:
        now = {(g << 30, GIANT) for g in pages.giant.tolist()}
        now |= {(h << 21, HUGE) for h in pages.huge.tolist() if (h >> 9 << 30, GIANT) not in now}
        now |= {
            (p << 12, PAGE)
            for p in pages.pages().tolist()
            if (p >> 9 << 21, HUGE) not in now and (p >> 18 << 30, GIANT) not in now
        }
        for address, size in now:  # splits: giants first, then huge pages
            if size < GIANT and (window := self.last.pop((address >> 30 << 30, GIANT), 0)):
                for i in range(512):
                    self.last[(address >> 30 << 30) + i * HUGE, HUGE] = window
        for address, size in now:
            if size < HUGE and (window := self.last.pop((address >> 21 << 21, HUGE), 0)):
                for i in range(512):
                    self.last[(address >> 21 << 21) + i * PAGE, PAGE] = window
        before = dict(self.last)
        old = {}
        for address, size in now:
            inside = [k for k in self.last if k[1] < size and address <= k[0] < address + size]
            inherited = max((self.last.pop(k) for k in inside), default=0)
            old[address, size] = self.last.pop((address, size), inherited)
        self.window += 1
        self.last.update(dict.fromkeys(now, self.window))
        result: Counter = Counter()
        firsts = first_bytes = 0
        for page in now:
            i = old[page]
            if not i:
                firsts, first_bytes = firsts + 1, first_bytes + page[1]
                continue
            upper = sum(size for (_, size), w in self.last.items() if w >= i)
            lower = page[1] + sum(size for (_, size), w in before.items() if w > i)
            result[upper, lower] += 1
        return result, firsts, first_bytes


def compare(sequence: list[PageSet]) -> None:
    naive, tracker = Naive(), ReuseTracker()
    for pages in sequence:
        expected, firsts, first_bytes = naive.touch(pages)
        sample = tracker.touch(pages)
        result: Counter = Counter()
        for u, low, n in zip(sample.upper_bytes, sample.lower_bytes, sample.counts, strict=True):
            assert low <= u
            result[int(u), int(low)] += int(n)
        assert (result, sample.first_touches, sample.first_touch_bytes) == (expected, firsts, first_bytes)
        assert tracker.seen_bytes == sum(size for _, size in naive.last)


small_sets = st.builds(make, st.frozensets(st.integers(0, 40).map(lambda p: p * 37), max_size=12))


@settings(deadline=None)
@given(st.lists(small_sets, max_size=12))
def test_small_pages_against_sets(sequence):
    compare(sequence)


mixed_sets = st.builds(
    make,
    st.frozensets(st.integers(0, 7).map(lambda p: p * 200), max_size=6),
    st.frozensets(st.integers(0, 4), max_size=3),
)


@settings(deadline=None)
@given(st.lists(mixed_sets, max_size=10))
def test_collapse_and_split_of_2_mib_pages_against_sets(sequence):
    compare(sequence)


giant_sets = st.builds(
    make,
    st.frozensets(st.sampled_from([0, 5, 600, 2**18 - 1, 2**18, 2**18 + 700]), max_size=4),
    st.frozensets(st.sampled_from([0, 1, 511, 512, 513]), max_size=3),
    st.frozensets(st.integers(0, 1), max_size=1),
)


@settings(deadline=None, max_examples=40)
@given(st.lists(giant_sets, max_size=6))
def test_collapse_and_split_of_1_gib_pages_against_sets(sequence):
    compare(sequence)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 12), max_size=8), max_size=10), st.randoms(use_true_random=False))
def test_the_exact_distance_lies_between_the_bounds(windows, random):
    """Whatever the order inside windows: an exact LRU stack at the first touch of each page per window.

    An order in which each page's touch in a window comes once is one possible truth; its distances must obey.
    """
    tracker = ReuseTracker()
    stack: list[int] = []
    for window in windows:
        order = list(dict.fromkeys(window))
        random.shuffle(order)
        exact = []
        for page in order:
            if page in stack:
                exact.append((stack.index(page) + 1) * PAGE)
                stack.remove(page)
            stack.insert(0, page)
        sample = tracker.touch(make(window))
        lower = np.sort(np.repeat(sample.lower_bytes, sample.counts))
        upper = np.sort(np.repeat(sample.upper_bytes, sample.counts))
        assert len(exact) == len(lower)
        assert (lower <= np.sort(exact)).all()  # sorted bounds bound the sorted truth
        assert (np.sort(exact) <= upper).all()


@settings(deadline=None)
@given(st.lists(small_sets, max_size=12))
def test_touches_add_up(sequence):
    tracker = ReuseTracker()
    samples = [tracker.touch(pages) for pages in sequence]
    assert sum(s.touches for s in samples) == sum(p.touch_count for p in sequence)
    assert sum(s.first_touches for s in samples) == len({n for p in sequence for n in p.pages().tolist()})
    assert all(np.all(s.counts > 0) for s in samples)


def test_long_sessions_drop_windows_without_pages():
    tracker, naive = ReuseTracker(), Naive()
    rng = np.random.default_rng(1)
    for _ in range(3000):
        pages = make(rng.integers(0, 60, rng.integers(1, 6)))
        expected, _, _ = naive.touch(pages)
        sample = tracker.touch(pages)
        result: Counter = Counter()
        for u, low, n in zip(sample.upper_bytes.tolist(), sample.lower_bytes.tolist(), sample.counts, strict=True):
            result[u, low] += int(n)
        assert result == expected
    assert tracker._slots <= 512  # 60 pages: at most 60 windows matter


def test_memory_is_two_kib_per_block():
    tracker = ReuseTracker()
    tracker.touch(make(np.arange(0, 2000 * 512, 512)))
    assert tracker.memory_bytes < 2000 * 2048 * 1.02 + 100_000


def test_an_empty_window_changes_nothing():
    tracker = ReuseTracker()
    tracker.touch(make([1]))
    empty = tracker.touch(PageSet.empty())
    assert (empty.touches, len(empty.counts)) == (0, 0)
    again = tracker.touch(make([1]))
    assert (again.lower_bytes.tolist(), again.upper_bytes.tolist()) == ([PAGE], [PAGE])


@pytest.mark.parametrize("parts", [{"pages": [512]}, {"huge": [1]}])
def test_a_block_in_two_sizes_counts_in_the_larger(parts):
    tracker = ReuseTracker()
    both = make([512, 513], [1]) if "pages" in parts else make([], [1], [0])
    sample = tracker.touch(both)
    assert sample.first_touches == 1


@settings(deadline=None)
@given(st.lists(mixed_sets, max_size=10), st.lists(st.integers(0, 4), max_size=3))
def test_what_is_told_of_ranges_adds_up_to_the_whole(sequence, cuts):
    """Ranges that share no page, since none of them begins or ends inside a 2 MiB page."""
    edges = sorted({0, *(cut * HUGE for cut in cuts), 5 * HUGE})
    whole = ReuseTracker()
    every = [whole.touch(pages) for pages in sequence]
    parts = []
    for within in pairwise(edges):
        tracker = ReuseTracker()
        reported = [tracker.touch(pages, within) for pages in sequence]
        assert tracker.seen_bytes == whole.seen_bytes
        parts.append(reported)
    for number, expected in enumerate(every):
        result = [part[number] for part in parts]
        assert sum(sample.first_touch_bytes for sample in result) == expected.first_touch_bytes
        assert tally(result) == tally([expected])


def test_a_touch_is_told_of_its_own_page_only():
    tracker = ReuseTracker()
    tracker.touch(make([1, 2, 3, 4]))
    sample = tracker.touch(make([1, 2, 4, 9]), (2 * PAGE, 4 * PAGE))
    # Page 2 came back; 4 pages were touched since, and 9 is new in this window.
    assert (sample.first_touches, sample.counts.tolist()) == (0, [1])
    assert (sample.lower_bytes.tolist(), sample.upper_bytes.tolist()) == ([PAGE], [5 * PAGE])
    assert tracker.touch(make([1]), (2 * PAGE, 4 * PAGE)).touches == 0
