"""Touches of many windows together: against naive sums, and against the mean of the windows' own columns."""

import zlib
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis import access_counts
from memtui.analysis.access_counts import (
    CHUNK_SHIFT,
    SUMMED_SAMPLES,
    TouchLevels,
    TouchSum,
    TouchTally,
    add_up,
    bin_sum,
)
from memtui.analysis.heat_map import HeatRange, Layout, bin_column
from memtui.core.page_set import PageSet
from memtui.session.blobs import decode_touch_sum, encode_touch_sum
from tests.conftest import LONG

PAGE = 4096
PER_CHUNK, PER_BLOCK, PER_GIANT = 16, 512, 512 * 512

windows = st.lists(
    st.tuples(
        st.frozensets(st.integers(0, 4000), max_size=200),  # 4 KiB pages
        st.frozensets(st.integers(8, 12), max_size=2),  # 2 MiB pages, behind them
        st.frozensets(st.integers(1, 2), max_size=1),  # 1 GiB pages
    ),
    max_size=6,
)


def page_set(window: tuple[frozenset, frozenset, frozenset]) -> PageSet:
    pages, huge, giant = window
    small = PageSet.from_pages(sorted(pages))
    return PageSet.from_blocks(small.blocks, small.bits, sorted(huge), sorted(giant))


def naive(some: list, shift: int) -> dict[int, int]:
    """Touches by chunk, page by page."""
    result: Counter[int] = Counter()
    for pages, huge, giant in some:
        numbers = list(pages)
        numbers += [page for block in huge for page in range(block * PER_BLOCK, (block + 1) * PER_BLOCK)]
        numbers += [page for one in giant for page in range(one * PER_GIANT, (one + 1) * PER_GIANT)]
        result.update(page >> (shift - 12) for page in numbers)
    return dict(result)


def by_chunk(found: TouchSum) -> dict[int, int]:
    chunks, touches = found.chunks()
    return dict(zip(chunks.tolist(), touches.tolist(), strict=True))


def taken(some: list) -> TouchSum | None:
    tally = TouchTally()
    for window in some:
        tally.add(page_set(window))
    return tally.pop()


@settings(deadline=None, max_examples=50 if LONG else 20)
@given(windows)
def test_a_sum_is_the_naive_one_and_survives_storing(some):
    result = taken(some)
    if not some:
        assert result is None
        return
    assert (result.windows, result.shift) == (len(some), CHUNK_SHIFT)
    assert by_chunk(result) == naive(some, CHUNK_SHIFT)
    again = decode_touch_sum(encode_touch_sum(result))
    assert (again.windows, again.shift) == (result.windows, result.shift)
    np.testing.assert_array_equal(again.groups, result.groups)
    np.testing.assert_array_equal(again.touches, result.touches)


@settings(deadline=None, max_examples=50 if LONG else 20)
@given(windows.filter(bool), windows.filter(bool), st.integers(0, 8))
def test_sums_add_up_in_the_larger_chunks(some, others, coarser):
    shift = CHUNK_SHIFT + coarser
    together = add_up([taken(some), taken(others).coarser(shift)])
    assert (together.windows, together.shift) == (len(some) + len(others), shift)
    assert by_chunk(together) == naive(some + others, shift)
    for block in (shift - 3, shift, shift + 3):
        wanted = (
            {chunk << 3 | n for chunk in by_chunk(together) for n in range(8)}
            if block < shift
            else {chunk >> (block - shift) for chunk in by_chunk(together)}
        )
        assert together.blocks(block).tolist() == sorted(wanted)


def test_much_memory_has_larger_chunks(monkeypatch):
    monkeypatch.setattr(access_counts, "MAX_GROUPS", 4)
    pages = range(0, 1000 * PER_CHUNK, 4)  # 1000 chunks with 4 touches each, in 32 groups
    result = taken([(pages, (), ())])
    assert (result.shift, len(result.groups)) == (CHUNK_SHIFT + 3, 4)
    assert by_chunk(result) == dict.fromkeys(range(125), 32)


