"""Which ranges the heat map draws, and what it calls them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from memtui.analysis.heat_map import Band
from memtui.tui.presenters.heat_rows import ProcessRange, heat_band, ranges_to_draw, row_counts, shares_of

MIB = 1 << 20


def libc(key: int, start: int, perms: str, label: str = "libc") -> ProcessRange:
    return ProcessRange(1, key, start, start + MIB, label, MIB, perms=perms)


def labels(*ranges: ProcessRange) -> list[str]:
    return [r.label for r in sorted(ranges_to_draw(ranges, 20, None), key=lambda r: r.key)]


def test_ranges_named_alike_are_told_apart_by_what_differs():
    assert labels(
        libc(1, 0x7F0181A00000, "r--p"), libc(2, 0x7F0181B7C000, "r--p"), libc(3, 0x7F0181BD1000, "rw-p")
    ) == ["libc r--p …a00", "libc r--p …b7c", "libc rw-p"]
    assert labels(libc(1, 0x7F0181A00000, "rw-p", "anon 2M"), libc(2, 0x7F01A1A00000, "rw-p", "anon 2M")) == [
        "anon 2M …81a00",
        "anon 2M …a1a00",
    ]


def test_a_name_that_nothing_else_has_stays():
    assert labels(libc(1, 0x7F0181A00000, "r--p"), libc(2, 0x7F01A1A00000, "rw-p", "anon 2M")) == ["libc", "anon 2M"]


def test_the_row_of_what_had_no_room_says_of_which_process():
    heap = Band(0, 3, "range", 1, "[heap]", 0, MIB, MIB, 1)
    more = Band(3, 1, "more", -1, "", 0, MIB, MIB, 7)
    band = heat_band(more, 10, 0, heap, "713")
    assert (band.row, band.label, band.who) == (13, "713 7 others", "713")
    assert heat_band(more, 10, 0, heap, "").label == "7 others"
    assert heat_band(more, 10, 0, None, "713").label == "713 7 ranges", "of a process with one row"


def test_a_process_weighs_for_as_long_as_it_ran_in_the_picture():
    lives = [(1, 0, 5), (1, 3, None), (2, 12, 14), (3, 0, 9), (4, 20, None), (5, 18, 30)]  # None: it goes on
    rows = [
        SimpleNamespace(process=process, first_sample=first, last_sample=last or 0, open=last is None)
        for process, first, last in lives
    ]
    assert shares_of(rows, 10, 19) == {1: 1.0, 2: 0.3, 5: 0.2}


@pytest.mark.parametrize("cells", [1, 6, 11, 17, 40])
def test_all_rows_are_given_out(cells):
    for weights in ([64], [64, 1], [64, *[4] * 16], [9] * 9, [1] * 50):
        assert sum(row_counts(weights, cells)) == cells


def test_few_processes_have_a_row_each_and_of_many_the_heavy_ones_keep_theirs():
    assert row_counts([1 << 30, 1, 1, 1], 8)[1:] == [1, 1, 1]
    assert row_counts([9] * 9, 11).count(0) == 0, "ranks of one size"
    training, *workers = row_counts([100 << 20, *[1 << 20] * 16], 17)
    assert training >= 6
    assert max(workers) == 1
