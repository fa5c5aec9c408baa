"""The address axis of the heat map: a mostly empty address space folded onto a few rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.heat_layout import HeatRange, Layout, blocks_of
from memtui.analysis.heat_map import bin_column
from memtui.core.page_set import PageSet

PAGE, MIB, GIB = 4096, 1 << 20, 1 << 30


def at(key: int, start: int, end: int, label: str = "", weight: int | None = None) -> HeatRange:
    return HeatRange(key, start * PAGE, end * PAGE, label, weight)


def pages_of(*numbers: int) -> PageSet:
    return PageSet.from_pages(list(numbers))


range_lists = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 700)), max_size=8).map(
    lambda rows: [at(i, a, a + n) for i, (a, n) in enumerate(rows)]
)


def owners(ranges: list[HeatRange]) -> dict[int, int]:
    """Naive: page number -> index of the shortest range that holds it (the last of equals)."""
    result: dict[int, int] = {}
    for i in sorted(range(len(ranges)), key=lambda i: ranges[i].start - ranges[i].end):
        result.update(dict.fromkeys(range(ranges[i].start // PAGE, ranges[i].end // PAGE), i))
    return result


@settings(deadline=None)
@given(
    range_lists,
    st.integers(1, 12),
    st.integers(1, 3),
    st.sampled_from(["address", "weight"]),
    st.one_of(st.none(), st.sets(st.integers(0, 8)).map(sorted)),
    st.one_of(st.none(), st.tuples(st.integers(0, 2000), st.integers(2001, 4000))),
    st.frozensets(st.integers(0, 3800), max_size=300),
)
def test_every_page_is_in_one_bin_and_shares_are_the_naive_ones(
    ranges, rows, subrows, order, blocks, interval, touched
):
    zoom = None if interval is None else (interval[0] * PAGE, interval[1] * PAGE)
    layout = Layout.build(
        ranges, rows, subrows, touched_blocks=blocks, interval=zoom, order=order, gap_bytes=100 * PAGE
    )
    shown = [
        page
        for page in owners(ranges)
        if (blocks is None or page // 512 in blocks) and (interval is None or interval[0] <= page < interval[1])
    ]
    where = layout.bin_of([page * PAGE for page in range(4000)])
    assert set(np.flatnonzero(where >= 0).tolist()) == set(shown)
    assert sum(band.size_bytes for band in layout.bands if band.kind != "gap") == len(shown) * PAGE
    assert (layout.starts < layout.ends).all()
    assert (layout.ends[:-1] <= layout.starts[1:]).all()

    column = bin_column(PageSet.from_pages(list(touched)), layout)
    for b in range(rows * subrows):
        mine = np.flatnonzero(where == b)
        assert layout.bin_bytes[b] == len(mine) * PAGE
        assert sum(e - s for s, e in layout.addresses_of(b)) == len(mine) * PAGE
        if len(mine):
            assert column[b] == pytest.approx(sum(int(p) in touched for p in mine) / len(mine))
    row = 0
    for band in layout.bands:  # without holes, and what a band shows is its own
        assert band.row == row
        assert band.rows >= 1
        row += band.rows
        inside = slice(band.row * subrows, row * subrows)
        assert np.isnan(column[inside]).all() == (band.kind == "gap")
        assert layout.band_at(band.row) == layout.band_at(row - 1) == band
        if band.kind == "range":
            pages = np.flatnonzero((where >= inside.start) & (where < inside.stop))
            own = owners(ranges)
            assert {ranges[own[int(p)]].key for p in pages} == {band.key}
            assert (band.start, band.end) == (pages.min() * PAGE, (pages.max() + 1) * PAGE)
            assert (np.diff(where[pages]) >= 0).all()  # addresses rise downwards inside a band
    assert row <= rows
    assert np.isnan(column[row * subrows :]).all()


def test_small_hot_ranges_are_visible_beside_a_large_one():
    ranges = [
        at(1, 1000, 1033, "[heap]"),
        HeatRange(2, GIB, GIB + 586 * MIB, "data set"),
        HeatRange(3, 4 * GIB, 4 * GIB + 64 * MIB, "hot"),
        at(4, 2**30, 2**30 + 34, "[stack]"),
    ]
    layout = Layout.build(ranges, 16, 2, gap_bytes=2 * GIB)
    rows = {band.label: band.rows for band in layout.bands}
    assert rows["[heap]"] >= 1
    assert rows["[stack]"] >= 1
    assert 2 < rows["data set"] / rows["hot"] < 4  # the square root of 9
    gap_sizes = [band.size_bytes for band in layout.bands if band.kind == "gap"]
    assert gap_sizes == [2 * GIB + 438 * MIB, 2**30 * PAGE - 4 * GIB - 64 * MIB]
    assert sum(band.rows for band in layout.bands) == 16


def test_weights_decide_when_given():
    ranges = [at(1, 0, 100_000, weight=4 * MIB), at(2, 200_000, 300_000, weight=64 * MIB)]
    heights = [band.rows for band in Layout.build(ranges, 22).bands]
    assert heights == [5, 17]  # one each, then 1 : 4


def test_zooming_scales_given_weights():
    ranges = [at(1, 0, 1000, weight=1000), at(2, 1000, 2000, weight=1000)]
    layout = Layout.build(ranges, 100, interval=(900 * PAGE, 2000 * PAGE))
    assert [band.start // PAGE for band in layout.bands] == [900, 1000]
    assert layout.bands[0].rows < layout.bands[1].rows / 2.5


def test_more_ranges_than_rows_share_the_last():
    ranges = [at(i, 100 * i, 100 * i + 1 + i % 10) for i in range(50)]
    layout = Layout.build(ranges, 6)
    kinds = [(band.kind, band.ranges) for band in layout.bands]
    assert kinds == [("range", 1)] * 5 + [("more", 45)]
    assert [band.key for band in layout.bands[:5]] == [9, 19, 29, 39, 49]  # the largest, by address
    column = bin_column(pages_of(0), layout)
    assert column[5] == pytest.approx(PAGE / layout.bin_bytes[5])


def test_a_range_has_no_more_bins_than_pages():
    layout = Layout.build([at(1, 0, 3)], 10, 2)
    assert [(band.row, band.rows) for band in layout.bands] == [(0, 2)]
    assert bin_column(pages_of(0), layout)[:4].tolist() == [1, 1, 0, 0]  # a bin without a page repeats the next


def test_untouched_blocks_are_folded_away():
    """A reservation of 1 TiB in which 4 MiB are used: the used part fills the screen."""
    seen = pages_of(512 * 1000, 512 * 500_000 + 3)
    layout = Layout.build([HeatRange(1, 0, 1 << 40)], 4, touched_blocks=blocks_of(seen))
    assert layout.bands[0].size_bytes == 4 * MIB
    assert layout.bin_of([512 * 1000 * PAGE, 512 * 500_000 * PAGE, 0]).tolist() == [0, 2, -1]


def test_a_hull_gives_way_to_the_range_inside_it():
    layout = Layout.build([at(1, 0, 100), at(2, 40, 60)], 10)
    bands = {band.key: band.size_bytes // PAGE for band in layout.bands}
    assert bands == {1: 80, 2: 20}


def test_gaps_tell_whether_something_is_mapped_in_them():
    far = 10 * GIB
    ranges = [HeatRange(1, 0, MIB), HeatRange(2, far, far + MIB), HeatRange(3, 5 * far, 5 * far + MIB)]
    layout = Layout.build(ranges, 12, touched_blocks=[0, 5 * far >> 21])
    assert [(b.kind, b.ranges) for b in layout.bands] == [("range", 1), ("gap", 1), ("range", 1)]
    assert [b.kind for b in Layout.build(ranges, 3).bands] == ["range"] * 3  # no room


def test_blocks_of_every_page_size_add_up():
    pages = PageSet.from_blocks([3], [[1] + [0] * 7], [5], [1])
    assert blocks_of(pages, [1, 3]).tolist() == [1, 3, 5, *range(512, 1024)]


def test_nothing_to_show():
    layout = Layout.build([], 3)
    assert layout.bands == ()
    assert layout.bin_of([0]).tolist() == [-1]
    assert np.isnan(bin_column(pages_of(1), layout)).all()
    assert layout.band_at(0) is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (([], 0), "at least one row"),
        (([], 1, 0), "at least one row"),
        (([HeatRange(1, 0, 0)], 1), "empty"),
        (([HeatRange(1, 1, 4097)], 1), "aligned"),
    ],
)
def test_bad_layouts(arguments, says):
    with pytest.raises(ValueError, match=says):
        Layout.build(*arguments)


def test_bad_order_and_interval():
    with pytest.raises(ValueError, match="order"):
        Layout.build([], 1, order="name")
    with pytest.raises(ValueError, match="interval"):
        Layout.build([], 1, interval=(5, 5))
