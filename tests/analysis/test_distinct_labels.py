"""Labels of ranges are told apart by as little as it takes."""

from __future__ import annotations

from memtui.analysis.distinct_labels import Labelled, distinct_labels

LIBC = Labelled("libc", "r--p", 0x7F0181A00000), Labelled("libc", "r--p", 0x7F0181B7C000)


def test_those_alike_get_their_permissions_and_then_what_differs_of_addresses():
    data, heap = Labelled("libc", "rw-p", 0x7F0181BD1000), Labelled("[heap]", "rw-p", 0x5581_0000_0000)
    assert distinct_labels([*LIBC, data, heap]) == ["libc r--p …a00", "libc r--p …b7c", "libc rw-p", "[heap]"]


def test_permissions_that_are_the_same_are_left_out():
    assert distinct_labels(LIBC) == ["libc …a00", "libc …b7c"]
    assert distinct_labels(LIBC[:1]) == ["libc"]
    assert distinct_labels([]) == []


def test_without_addresses_those_stay_alike_that_only_they_tell_apart():
    writable = LIBC[1]._replace(perms="rw-p")
    assert distinct_labels(LIBC, addresses=False) == ["libc", "libc"]
    assert distinct_labels([LIBC[0], writable], addresses=False) == ["libc r--p", "libc rw-p"]
