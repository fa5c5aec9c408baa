"""The graph of working set and resident memory, and what is said of the window at the cursor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memtui.core.samples import End, Event, MemoryUse
from memtui.tui.presenters import Presenter
from memtui.tui.presenters.graph import caveats, end_note, finite_value, freed_note, window_notes
from memtui.tui.presenters.markers import TickLog
from tests.support.screen_fakes import MIB, FakeSession


def graph_of(session: FakeSession, *, pid: int | None = None):
    presenter = Presenter(session, follow=False)
    presenter.focus_process(pid)
    return presenter.view(10.0).graph


def test_median_and_most_are_those_of_windows_as_long_as_the_one_at_the_cursor():
    session = FakeSession(60)
    whole = graph_of(session)
    assert whole.median_bytes == pytest.approx(np.median(session.samples.wss_bytes))
    assert not any("windows of about" in text for text in whole.caption)
    half = np.repeat([200_000_000, 1_000_000_000], 30)
    session.samples.intervals_ns = lambda of=slice(None): half[of]
    alike = graph_of(session)
    assert alike.median_bytes == pytest.approx(np.median(session.samples.wss_bytes[30:]))
    assert alike.max_bytes == session.samples.wss_bytes[30:].max()
    assert alike.caption[-1] == "median, max: of windows of about 200 ms"


def test_one_process_has_a_graph_of_its_own():
    session = FakeSession(30, children=2)
    tree, child = graph_of(session), graph_of(session, pid=4243)
    assert (tree.whose, tree.resident) == ("", "PSS")
    assert (child.whose, child.resident) == ("of pid 4243", "RSS")
    assert child.rss_now_bytes == 200 * MIB
    assert len(child.wss_bytes) == len(tree.wss_bytes) == 30


def test_without_a_working_set_the_reason_and_its_remedy_are_the_note():
    assert graph_of(FakeSession(10, tracker="rss")).note == "needs root: sudo memtui attach 4242"


def test_without_a_working_set_no_median_is_spoken_of():
    session = FakeSession(60, tracker="rss")
    session.samples.intervals_ns = lambda of=slice(None): np.repeat([200_000_000, 1_000_000_000], 30)[of]
    assert not any("windows of about" in text for text in graph_of(session).caption)


def test_the_reason_of_a_window_is_said_once():
    samples = FakeSession(10).samples
    samples.status, samples.reason = ("not paused",) * 10, ("it did not stop",) * 10
    assert caveats(samples, 9, "") == ("not paused: it did not stop",)
    assert caveats(samples, 9, "it did not stop") == ()
    samples.wss_low_bytes[9], samples.wss_high_bytes[9] = 10 * MIB, 20 * MIB
    assert caveats(samples, 9, "shown")[0] == "estimated, 95 % interval 10.0 MiB to 20.0 MiB"


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


def test_a_value_that_is_not_known_is_none():
    values = np.array([1.0, np.nan])
    assert [finite_value(values, index) for index in (0, 1, -1)] == [1.0, None, None]


def test_a_session_that_ended_without_a_window_waits_for_none():
    """As of a program that was over at once."""
    for growing, note in ((False, "no window: the recording ended before the first one was over"), (True, "")):
        presenter = Presenter(FakeSession(0, growing=growing, clock=lambda: 0.0), follow=False)
        presenter.room = replace(presenter.room, heat_columns=60, heat_rows=10)
        view = presenter.view(10.0)
        assert (view.graph.note, view.heat.note) == (note, note)


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
