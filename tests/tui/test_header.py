"""The first line: which program, how many processes, and why nothing arrives."""

from __future__ import annotations

import pytest

from memtui.core.samples import NOT_CLEARED, End, Event
from memtui.tui.presenters import Presenter
from memtui.tui.presenters.header import pids_alive
from memtui.tui.presenters.playhead import State
from tests.support.screen_fakes import FakeSession


def test_processes_that_ended_are_not_counted():
    session = FakeSession(60)
    first = session.processes.all()
    children = [type(first[0])(key, 4241 + key, 4242, 100, 0, "worker", "child") for key in (2, 3)]
    session.processes.all = lambda: [*first, *children]
    session.ended_at = {2: 20}
    presenter = Presenter(session, follow=False)
    seen = []
    for sample in (10, 20, 59):
        presenter.playhead.home()
        presenter.playhead.step(sample)
        seen.append(presenter.view().header.others)
    assert seen == [2, 1, 1]


def test_before_its_first_window_every_process_is_alive():
    processes = FakeSession(5, children=2).processes.all()
    assert pids_alive(processes, []) == {4242, 4243, 4244}


@pytest.mark.parametrize(
    ("said", "notice"),
    [
        ((f"pid 15579: {NOT_CLEARED}: its first thread has ended",), ""),
        (("pid 7: window lost: it did not stop",), "pid 7: window lost"),
        (
            ("sampling is paused (x goes on): left alone", f"pid 9: {NOT_CLEARED}: gone"),
            "sampling is paused (x goes on)",
        ),
    ],
)
def test_a_process_that_is_new_is_no_reason_for_silence(said, notice):
    session = FakeSession(20, growing=True, clock=lambda: 0.0)
    events = [Event(int(session.samples.end_ns[-1]) + n, "gap", text) for n, text in enumerate(said, 1)]
    session.events = lambda first, last: [event for event in events if first <= event.t_ns < last]
    assert Presenter(session, follow=True).view().header.notice == notice


def test_why_nothing_arrives_is_said_of_a_live_recording_only():
    session = FakeSession(20, growing=True, clock=lambda: 0.0)
    gap = Event(int(session.samples.end_ns[-1]) + 1, "gap", "the sampler was stopped: nothing was measured meanwhile")
    session.events = lambda first, last: [gap] if first <= gap.t_ns < last else []
    assert Presenter(session, follow=True).view().header.notice == "the sampler was stopped"
    assert Presenter(session, follow=False).view().header.notice == ""


def test_a_program_that_went_on_after_the_last_window_ended_when_it_did():
    session = FakeSession(20)
    last_ns = int(session.samples.end_ns[-1])
    session.end = End(last_ns + 13 * 10**9, "target exited", "")
    presenter = Presenter(session, follow=True)
    ended = presenter.view().header
    presenter.playhead.home()
    earlier = presenter.view().header
    assert ended.duration_s - earlier.duration_s == pytest.approx(13)
    assert earlier.duration_s == pytest.approx((last_ns - presenter.playhead.origin_ns) / 1e9)


def test_a_program_that_ended_before_its_first_window_was_not_watched_since_the_machine_started():
    session = FakeSession(0)
    session.end = End(18 * 60 * 10**9, "target exited", "")
    ended = Presenter(session, follow=True).view().header
    assert (ended.state, ended.duration_s) == (State.ENDED, 0)
