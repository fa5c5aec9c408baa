"""Call stacks as a tree, blocks with lifetimes in rows, and the times between which a row was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.stack_capture import MAX_ADDRESS, Readings, StackBlocks, call_text, times_of
from tests.support.stack_captures import MAKE, capture_of


def test_a_call_is_written_without_its_folder_and_without_a_line_that_is_not_known():
    assert call_text(MAKE) == "make (model.py:4)"
    assert call_text(MAKE._replace(line=0)) == "make (model.py)"
    assert call_text(MAKE._replace(file="")) == "make"


def test_the_peak_is_after_the_row_that_makes_it():
    capture = capture_of([(10, 0, 0, 3), (5, 1, 1, 5), (9, 0, 4, 5)], 5)
    assert capture.peak() == (15, 1)
    assert capture_of([], 5).peak() == (0, -1)
    assert capture.blocks.alive_after(1).tolist() == [True, True, False]
    size, count = capture.sums(capture.blocks.alive_after(4))
    assert size.tolist() == [9, 5, 0]
    assert count.tolist() == [1, 1, 0]


def test_a_block_counts_for_as_many_allocations_as_it_stands_for():
    capture = capture_of([(10, 0, 0, 3), (5, -1, 1, 5), (9, 0, 4, 5)], 5)
    capture = replace(capture, blocks=replace(capture.blocks, count=np.array([7, 11, 13])))
    assert capture.sums(np.ones(3, bool))[1].tolist() == [20, 0, 11]


def test_a_block_of_no_known_stack_is_counted_apart():
    size, _ = capture_of([(10, -1, 0, 1)], 1).sums(np.array([True]))
    assert size.tolist() == [0, 0, 10]


@pytest.mark.parametrize(
    "block",
    [(-1, 0, 0, 1), (1 << 53, 0, 0, 1), (1, 2, 0, 1), (1, 0, 1, 1), (1, 0, 0, 6), (1, -2, 0, 1)],
)
def test_impossible_blocks_are_refused(block):
    with pytest.raises(ValueError, match=r"block|sizes"):
        capture_of([block], 5)


def test_columns_of_different_length_are_refused():
    blocks = capture_of([(1, 0, 0, 1)], 5).blocks
    for name in ("size_bytes", "stack", "allocated", "freed", "count"):
        with pytest.raises(ValueError, match="columns of different length"):
            replace(blocks, **{name: np.ones(2, np.int64)}).check(5, 2)


def test_rows_are_known_between_two_readings():
    readings = Readings(np.array([0, 4, 4, 9]), np.array([100, 200, 300, 400]))
    assert [readings.rows_before(t) for t in (99, 100, 250, 400, 500)] == [None, 0, 4, 9, 9]
    assert [readings.rows_until(t) for t in (99, 100, 250, 400, 401)] == [0, 0, 4, 9, None]
    assert readings.moved(-50).rows_before(150) == 4


def test_a_row_has_the_time_of_the_reading_after_it():
    readings = Readings(np.array([0, 4, 9]), np.array([100, 200, 400]))
    assert times_of(np.array([0, 3, 4, 8, 9, 20]), readings, 500).tolist() == [200, 200, 400, 400, 500, 500]


def test_times_that_fall_are_refused():
    capture = capture_of([(1, 0, 0, 1)], 5)
    for rows, times in (([0, 3], [9, 8]), ([3, 1], [8, 9]), ([0, 6], [8, 9])):
        bad = replace(capture, readings=Readings(np.array(rows), np.array(times)))
        with pytest.raises(ValueError, match="the times of a capture"):
            bad.check()


def test_a_range_of_time_keeps_what_may_have_been_there():
    capture = capture_of([(1, 0, 0, 2), (2, 0, 1, 9), (4, 0, 5, 9)], 9, ((0, 100), (3, 200), (5, 300), (9, 400)))
    assert capture.within(200, 300).blocks.size_bytes.tolist() == [2]
    part = capture.within(150, 301)
    part.check()
    assert part.blocks.size_bytes.tolist() == [1, 2, 4]
    assert (part.start_ns, part.end_ns) == (150, 301)
    beyond = capture.within(5000, 6000)
    assert (beyond.start_ns, beyond.end_ns) == (1000, 1000)


@pytest.mark.parametrize("readings", [((0, 100), (20, 200), (50, 300)), ()])
def test_what_is_alive_at_the_end_of_a_range_was_left(readings):
    capture = capture_of([(100, 0, 5, 40), (10, 0, 6, 50), (1, 1, 30, 40)], 50, readings)
    part = capture.within(110, 190) if readings else capture.within(0, 20)
    part.check()
    assert part.rows == 20
    assert part.sums(part.blocks.freed >= part.rows)[0].tolist() == [110, 0, 0]
    assert part.readings.rows.tolist() == [rows for rows, _ in readings[:2]]
    assert capture.within(0, 1 << 62).rows == 50


ROWS = 8
LIFETIMES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(-1, 1), st.integers(0, ROWS - 1), st.integers(1, ROWS)), max_size=8
).map(lambda drawn: sorted((n, stack, born, min(born + age, ROWS)) for n, stack, born, age in drawn))


def in_order(drawn):
    return sorted(drawn, key=lambda block: block[2])


@given(LIFETIMES.map(in_order))
def test_sums_and_the_peak_are_those_of_a_count_row_by_row(blocks):
    capture = capture_of(blocks, ROWS)
    usage = []
    for row in range(ROWS):
        alive = [born <= row < freed for _, _, born, freed in blocks]
        assert capture.blocks.alive_after(row).tolist() == alive
        size, count = capture.sums(np.array(alive, bool))
        assert size.dtype == count.dtype == np.int64
        for stack in (-1, 0, 1):
            own = [n for (n, of, _, _), here in zip(blocks, alive, strict=True) if here and of == stack]
            assert (size[stack], count[stack]) == (sum(own), len(own))
        usage.append(sum(n for (n, _, _, _), here in zip(blocks, alive, strict=True) if here))
    peak, row = capture.peak()
    assert peak == max(usage)
    rows = {row for _, _, born, freed in blocks for row in (born, freed) if row < ROWS}
    assert row == min((row for row in rows if usage[row] == peak), default=-1)


@given(LIFETIMES.map(in_order), st.integers(0, ROWS), st.integers(0, ROWS))
def test_a_range_of_a_capture_without_times_is_one_of_rows(blocks, first, last):
    part = capture_of(blocks, ROWS, ()).within(first, last)
    expected = [
        (n, stack, born, min(freed, last)) for n, stack, born, freed in blocks if freed >= first and born < last
    ]
    columns = part.blocks
    assert (
        list(
            zip(
                *(c.tolist() for c in (columns.size_bytes, columns.stack, columns.allocated, columns.freed)),
                strict=True,
            )
        )
        == expected
    )
    assert (part.rows, part.start_ns, part.end_ns) == (last, 100, 1000)


def test_a_block_that_may_have_been_there_for_a_moment_of_a_range_is_kept():
    """Row 3 may be after the reading of 200, which only says that rows 0 to 2 were before it."""
    capture = capture_of([(1, 0, 0, 2), (2, 0, 0, 3), (4, 0, 0, 4)], 9, ((0, 100), (3, 200), (9, 400)))
    assert capture.within(200, 300).blocks.size_bytes.tolist() == [2, 4]
    once = capture_of([(1, 0, 0, 2), (2, 0, 0, 3)], 9, ((3, 200),))
    assert once.within(200, 300).blocks.size_bytes.tolist() == [2]
    assert (once.within(150, 300).start_ns, once.within(150, 300).end_ns) == (150, 300)


def test_more_rows_are_known_until_the_first_of_equal_times():
    readings = Readings(np.array([1, 4, 6]), np.array([100, 200, 200]))
    assert (readings.rows_before(200), readings.rows_until(200)) == (6, 4)


BLOCK = {"address": 4096, "size_bytes": 1, "stack": 0, "allocated": 0, "freed": 1, "count": 1}
MOST = (1 << 52) - 1


def blocks_of(*changes):
    return StackBlocks.of(np.array([[*(BLOCK | change).values()] for change in changes], np.int64).T)


@pytest.mark.parametrize(
    "changes",
    [
        [{"address": -1}],
        [{"address": MAX_ADDRESS - 1}],
        [{"size_bytes": 0}],
        [{"size_bytes": MOST}],
        [{"stack": -1}],
        [{"stack": 1}],
        [{"freed": 5}],
        [{"allocated": 2, "freed": 3}, {"allocated": 2, "freed": 5}],
    ],
)
def test_blocks_at_the_edge_of_what_can_be_are_taken(changes):
    blocks_of(*changes).check(5, 2)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([{"address": -2}], "a block lies outside of memory"),
        ([{"address": MAX_ADDRESS}], "a block lies outside of memory"),
        ([{"size_bytes": -1}], "sizes are too large to be true"),
        ([{"size_bytes": MOST + 1}], "sizes are too large to be true"),
        ([{"size_bytes": MOST}, {}], "sizes are too large to be true"),
        ([{"stack": -2}], "a block is of no known stack"),
        ([{"stack": 2}], "a block is of no known stack"),
        ([{"freed": 0}], "a block is freed before it is allocated, or after the end"),
        ([{"freed": 6}], "a block is freed before it is allocated, or after the end"),
        ([{"allocated": -1}], "a block is freed before it is allocated, or after the end"),
        ([{"allocated": 2, "freed": 3}, {}], "blocks are not in the order of their allocation"),
        ([{"count": 0}], "blocks are not in the order of their allocation"),
    ],
)
def test_blocks_beyond_what_can_be_are_refused(changes, why):
    with pytest.raises(ValueError, match=f"^{why}$"):
        blocks_of(*changes).check(5, 2)


def test_readings_may_stand_still_and_have_one_length():
    Readings(np.array([0, 3, 3, 5]), np.array([7, 7, 8, 8])).check(5)
    for rows, times in (([0, 3], [7]), ([0], [7, 8]), ([], [7])):
        with pytest.raises(ValueError, match=r"^the times of a capture fall$"):
            Readings(np.array(rows, np.int64), np.array(times, np.int64)).check(5)
    with pytest.raises(ValueError, match=r"^the times of a capture are of rows that it lacks$"):
        Readings(np.array([-1]), np.array([7])).check(5)


@pytest.mark.parametrize(("start_ns", "end_ns"), [(0, 0), (0, 5), (5, 5)])
def test_a_capture_may_begin_with_its_clock_and_end_at_once(start_ns, end_ns):
    replace(capture_of([], 5, ()), start_ns=start_ns, end_ns=end_ns).check()


@pytest.mark.parametrize(("start_ns", "end_ns"), [(-1, 5), (6, 5)])
def test_a_capture_that_ends_before_it_begins_is_refused(start_ns, end_ns):
    with pytest.raises(ValueError, match=r"^a capture ends before it begins$"):
        replace(capture_of([], 5, ()), start_ns=start_ns, end_ns=end_ns).check()
