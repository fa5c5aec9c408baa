"""Working-set size by range and page selection, against a set of 4 KiB pages."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.working_set import block_counts, bytes_by_range, select, touched_outside
from memtui.core.page_set import PageSet

PAGE = 4096
SPAN = 6 * 512  # 4 KiB pages of the little address space


def page_sets(base: int = 0):
    """Sets in which 4 KiB and 2 MiB pages never share a block; some with a 1 GiB page further up."""
    return st.builds(
        lambda huge, pages, giant: make(
            [base + p for p in pages if p // 512 not in huge], [base // 512 + h for h in huge], giant
        ),
        st.frozensets(st.integers(0, SPAN // 512 - 1), max_size=3),
        st.frozensets(st.integers(0, SPAN - 1), max_size=60),
        st.sampled_from([(), (1,), (1, 2)]) if not base else st.just(()),
    )


def make(pages, huge, giant):
    small = PageSet.from_pages(list(pages))
    return PageSet.from_blocks(small.blocks, small.bits, list(huge), list(giant))


@st.composite
def range_lists(draw, base: int = 0):
    edges = draw(st.lists(st.one_of(st.integers(0, SPAN), st.integers(2**18, 3 * 2**18)), max_size=14).map(sorted))
    if base:
        edges = [e for e in edges if e <= SPAN]
    pairs = [(base + a, base + b) for a, b in zip(edges[::2], edges[1::2], strict=False)]
    return [a * PAGE for a, _ in pairs], [b * PAGE for _, b in pairs]


def naive_pages(pages: PageSet) -> set[int]:
    """Every 4 KiB page number below 2 GiB or among the small and huge pages; giants as ranges elsewhere."""
    result = {int(p) for p in pages.pages()}
    for h in pages.huge.tolist():
        result.update(range(h * 512, h * 512 + 512))
    return result


def naive_bytes(pages: PageSet, start: int, end: int) -> int:
    giants = sum(max(0, min(end, (g + 1) << 30) - max(start, g << 30)) for g in pages.giant.tolist())
    return giants + PAGE * sum(start <= p * PAGE < end for p in naive_pages(pages))


@settings(deadline=None)
@given(page_sets(), range_lists())
def test_bytes_by_range_is_the_naive_count(pages, ranges):
    starts, ends = ranges
    expected = [naive_bytes(pages, a, b) for a, b in zip(starts, ends, strict=True)]
    assert bytes_by_range(pages, starts, ends).tolist() == expected
    assert touched_outside(pages, starts, ends) == pages.size_bytes - sum(expected)


@settings(deadline=None)
@given(page_sets(), range_lists(), st.data())
def test_select_keeps_the_pages_of_kept_ranges(pages, ranges, data):
    starts, ends = ranges
    keep = data.draw(st.lists(st.booleans(), min_size=len(starts), max_size=len(starts)))
    kept = [(a, b) for a, b, k in zip(starts, ends, keep, strict=True) if k]

    def inside(low, size):
        return any(max(a, low) < min(b, low + size) for a, b in kept)

    result = select(pages, starts, ends, keep)
    assert result.pages().tolist() == [p for p in pages.pages().tolist() if inside(p * PAGE, PAGE)]
    assert result.huge.tolist() == [h for h in pages.huge.tolist() if inside(h << 21, 1 << 21)]
    assert result.giant.tolist() == [g for g in pages.giant.tolist() if inside(g << 30, 1 << 30)]
    assert result.bits.any(axis=1).all()
    assert PageSet.decode(result.encode()).size_bytes == result.size_bytes


@settings(deadline=None)
@given(page_sets(base=(2**64 - (16 << 20)) // PAGE), range_lists(base=(2**64 - (16 << 20)) // PAGE))
def test_the_top_of_the_address_space_does_not_overflow(pages, ranges):
    starts, ends = ranges
    expected = [naive_bytes(pages, a, b) for a, b in zip(starts, ends, strict=True)]
    assert bytes_by_range(pages, starts, ends).tolist() == expected
    assert select(pages, starts, ends, [True] * len(starts)).page_count * PAGE <= sum(expected)


def test_the_very_last_block_is_selected():
    pages = PageSet.from_pages([2**52 - 1, 2**52 - 512])
    start = 2**64 - 512 * PAGE
    assert select(pages, [start], [2**64 - PAGE], [True]).pages().tolist() == [2**52 - 512]


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=8, max_size=80).map(lambda w: w[: len(w) // 8 * 8]))
def test_block_counts(words):
    bits = np.array(words, np.uint64).reshape(-1, 8)
    assert block_counts(bits).tolist() == [sum(int(w).bit_count() for w in row) for row in bits]


def test_a_full_block_counts_512():
    assert block_counts(np.full((2, 8), 2**64 - 1, np.uint64)).tolist() == [512, 512]


def test_huge_pages_are_clipped_to_ranges():
    pages = make([], [1], [])
    mib = 1 << 20
    assert bytes_by_range(pages, [0, 3 * mib], [3 * mib, 9 * mib]).tolist() == [mib, mib]
    assert select(pages, [0, 3 * mib], [3 * mib, 9 * mib], [False, True]).huge.tolist() == [1]


def test_nothing_touched_and_no_range():
    assert bytes_by_range(PageSet.empty(), [0], [PAGE]).tolist() == [0]
    assert bytes_by_range(PageSet.from_pages([1]), [], []).tolist() == []
    assert select(PageSet.from_pages([1]), [], [], []).touch_count == 0
    assert touched_outside(PageSet.from_pages([1]), [], []) == PAGE


@pytest.mark.parametrize(
    ("starts", "ends", "text"),
    [
        ([0, PAGE], [2 * PAGE, 3 * PAGE], "disjoint"),
        ([2 * PAGE, 0], [3 * PAGE, PAGE], "sorted"),
        ([2 * PAGE], [PAGE], "end before"),
        ([1], [PAGE], "multiples of 4096"),
        ([0], [], "as many starts as ends"),
    ],
)
def test_bad_ranges_are_refused(starts, ends, text):
    with pytest.raises(ValueError, match=text):
        bytes_by_range(PageSet.empty(), starts, ends)


def test_select_wants_one_flag_per_range():
    with pytest.raises(ValueError, match="keep"):
        select(PageSet.empty(), [0], [PAGE], [True, False])
