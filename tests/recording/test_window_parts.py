"""A window in parts is the window that it would have been whole."""

import numpy as np
import pytest

from memtui.core.page_set import PageSet
from memtui.core.samples import Status
from memtui.probes.pages.shared_frames import TouchedFrames
from memtui.probes.pages.tracker import PageWindow
from memtui.probes.window_reader import Lost, Reading
from memtui.recording.sampler.window_parts import WindowParts

MS = 10**6


def reading(pages, start_ms: int, end_ms: int, running: str = "", **more) -> Reading:
    """Return a window that ended, and whose process ran again a millisecond later."""
    accessed = None if pages is None else PageSet.from_pages(pages)
    window = PageWindow(accessed, walk_ns=5, rearm_ns=7, **more)
    return Reading(window, b"maps", end_ms * MS, (end_ms + 1) * MS, MS, running=running)


def whole(*readings, last):
    parts = WindowParts()
    for part in readings:
        parts.add(1, part)
    return parts.complete(1, last)


def test_without_a_cut_a_window_is_as_it_was():
    last = reading([1], 0, 10)
    assert WindowParts().complete(1, last) == (last, (), ())


def test_the_pages_are_those_of_any_part_and_costs_add_up():
    parts = [reading([1, 2], 0, 1000, unknown_bytes=4096), reading([2, 3], 1001, 1500, unknown_bytes=8192)]
    joined, accessed, lengths_ns = whole(*parts, last=reading([9], 1501, 1511, unknown_bytes=0))
    assert joined.window.pages.pages().tolist() == [1, 2, 3, 9]
    assert [pages.pages().tolist() for pages in accessed] == [[1, 2], [2, 3], [9]]
    assert (joined.paused_ns, joined.window.walk_ns, joined.window.rearm_ns) == (3 * MS, 15, 21)
    assert (joined.window.unknown_bytes, joined.end_ns, joined.maps) == (4096, 1511 * MS, b"maps")
    assert lengths_ns == (499 * MS, 10 * MS)


@pytest.mark.parametrize("end_ms", [1504, 1540])
def test_a_last_part_of_another_length_is_no_probe(end_ms):
    parts = [reading([1], 0, 1000), reading([2], 1001, 1500)]
    joined, accessed, lengths_ns = whole(*parts, last=reading([9], 1501, end_ms))
    assert (joined.window.pages.page_count, len(accessed), lengths_ns) == (3, 3, ())


def test_one_cut_is_no_burst():
    assert whole(reading([1], 0, 1500), last=reading([9], 1501, 1511)).lengths_ns == ()


def test_a_part_that_is_less_than_exact_makes_the_window_so():
    about = reading([1], 0, 1000, status=Status.APPROXIMATE, reason="a page table was exchanged")
    joined, _, lengths_ns = whole(about, reading([2], 1001, 1500), last=reading([9], 1501, 1511))
    assert (joined.window.status, joined.window.reason) == (Status.APPROXIMATE, "a page table was exchanged")
    assert (joined.window.pages.page_count, lengths_ns) == (3, ())
    ran = whole(reading([1], 0, 1000, running="too long"), reading([2], 1001, 1500), last=reading([9], 1501, 1511))
    assert (ran.outcome.running, ran.lengths_ns) == ("too long", ())


def test_without_the_pages_of_a_part_those_of_the_window_are_not_known():
    failed = reading(None, 0, 1000, status=Status.FAILED, reason="no")
    joined, _, lengths_ns = whole(failed, reading([2], 1001, 1500), last=reading([9], 1501, 1511))
    assert (joined.window.pages, joined.window.status, lengths_ns) == (None, Status.FAILED, ())


def test_a_part_that_was_lost_is_in_the_next_one():
    parts = WindowParts()
    parts.add(1, reading([1], 0, 1000))
    parts.add(1, Lost(OSError("did not stop")))
    parts.add(1, reading([2], 1001, 1500))
    joined, _, lengths_ns = parts.complete(1, reading([9], 1501, 1511))
    assert (joined.window.pages.page_count, lengths_ns) == (3, ())


def test_parts_wait_for_a_window_that_was_lost():
    parts = WindowParts()
    parts.add(1, reading([1], 0, 1000))
    lost = Lost(OSError("did not stop"))
    assert parts.complete(1, lost) == (lost, (), ())
    joined, _, _ = parts.complete(1, reading([9], 1001, 3000))
    assert joined.window.pages.pages().tolist() == [1, 9]
    parts.add(1, reading([1], 0, 1000))
    parts.forget_others([2])
    assert parts.complete(1, reading([9], 1001, 3000)).accessed == ()


def test_parts_of_a_program_before_an_exec_are_not_of_this_one():
    parts = [reading([1], 0, 1000), reading([2], 1001, 1500, generation=1)]
    joined, _, _ = whole(*parts, last=reading([9], 1501, 1511, generation=1))
    assert joined.window.pages.pages().tolist() == [2, 9]


def test_frames_are_those_that_were_behind_a_page_last():
    def frames(pages, numbers):
        return lambda: TouchedFrames(np.array(pages, np.uint64), np.array(numbers, np.uint64))

    parts = [reading([1, 2], 0, 1000, frames=frames([1, 2], [10, 20]))]
    joined = whole(*parts, last=reading([2, 3], 1001, 1500, frames=frames([2, 3], [21, 30]))).outcome.window.frames()
    assert (joined.pages.tolist(), joined.frames.tolist(), len(joined.huge)) == ([1, 2, 3], [10, 21, 30], 0)
    without = whole(reading([1], 0, 1000), last=reading([2], 1001, 1500, frames=frames([2], [21])))
    assert without.outcome.window.frames is None


def test_the_longest_of_the_pauses_is_known_beside_their_sum():
    parts = WindowParts()
    parts.add(1, reading([1], 0, 10))
    parts.add(1, Lost(TimeoutError(), 9 * MS))
    joined = parts.complete(1, reading([2], 11, 20)).outcome
    assert (joined.paused_ns, joined.longest_pause_ns) == (11 * MS, 9 * MS)
    alone = parts.complete(1, reading([2], 21, 30)).outcome
    assert (alone.paused_ns, alone.longest_pause_ns) == (MS, None)
