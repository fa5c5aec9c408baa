"""What is said of the window at the cursor, beside its numbers."""

from __future__ import annotations

import numpy as np
import pytest

from memtui.core.page_set import PageSet
from memtui.core.readings import MemoryUse
from memtui.core.samples import End, Event
from memtui.tui.presenters.markers import TickLog
from memtui.tui.presenters.window_notes import (
    MOST_PROCESSES,
    WindowNotes,
    caveats,
    end_note,
    freed_note,
    window_notes,
)
from memtui.tui.presenters.window_rows import WindowRows
from tests.support.screen_fakes import MIB, FakeSession

DAMON = "DAMON (kdamond 0) took accessed bits of memory that pid 9729 has, too"


def test_the_reason_of_a_window_is_said_once():
    samples = FakeSession(10).samples
    samples.status, samples.reason = ("not paused",) * 10, ("it did not stop",) * 10
    assert caveats(samples, 9, "") == ("not paused: it did not stop",)
    assert caveats(samples, 9, "it did not stop") == ()
    samples.wss_low_bytes[9], samples.wss_high_bytes[9] = 10 * MIB, 20 * MIB
    assert caveats(samples, 9, "shown")[0] == "estimated, 95 % interval 10.0 MiB to 20.0 MiB"


@pytest.mark.parametrize(
    ("reason", "note"),
    [
        (
            f"{DAMON}: about 2.85 MiB more may have been touched; its threads ran",
            f"approximate: about 2.85 MiB more may have been touched: {DAMON}; its threads ran",
        ),
        (
            "about 3 MiB more may have been touched: it was given back with MADV_FREE",
            "approximate: about 3 MiB more may have been touched: it was given back with MADV_FREE",
        ),
    ],
)
def test_how_much_may_be_missing_comes_before_why(reason, note):
    """The end of a note is cut where the screen is narrow."""
    samples = FakeSession(10).samples
    samples.status, samples.reason = ("approximate",) * 10, (reason,) * 10
    assert caveats(samples, 9, "") == (note,)


def test_what_happened_in_a_window_is_said_of_that_window():
    samples = FakeSession(10).samples
    samples.gaps[9], samples.faulted_in_bytes[9], samples.shared_bytes[9] = 1, 2 * MIB, np.nan
    notes = window_notes(samples, 9, TickLog(), "PSS read 7 s before")
    assert notes == (
        "at least 1 birth or end",
        "first mapped 2.00 MiB",
        "PSS read 7 s before",
        "shared pages count for each process",
    )
    assert window_notes(samples, 0, TickLog(), "") == ()
    session = FakeSession(10)
    at_ns = int(samples.end_ns[0])
    session.events = lambda first, last: [Event(at_ns, "step", "step 20, every allocation recorded")] * 2
    ticks = TickLog()
    ticks.update(session, at_ns)
    assert window_notes(samples, 0, ticks, "") == ("step 20, every allocation recorded",)


def test_memory_that_was_given_back_within_a_window_is_told_of_it():
    """It is in no working set. Little of it, and that of processes that ended, is not told."""
    session = FakeSession(10)
    samples = session.samples
    samples.rss_bytes[9], samples.wss_bytes[9] = 40 * MIB, 8 * MIB
    at_ns = int(samples.end_ns[9]) - 1
    use = [MemoryUse(at_ns, 1, 100 * MIB), MemoryUse(at_ns, 1, 60 * MIB)]
    session.devices.memory_use = lambda first_ns, last_ns: [one for one in use if first_ns <= one.t_ns < last_ns]
    assert freed_note(session, 9) == "60.0 MiB were given back before its end, and are in no working set"
    assert freed_note(session, 8) == ""
    samples.gaps[9] = 1
    assert freed_note(session, 9) == ""
    samples.gaps[9], samples.rss_bytes[9] = 0, 97 * MIB
    assert freed_note(session, 9) == "", "3 MiB"
    samples.rss_bytes[9] = np.nan
    assert freed_note(session, 9) == ""


def test_the_end_of_a_session_says_what_is_in_no_window():
    session = FakeSession(10)
    assert end_note(session, 9) == ""
    session.end = End(int(session.samples.end_ns[9]) + 10_700_000_000, "stopped")
    assert end_note(session, 9) == "the last 10.7 s are in no window"
    assert end_note(session, 8) == ""
    session.end = End(int(session.samples.end_ns[9]) + 400_000_000, "stopped")
    assert end_note(session, 9) == ""


def test_huge_pages_count_whole_and_their_share_is_told_once_a_window():
    session = FakeSession(10)
    read = []
    small = PageSet.from_pages(np.arange(512))
    huge = PageSet(small.blocks, small.bits, np.array([1000], np.uint64), small.giant)

    def page_set(sample: int, process: int) -> PageSet:
        read.append(sample)
        return huge if sample == 9 else small

    session.pages.page_set = page_set
    rows = WindowRows(session)
    notes = WindowNotes(session, rows)
    assert "50.0 % in huge pages, which count whole" in notes.of_window(9, TickLog(), whole_tree=True)
    count = len(read)
    assert notes.of_window(9, TickLog(), whole_tree=True)
    assert len(read) == count > 0
    assert not any("huge" in note for note in notes.of_window(8, TickLog(), whole_tree=True))
    assert not any("huge" in note for note in notes.of_window(9, TickLog(), whole_tree=False))
    rows.of_window = lambda index: [{"process": n, "status": "ok"} for n in range(MOST_PROCESSES + 1)]
    assert notes._huge_note(9, 9) == ""
