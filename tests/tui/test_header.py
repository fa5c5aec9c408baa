"""The first line: which program, how many processes, and why nothing arrives."""

from __future__ import annotations

import pytest

from memtui.core.samples import NOT_CLEARED, Event
from memtui.tui.presenters import Presenter
from memtui.tui.presenters.header import pids_alive, program_name
from tests.support.screen_fakes import FakeSession


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/python3 -u /a/train.py --x", "train.py"),
        ("python -m torch.distributed.run train.py", "torch.distributed.run"),
        ("/opt/python3.11 -c print(1)", "python3.11 -c"),
        ("python3", "python3"),
        ("python3 -u", "python3"),
        ("python -m", "python"),
        ("/usr/local/bin/a.out 3", "a.out"),
        ("", "?"),
        ("  ", "?"),
    ],
)
def test_a_program_is_called_what_a_person_calls_it(command, name):
    assert program_name(command) == name


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
