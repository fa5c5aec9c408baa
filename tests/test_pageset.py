"""Page sets against plain Python sets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.pageset import PageSet
from tests.strategies import page_sets, same_pages


@given(st.sets(st.integers(0, 2**36 - 1), max_size=200))
def test_pages_come_back_as_they_went_in(pages):
    made = PageSet.from_pages(list(pages))
    assert made.pages().tolist() == sorted(pages)
    assert made.page_count == made.touch_count == len(pages)
    assert made.size_bytes == len(pages) * 4096


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
    made = PageSet.from_blocks([7, 3, 5], [[1] + [0] * 7, [0] * 8, [0] * 7 + [1 << 63]], huge=[9, 8])
    assert made.blocks.tolist() == [5, 7]
    assert made.pages().tolist() == [5 * 512 + 511, 7 * 512]
    assert made.huge.tolist() == [8, 9]


@pytest.mark.parametrize("damage", [b"", b"\0", b"x" * 40])
def test_damaged_data_is_refused(damage):
    with pytest.raises(ValueError, match="damaged page set"):
        PageSet.decode(damage)


@given(page_sets(), st.integers(1, 10))
def test_truncated_data_is_refused(pages, cut):
    with pytest.raises(ValueError, match="damaged page set"):
        PageSet.decode(pages.encode()[:-cut])
