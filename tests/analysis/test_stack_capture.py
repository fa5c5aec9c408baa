"""Call stacks as a tree, blocks with lifetimes in rows, and the times between which a row was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memtui.analysis.stack_capture import Readings, call_text, times_of
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
