"""Touched and resident bytes by call stack, against a count of single bytes."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.analysis.stack_capture import Readings, StackBlocks, StackCapture
from memtui.analysis.stack_use import SLACK_NS, covers, has_places, stack_use
from memtui.core.page_set import PageSet
from tests.support.stack_captures import MAIN, STEP, stacks_of

PAGE = 4096
ROWS = 10
STACKS = stacks_of([MAIN], [MAIN, STEP])
# Row n is at n seconds; the window is from second 4 to second 6.
WINDOW = 4 * 10**9 + 10 * SLACK_NS, 6 * 10**9 - 10 * SLACK_NS


def capture_of(blocks):
    """``blocks``: (address, bytes, stack, allocated in second, freed in second)."""
    blocks = sorted(blocks, key=lambda block: block[3])
    columns = np.array([(*block, 1) for block in blocks], np.int64).T.reshape(6, -1)
    readings = Readings(np.arange(ROWS + 1), np.arange(ROWS + 1) * 10**9)
    capture = StackCapture(7, ROWS, 0, 10**10, STACKS, StackBlocks.of(columns), readings)
    capture.check()
    return capture


def pages_of(*numbers):
    return PageSet.from_pages(np.array(sorted(numbers), np.int64))


def bytes_of(array):
    return array.tolist()


def test_a_block_counts_the_bytes_of_it_in_touched_pages():
    capture = capture_of([(100, 2 * PAGE, 0, 1, 9), (3 * PAGE, PAGE, 1, 1, 9)])
    use = stack_use(capture, *WINDOW, pages_of(0, 2, 5), pages_of(0, 1, 2, 3))
    assert bytes_of(use.steady_bytes) == [2 * PAGE, PAGE, 0]
    assert bytes_of(use.touched_bytes) == [PAGE, 0, 0]
    assert bytes_of(use.resident_bytes) == [2 * PAGE, PAGE, 0]
    assert use.outside_bytes == 3 * PAGE - PAGE
    assert stack_use(capture, *WINDOW, pages_of(0)).resident_bytes is None


def test_blocks_that_came_or_went_count_where_no_other_stack_was():
    capture = capture_of([
        (0, PAGE, 0, 4, 5),
        (0, PAGE, 0, 5, 9),
        (PAGE, PAGE, 0, 4, 5),
        (PAGE, PAGE, 1, 5, 9),
        (2 * PAGE, PAGE, 1, 1, 3),
    ])  # fmt: skip
    use = stack_use(capture, *WINDOW, pages_of(0, 1, 2))
    assert bytes_of(use.steady_bytes) == bytes_of(use.touched_bytes) == [0, 0, 0]
    assert bytes_of(use.passing_bytes) == [PAGE, 0, 0]
    assert (use.shared_bytes, use.outside_bytes) == (PAGE, PAGE)


def test_what_is_at_the_edge_of_a_window_came_or_went():
    """A reading of memray's clock is not exact to the millisecond."""
    capture = capture_of([(0, PAGE, 0, 4, 9), (PAGE, PAGE, 0, 1, 5)])
    at_edge = 5 * 10**9 + SLACK_NS // 2
    use = stack_use(capture, at_edge, 6 * 10**9 - 2 * SLACK_NS, pages_of(0, 1))
    assert bytes_of(use.steady_bytes)[0] == 0
    assert bytes_of(use.passing_bytes)[0] == 2 * PAGE
    later = stack_use(capture, at_edge + 2 * SLACK_NS, 6 * 10**9 - 2 * SLACK_NS, pages_of(0, 1))
    assert bytes_of(later.steady_bytes)[0] == PAGE


def test_a_row_is_before_or_after_a_window_where_the_clock_leaves_no_doubt():
    """Both readings that bound the window are as far away as the clock may be off."""
    capture = capture_of(
        [(0, PAGE, 0, 4, 7), (PAGE, PAGE, 0, 5, 7), (2 * PAGE, PAGE, 0, 1, 6), (3 * PAGE, PAGE, 0, 1, 7)]
    )
    start_ns, end_ns = 5 * 10**9 + SLACK_NS, 7 * 10**9 - SLACK_NS
    pages = pages_of(0, 1, 2, 3)
    certain = stack_use(capture, start_ns, end_ns, pages)
    assert (bytes_of(certain.steady_bytes)[0], bytes_of(certain.passing_bytes)[0]) == (2 * PAGE, 2 * PAGE)
    later = stack_use(capture, start_ns, end_ns + 1, pages)
    assert (bytes_of(later.steady_bytes)[0], bytes_of(later.passing_bytes)[0]) == (0, 4 * PAGE)
    sooner = stack_use(capture, start_ns - 1, end_ns, pages)
    assert (bytes_of(sooner.steady_bytes)[0], bytes_of(sooner.passing_bytes)[0]) == (PAGE, 3 * PAGE)


