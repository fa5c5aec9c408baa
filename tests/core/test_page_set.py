"""Page sets against plain Python sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.core import page_set
from memtui.core.page_set import ADDRESS_BITS, PageSet, parts_of
from memtui.core.page_sizes import BLOCK_BYTES, BLOCK_SHIFT, GIANT_BYTES, GIANT_SHIFT
from tests.support.strategies import page_sets, same_pages


@given(st.sets(st.integers(0, 2**36 - 1), max_size=200))
def test_pages_come_back_as_they_went_in(pages):
    page_set = PageSet.from_pages(list(pages))
    assert page_set.pages().tolist() == sorted(pages)
    assert page_set.page_count == page_set.touch_count == len(pages)
    assert page_set.size_bytes == len(pages) * 4096


@given(page_sets())
def test_codec_round_trip(pages):
    assert same_pages(PageSet.decode(pages.encode()), pages)


@given(page_sets())
def test_ranges_cover_exactly_the_touched_pages(pages):
    covered = {page for start, end, size in pages.ranges() if size == 4096 for page in range(start >> 12, end >> 12)}
    assert covered == set(pages.pages().tolist())
    assert sum(end - start for start, end, _ in pages.ranges()) == pages.size_bytes
    ends = {(end, size) for _, end, size in pages.ranges()}
    assert not ends & {(start, size) for start, _, size in pages.ranges()}, "neighbours must be one range"


def test_from_blocks_leaves_out_what_is_empty_and_sorts():
    page_set = PageSet.from_blocks([7, 3, 5], [[1] + [0] * 7, [0] * 8, [0] * 7 + [1 << 63]], huge=[9, 8])
    assert page_set.blocks.tolist() == [5, 7]
    assert page_set.pages().tolist() == [5 * 512 + 511, 7 * 512]
    assert page_set.huge.tolist() == [8, 9]


@pytest.mark.parametrize("damage", [b"", b"\0", b"x" * 40])
def test_damaged_data_is_refused(damage):
    with pytest.raises(ValueError, match="damaged page set"):
        PageSet.decode(damage)


@given(page_sets(), st.integers(1, 10))
def test_truncated_data_is_refused(pages, cut):
    with pytest.raises(ValueError, match="damaged page set"):
        PageSet.decode(pages.encode()[:-cut])


def numbers_of(pages: PageSet) -> set[tuple[str, int]]:
    named = (("page", pages.pages()), ("huge", pages.huge), ("giant", pages.giant))
    return {(name, number) for name, numbers in named for number in numbers.tolist()}


NEAR = page_sets(max_page=6000)


@given(NEAR | page_sets(), NEAR | page_sets())
def test_union_and_difference_are_those_of_sets(one, other):
    assert numbers_of(one.union(other)) == numbers_of(one) | numbers_of(other)
    left = one.difference(other)
    assert numbers_of(left) == numbers_of(one) - numbers_of(other)
    assert left.bits.any(axis=1).all(), "no block without a page"
    assert same_pages(one.union(PageSet.empty()), one)
    assert same_pages(one.difference(PageSet.empty()), one)
    assert not one.difference(one).touch_count


@given(page_sets())
def test_sizes_are_sums_of_the_pages(pages):
    kinds = [kind for kind, _ in numbers_of(pages)]
    sizes = {"page": 4096, "huge": 2 << 20, "giant": 1 << 30}
    assert pages.page_count == kinds.count("page")
    assert pages.touch_count == len(kinds)
    assert pages.size_bytes == sum(sizes[kind] for kind in kinds)
    assert pages.memory_bytes == 72 * len(pages.blocks) + 8 * (len(pages.huge) + len(pages.giant))


def test_parts_of_blocks_are_in_their_order():
    assert parts_of(np.array([5, 2], np.uint64), 2).tolist() == [20, 21, 22, 23, 8, 9, 10, 11]


def test_ranges_end_at_borders_where_pages_go_on():
    """Pages 3 to 9, huge pages 7 to 9 and giant ones 2 and 3: a range ends where one of them is a border."""
    page_set = PageSet.from_pages(range(3, 10))
    page_set = PageSet(page_set.blocks, page_set.bits, np.array([7, 8, 9], np.uint64), np.array([2, 3], np.uint64))
    borders = [5 * 4096, 3 * 4096, 10 * 4096, 8 * BLOCK_BYTES, 3 * GIANT_BYTES]
    ranges = [(start // size, end // size, size) for start, end, size in page_set.runs(borders)]
    assert ranges == [
        (3, 5, 4096), (5, 10, 4096), (7, 8, BLOCK_BYTES), (8, 10, BLOCK_BYTES), (2, 3, GIANT_BYTES), (3, 4, GIANT_BYTES)
    ]  # fmt: skip
    assert [size for *_, size in page_set.ranges()] == [4096, BLOCK_BYTES, GIANT_BYTES]


@pytest.mark.parametrize("border", [None, 2047, 2048, 2049])
def test_ranges_go_on_from_one_part_of_the_blocks_to_the_next(border):
    """They are made of 2048 blocks at a time."""
    count = 2100
    page_set = PageSet.from_blocks(range(count), np.full((count, 8), 2**64 - 1, np.uint64))
    ranges = list(page_set.runs([] if border is None else [border * BLOCK_BYTES]))
    expected = [(0, count)] if border is None else [(0, border), (border, count)]
    assert ranges == [(a * BLOCK_BYTES, b * BLOCK_BYTES, 4096) for a, b in expected]
    apart = page_set.difference(PageSet.from_pages([2048 * 512]))
    assert [end - start for start, end, _ in apart.ranges()] == [
        2048 * BLOCK_BYTES, (count - 2048) * BLOCK_BYTES - 4096
    ]  # fmt: skip


@pytest.mark.parametrize("shift", [BLOCK_SHIFT, GIANT_SHIFT])
def test_no_page_lies_above_the_last_address(shift):
    for kind in ("blocks", "huge") if shift == BLOCK_SHIFT else ("giant",):
        for number, fits in (((1 << ADDRESS_BITS - shift) - 1, True), (1 << ADDRESS_BITS - shift, False)):
            numbers = np.array([number], np.uint64)
            none = numbers[:0]
            parts = {"blocks": none, "bits": np.ones((len(none), 8), np.uint64), "huge": none, "giant": none}
            parts |= {kind: numbers}
            if kind == "blocks":
                parts["bits"] = np.ones((1, 8), np.uint64)
            page_set = PageSet(**parts)
            if fits:
                assert same_pages(PageSet.decode(page_set.encode()), page_set)
            else:
                with pytest.raises(ValueError, match="damaged page set: page numbers do not rise"):
                    PageSet.decode(page_set.encode())


def test_a_set_that_would_take_too_much_memory_is_refused_before_it_is_unpacked(monkeypatch):
    made = PageSet.from_pages(range(0, 512 * 10, 512))
    exact = 12 + 10 * 72
    monkeypatch.setattr(page_set, "MAX_ENCODED_BYTES", exact)
    assert same_pages(PageSet.decode(made.encode()), made)
    monkeypatch.setattr(page_set, "MAX_ENCODED_BYTES", exact - 1)
    with pytest.raises(ValueError, match="damaged page set: 10 blocks are too many"):
        PageSet.decode(made.encode())
