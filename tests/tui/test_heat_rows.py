"""Which ranges the heat map draws, and what it calls them."""

from __future__ import annotations

from memtui.analysis.heat_map import Band
from memtui.tui.presenters.heat_rows import ProcessRange, heat_band, ranges_to_draw

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