def test_before_the_first_reading_no_row_was_certainly_before_a_window():
    capture = capture_of([(0, PAGE, 0, 0, 9)])
    use = stack_use(capture, SLACK_NS - 1, 2 * SLACK_NS, pages_of(0))
    assert (bytes_of(use.steady_bytes), bytes_of(use.passing_bytes)) == ([0, 0, 0], [PAGE, 0, 0])


def test_a_block_of_no_bytes_is_nowhere():
    capture = capture_of([(PAGE + 5, 0, 1, 1, 9), (0, 0, 1, 4, 5)])
    use = stack_use(capture, *WINDOW, pages_of(0, 1), pages_of(0, 1))
    for column in (use.steady_bytes, use.touched_bytes, use.passing_bytes, use.resident_bytes):
        assert bytes_of(column) == [0, 0, 0]
        assert column.dtype == np.int64
    assert (use.shared_bytes, use.outside_bytes) == (0, 2 * PAGE)


def test_a_mapping_with_blocks_in_it_keeps_what_they_do_not_have():
    capture = capture_of([(0, 4 * PAGE, 0, 1, 9), (PAGE, PAGE, 1, 2, 9)])
    use = stack_use(capture, *WINDOW, pages_of(0, 1, 2, 3))
    assert bytes_of(use.touched_bytes) == [3 * PAGE, PAGE, 0]


def test_a_capture_without_addresses_or_times_has_no_places():
    capture = capture_of([(0, PAGE, 0, 1, 9)])
    assert has_places(capture)
    assert not has_places(replace(capture, readings=Readings()))
    assert has_places(replace(capture, readings=Readings(np.array([3]), np.array([10**9]))))
    blocks = replace(capture.blocks, address=np.array([-1]))
    assert not has_places(replace(capture, blocks=blocks))
    assert covers(capture, 0, 10**10)
    assert not covers(capture, 5, 10**10 + 1)


def test_a_block_whose_address_is_not_known_is_nowhere():
    capture = capture_of([(-1, PAGE, 1, 1, 9), (0, PAGE, 0, 1, 9)])
    use = stack_use(capture, *WINDOW, pages_of(0), pages_of(0))
    assert bytes_of(use.touched_bytes) == bytes_of(use.resident_bytes) == [PAGE, 0, 0]
    assert use.outside_bytes == 0


def test_blocks_in_one_another_take_memory_of_their_number_not_of_its_square():
    count = 4000
    capture = capture_of([(16 * n, 32 * (count - n), n % 2, 1, 9) for n in range(count)])
    tracemalloc.start()
    try:
        use = stack_use(capture, *WINDOW, pages_of(*range(32)))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The newest has its 32 bytes, and of each other one its two ends of 16 bytes are left.
    assert bytes_of(use.touched_bytes) == [16 * count, 16 * count, 0]
    assert use.outside_bytes == 32 * PAGE - 32 * count
    assert peak_bytes < 8 << 20


block = st.tuples(
    st.integers(0, 4 * PAGE), st.integers(1, 2 * PAGE), st.integers(-1, 1), st.integers(0, 8), st.integers(1, 5)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(block, max_size=8), st.sets(st.integers(0, 6)), st.sets(st.integers(0, 6)))
def test_bytes_are_those_of_a_count_of_single_bytes(some, touched, resident):
    capture = capture_of([(*head, born, min(born + age, ROWS)) for *head, born, age in some])
    use = stack_use(capture, *WINDOW, pages_of(*touched), pages_of(*resident))
    size = 7 * PAGE
    steady, passing = np.full(size, -9), np.zeros((3, size), bool)
    for address, length, stack, born, died in zip(*capture.blocks.columns[:5].tolist(), strict=True):
        if born < 4 and died >= 6:
            steady[address : address + length] = stack % 3
        elif born < 6 and died >= 4:
            passing[stack % 3, address : address + length] = True
    pages = np.arange(size) // PAGE
    is_touched, is_resident = np.isin(pages, list(touched)), np.isin(pages, list(resident))
    free = steady == -9
    alone = passing.sum(axis=0) == 1
    for stack in range(3):
        assert use.touched_bytes[stack] == (is_touched & (steady == stack)).sum()
        assert use.resident_bytes[stack] == (is_resident & (steady == stack)).sum()
        assert use.passing_bytes[stack] == (is_touched & free & alone & passing[stack]).sum()
    assert use.shared_bytes == (is_touched & free & (passing.sum(axis=0) > 1)).sum()
    assert use.outside_bytes == (is_touched & free & ~passing.any(axis=0)).sum()
