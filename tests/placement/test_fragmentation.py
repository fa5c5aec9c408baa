"""Stays in fast memory, addresses for them, and limits that are cut: by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from memtui.placement.solvers.fragmentation import (
    AROUND,
    Piece,
    in_order,
    largest_first,
    layout_extents,
    pieces,
    tightened,
)
from memtui.placement.solvers.schedule import F, S

FAST, SLOW, IN, OUT = (F, F), (S, S), (S, F), (F, S)


def problem(*items: tuple[int, int], fixed=(), limits=()):
    """Items: first op and size."""
    made = SimpleNamespace(
        items=[SimpleNamespace(first=first, size_bytes=size) for first, size in items],
        ops=[None] * len(fixed),
        fixed_bytes=fixed,
        limit_bytes=limits,
    )
    made.with_limits = lambda changed: problem(*items, fixed=fixed, limits=changed)
    return made


@pytest.mark.parametrize(
    ("first", "path", "stays"),
    [
        (0, [FAST, FAST, FAST], [(0, 2)]),
        (4, [FAST, FAST, FAST], [(4, 6)]),
        (0, [SLOW, SLOW], []),
        (0, [FAST, OUT, SLOW, IN], [(0, 1), (3, 3)]),  # while it is copied it takes room
        (2, [SLOW, IN, FAST, OUT, SLOW], [(3, 5)]),
    ],
)
def test_a_stay_is_from_the_first_op_to_the_last_in_fast_memory(first, path, stays):
    found = pieces(problem((0, 8), (first, 16)), [[SLOW], path])
    assert list(found) == [Piece(1, *stay, 16) for stay in stays]


def test_in_the_order_of_ops_a_place_is_free_after_its_last_op():
    assert in_order([Piece(0, 0, 1, 10), Piece(1, 1, 3, 10), Piece(2, 2, 3, 10)]) == [0, 10, 0]
    # 4 bytes take the smaller hole of 5, and not the first one of 10.
    stays = [Piece(0, 0, 0, 10), Piece(1, 0, 2, 1), Piece(2, 0, 0, 5), Piece(3, 0, 2, 1), Piece(4, 1, 2, 4)]
    assert in_order(stays) == [0, 10, 11, 16, 11]


def test_the_largest_is_placed_first_at_the_lowest_address_that_is_free_all_the_time():
    stays = [Piece(0, 0, 1, 2), Piece(1, 0, 3, 10), Piece(2, 2, 3, 5), Piece(3, 1, 2, 2)]
    assert largest_first(stays) == [10, 0, 10, 15]
    # Ops 0 to 1 and 1 to 2 meet in op 1; 0 to 1 and 2 to 3 do not meet.
    assert largest_first([Piece(0, 0, 1, 8), Piece(1, 1, 2, 4), Piece(2, 2, 3, 2)]) == [0, 8, 0]
    # A hole as large as the piece is large enough.
    stays = [Piece(0, 0, 9, 10), Piece(1, 0, 0, 5), Piece(2, 0, 9, 4), Piece(3, 5, 9, 5), Piece(4, 8, 9, 1)]
    assert largest_first(stays) == [0, 10, 15, 10, 19]


def test_the_extent_of_an_op_is_the_end_of_the_highest_piece_beside_what_is_fixed():
    made = problem((0, 10), (1, 4), fixed=(1, 2, 3, 4))
    assert layout_extents(made, [[FAST, FAST], [FAST, FAST]]) == (11, 16, 17, 4)


def limits_of(extents, limits, whole):
    return list(tightened(problem(fixed=(0,) * len(limits), limits=limits), extents, whole).limit_bytes)


def test_limits_are_cut_by_what_is_too_much_ten_ops_around():
    count = 3 * AROUND
    k = AROUND + 3
    extents = [100] * count
    extents[k] = 107
    cut = limits_of(extents, (100,) * count, (100,) * count)
    assert [n for n, limit in enumerate(cut) if limit != 100] == list(range(3, k + AROUND + 1))
    assert set(cut) == {100, 93}
    assert limits_of([100, 107], (100, 100), (100, 100)) == [93, 93]


def test_a_cut_is_a_tenth_at_most_and_a_byte_at_least():
    assert limits_of([300], (100,), (100,)) == [90]
    assert limits_of([300], (50,), (100,)) == [40], "of limits that were cut before"
    assert limits_of([9], (5,), (8,)) == [4]
    assert limits_of([9], (0,), (8,)) == [0]
    assert limits_of([101, 105], (100, 100), (100, 100)) == [95, 95], "the larger cut counts, and not their sum"
    assert limits_of([100], (100,), (100,)) == [100]
