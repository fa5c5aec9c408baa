"""The raster of pages and windows, against shares that are counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from memtui.analysis import page_raster
from memtui.analysis.page_raster import picture_of
from memtui.core.page_set import PageSet


def test_a_row_has_the_share_of_its_pages_that_was_touched():
    """Six pages on three rows: 10, 11 | 20, 30 | 40, 1000."""
    windows = [PageSet.from_pages(p) for p in ([10, 11, 20], [30, 40, 1000], [], [11, 1000])]
    picture = picture_of(windows, 3)
    assert picture.pages == 6
    assert picture.share.tolist() == [[1, 0, 0, 0.5], [0.5, 0.5, 0, 0], [0, 1, 0, 0.5]]
    assert picture.first_pages.tolist() == [10, 20, 40]
    assert (picture.share.dtype, picture.first_pages.dtype) == (np.float32, np.uint64)


def test_rows_that_do_not_divide_the_pages_are_of_two_sizes():
    """Five pages on two rows: three and two."""
    picture = picture_of([PageSet.from_pages([1, 2, 3, 4, 5]), PageSet.from_pages([3, 4])], 2)
    assert picture.share == pytest.approx(np.array([[1, 1 / 3], [1, 1 / 2]]))


def test_fewer_pages_than_rows_have_a_row_each():
    picture = picture_of([PageSet.from_pages([7]), PageSet.from_pages([9])], 10)
    assert picture.share.tolist() == [[1, 0], [0, 1]]


def test_a_window_without_a_page_set_is_no_window_without_accesses():
    picture = picture_of([PageSet.from_pages([7]), None, PageSet.empty()], 10)
    assert np.array_equal(picture.share, [[1, np.nan, 0]], equal_nan=True)
    later = picture_of([None, PageSet.from_pages([7]), None, PageSet.from_pages([9])], 10)
    assert np.array_equal(later.share, [[np.nan, 1, np.nan, 0], [np.nan, 0, np.nan, 1]], equal_nan=True)


@pytest.mark.parametrize("windows", [[], [None], [PageSet.empty()]])
def test_there_is_no_picture_of_nothing(windows):
    assert picture_of(windows) is None


def test_larger_pages_are_all_of_their_small_ones():
    """A huge page is 512 and a giant one 512 * 512; one row per 512 pages, in order of address."""
    huge = PageSet.from_blocks([], [], huge=[3])
    giant = PageSet.from_blocks([], [], giant=[0])
    picture = picture_of([huge, PageSet.from_pages([3 * 512, 3 * 512 + 511, 3 * 512 + 512])], 513)
    assert picture.pages == 513
    assert picture.share[:, 0].tolist() == [1] * 512 + [0]
    assert np.flatnonzero(picture.share[:, 1]).tolist() == [0, 511, 512]
    assert picture.first_pages.tolist() == list(range(3 * 512, 4 * 512 + 1))
    assert picture.first_pages.dtype == np.uint64
    rows = picture_of([huge, giant], 512)
    assert rows.pages == 512 * 512  # the huge page lies in the giant one
    assert np.flatnonzero(rows.share[:, 0]).tolist() == [3]
    assert (rows.share[:, 1] == 1).all()


def test_pages_that_are_put_together_in_batches_are_the_same(monkeypatch):
    windows = [PageSet.from_pages(range(i, i + 5)) for i in range(0, 40, 2)]
    whole = picture_of(windows)
    monkeypatch.setattr(page_raster, "_BATCH_NUMBERS", 7)
    parts = picture_of(windows)
    assert parts.pages == whole.pages == 43
    assert parts.share.tolist() == whole.share.tolist()


def test_of_many_windows_only_a_batch_and_the_pages_themselves_are_in_memory(monkeypatch):
    lengths, union1d = [], page_raster.union1d

    def counted(*parts):
        lengths.append(sum(map(len, parts)))
        return union1d(*parts)

    windows = [PageSet.from_pages(range(5)) for _ in range(100)]
    monkeypatch.setattr(page_raster, "_BATCH_NUMBERS", 50)
    monkeypatch.setattr(page_raster, "union1d", counted)
    assert picture_of(windows).pages == 5
    assert max(lengths) <= 5 + 50 + 5
    assert len(lengths) <= 100 * 5 / 50 + 1