def test_what_was_taken_is_not_counted_again():
    tally = TouchTally()
    tally.add(PageSet.from_pages([1, 2]))
    assert by_chunk(tally.pop()) == {0: 2}
    assert tally.pop() is None
    tally.add(PageSet.from_pages([40]))
    result = tally.pop()
    assert (result.windows, by_chunk(result)) == (1, {2: 1})


def test_every_level_adds_up_all_windows_of_it_and_the_last_sum_has_what_is_left():
    levels, result = TouchLevels(), {level: [] for level in range(4)}
    samples = 4096 + 1024 + 256 + 64 + 5
    for sample in range(samples):
        levels.tally.add(PageSet.from_pages([16 * sample]))
        if (sample + 1) % 64 == 0 or sample + 1 == samples:
            for level, one in levels.end(sample + 1):
                result[level].append((sample, one.windows, by_chunk(one)))
    for level, size in enumerate(SUMMED_SAMPLES):
        whole = [(n + size - 1, size, dict.fromkeys(range(n, n + size), 1)) for n in range(0, samples - size + 1, size)]
        if level == 0:
            whole.append((samples - 1, 5, dict.fromkeys(range(samples - 5, samples), 1)))
        assert result[level] == whole


def test_a_process_that_ended_is_in_the_sums_above():
    levels = TouchLevels()
    levels.tally.add(PageSet.from_pages([1]))
    assert [level for level, _ in levels.end(64)] == [0]
    assert [(level, one.windows, by_chunk(one)) for level, one in levels.end(256)] == [(1, 1, {0: 1})]
    assert levels.end(320) == []


@settings(deadline=None, max_examples=50 if LONG else 20)
@given(windows, st.integers(1, 12), st.integers(1, 2))
def test_bins_of_whole_chunks_are_the_mean_of_the_windows(some, rows, subrows):
    # A row holds so many pages that each bin edge is one of a chunk.
    size = PER_CHUNK * rows * subrows * PAGE
    layout = Layout.build([HeatRange(0, 0, size)], rows, subrows)
    column = bin_sum(taken(some), layout)
    if not some:
        assert np.isnan(column).all()
        return
    wanted = np.mean([bin_column(page_set(window), layout) for window in some], axis=0)
    np.testing.assert_allclose(column, wanted, atol=1e-6)


def test_touches_are_spread_over_what_is_shown_of_a_chunk():
    # Of a chunk of 16 pages, pages 0..3 and 8..11 are mapped; all of them were touched in one of two windows.
    touched = [0, 1, 2, 3, 8, 9, 10, 11]
    ranges = [HeatRange(0, 0, 4 * PAGE), HeatRange(1, 8 * PAGE, 12 * PAGE)]
    layout = Layout.build(ranges, 2, 1)
    column = bin_sum(taken([(touched, (), ()), ((), (), ())]), layout)
    np.testing.assert_allclose(column, [0.5, 0.5])


@pytest.mark.parametrize(
    ("windows", "shift", "groups", "touches"),
    [
        (0, 16, [1], 1),
        ((1 << 12) + 1, 16, [1], 1),
        (1, 15, [1], 1),
        (1, 31, [1], 1),
        (1, 16, [1], 17),
        (1, 16, [2, 1], 1),
        (1, 16, [1, 1], 1),
        (1, 16, [1 << 36], 1),
        (1, 16, [1, 1 << 63], 1),
    ],
)
def test_what_no_recorder_wrote_is_refused(windows, shift, groups, touches):
    table = np.full((len(groups), 32), touches, np.int64)
    bad = TouchSum(windows, shift, np.array(groups, np.uint64), table)
    with pytest.raises(ValueError, match="holds"):
        decode_touch_sum(encode_touch_sum(bad))


@pytest.mark.parametrize("cut", [1, 8, 100])
def test_half_a_group_is_refused(cut):
    raw = zlib.decompress(encode_touch_sum(taken([((1, 2), (), ())])))
    with pytest.raises(ValueError, match="not whole groups"):
        decode_touch_sum(zlib.compress(raw[:-cut]))
