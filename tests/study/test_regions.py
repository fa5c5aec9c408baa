"""Names of the rows of a picture: each is that of the mapping that its pages lie in."""

from __future__ import annotations

import numpy as np
import pytest

from memtui.analysis.page_raster import picture_of
from memtui.core.page_set import PageSet
from memtui.session.vma_row import VmaRow
from memtui.study.regions import regions

PAGE = 4096


def mapping(number: int, first_page: int, pages: int, name: str = "", perms: str = "rw-p") -> VmaRow:
    return VmaRow(number, 1, 1, first_page * PAGE, (first_page + pages) * PAGE, perms, name, 1, 9, "")


def named(*rows: VmaRow, touched=None, uses=None, height: int = 360):
    """The regions of a picture in which all pages of the mappings were touched, or those given."""
    pages = [page for row in rows for page in range(row.start // PAGE, row.end // PAGE)] if touched is None else touched
    picture = picture_of([PageSet.from_pages(pages)], height)
    return [(region.name, region.start, region.end) for region in regions(rows, picture, uses or {})]


def test_each_mapping_has_its_rows_and_the_size_of_what_was_touched():
    rows = mapping(1, 100, 40, "[heap]"), mapping(2, 200, 40), mapping(3, 300, 20, "[stack]")
    assert named(*rows) == [("heap, 160 KiB", 0, 40), ("anonymous, 160 KiB", 40, 80), ("stack, 80.0 KiB", 80, 100)]
    only = [*range(100, 110), *range(300, 310)]
    assert named(*rows, touched=only) == [("heap, 40.0 KiB", 0, 10), ("stack, 40.0 KiB", 10, 20)]


def test_rows_that_stand_for_many_pages_add_up():
    rows = mapping(1, 0, 3000, "[heap]"), mapping(2, 4000, 1000, "[stack]")
    sizes = named(*rows, height=100)
    assert sizes == [("heap, 11.7 MiB", 0, 75), ("stack, 3.91 MiB", 75, 100)]


def test_libraries_are_one_region_with_their_own_zeroed_memory():
    rows = (
        mapping(1, 100, 30, "/usr/lib/libtorch.so", "r-xp"),
        mapping(2, 130, 10),
        mapping(3, 140, 20, "/usr/lib/libc.so.6", "r-xp"),
        mapping(4, 500, 40),
    )
    assert [name for name, *_ in named(*rows)] == ["libraries, 240 KiB", "anonymous, 160 KiB"]


@pytest.mark.parametrize(
    ("row", "uses", "name"),
    [
        (mapping(1, 0, 50, "/opt/data/images.bin"), {}, "images.bin"),
        (mapping(1, 0, 50, "/dev/shm/x (deleted)"), {}, "x"),
        (mapping(1, 0, 50), {1: "thread stack 2"}, "thread stack 2"),
        (mapping(1, 0, 50, "[anon: glibc: malloc]"), {}, "anon: glibc: malloc"),
    ],
)
def test_other_mappings_go_by_their_name_or_use(row, uses, name):
    assert [text for text, *_ in named(row, uses=uses)] == [f"{name}, 200 KiB"]


def test_what_is_too_small_for_a_name_is_one_of_the_others():
    small = [mapping(number, 100 * number, 2, f"/data/{number}") for number in range(2, 6)]
    regions_ = named(mapping(1, 0, 100, "[heap]"), *small, mapping(9, 900, 100, "[stack]"))
    assert [name for name, *_ in regions_] == ["heap, 400 KiB", "others, 32.0 KiB", "stack, 400 KiB"]
    assert [name for name, *_ in named(mapping(1, 0, 100, "[heap]"), small[0])] == ["heap, 400 KiB"]


def test_pages_of_no_mapping_have_no_name_of_another_one():
    heap = mapping(1, 100, 50, "[heap]")
    assert [name for name, *_ in named(heap, touched=[*range(10), *range(100, 150)])] == [
        "others, 40.0 KiB",
        "heap, 200 KiB",
    ]
    assert [name for name, *_ in named(heap, touched=[*range(100, 150), *range(900, 930)])] == [
        "heap, 200 KiB",
        "others, 120 KiB",
    ]
    assert picture_of([PageSet.from_pages([5, 6, 900])]).first_pages.tolist() == [5, 6, 900]
    assert np.array_equal(picture_of([PageSet.from_pages(range(10))], 5).first_pages, np.arange(0, 10, 2))
