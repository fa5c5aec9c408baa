"""The graph of working set and resident memory, and what is said of the window at the cursor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memtui.tui.presenters import Presenter
from memtui.tui.presenters.graph import finite_value
from tests.support.screen_fakes import MIB, FakeSession


def graph_of(session: FakeSession, *, pid: int | None = None):
    presenter = Presenter(session, follow=False)
    presenter.focus_process(pid)
    return presenter.view(10.0).graph


def test_the_largest_is_that_of_the_windows_in_sight_and_of_no_other():
    session = FakeSession(400)
    presenter = Presenter(session, follow=False)
    whole = presenter.view(10.0).graph
    assert whole.max_bytes == session.samples.wss_bytes.max()
    presenter.playhead.span_ns = 10 * 10**9
    part = presenter.view(10.0).graph
    shown = part.end_ns <= part.axis.end_ns
    assert 0 < shown.sum() < 400
    assert part.max_bytes == part.wss_bytes[shown].max()


def test_one_process_has_a_graph_of_its_own():
    session = FakeSession(30, children=2)
    tree, child = graph_of(session), graph_of(session, pid=4243)
    assert (tree.whose, tree.resident) == ("", "PSS")
    assert (child.whose, child.resident) == ("of pid 4243", "RSS")
    assert child.rss_now_bytes == 200 * MIB
    assert len(child.wss_bytes) == len(tree.wss_bytes) == 30


def test_without_a_working_set_the_reason_and_its_remedy_are_the_note():
    assert graph_of(FakeSession(10, tracker="rss")).note == "needs root: sudo memtui attach 4242"


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
