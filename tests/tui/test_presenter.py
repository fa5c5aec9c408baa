"""From a session to the view of the memory screen, without a screen."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from memtui.tui.presenters import Presenter, Room
from tests.support.screen_fakes import MIB, FakeSession


def presenter(count: int = 300, **options) -> Presenter:
    created = Presenter(FakeSession(count, **options), follow=False)
    created.room = Room(60, 12)
    return created


def test_presenter_is_complete_after_some_views():
    replay = presenter()
    seen = 0
    while not (replay.view(0.01) and replay.complete):
        seen += 1
        assert seen < 200
    view = replay.view()
    assert view.heat.share.shape == (24, 60)
    assert np.isfinite(view.heat.share[0]).all()
    asked = replay.reader.asked_pages
    replay.view()
    assert replay.reader.asked_pages == asked


def test_seek_costs_little_on_a_long_session():
    replay = presenter(18_000)
    replay.view()
    began = time.process_time()
    for percent in range(0, 100, 10):
        replay.playhead.jump(f"{percent}%")
        replay.view(0.0)
    assert (time.process_time() - began) / 10 < 0.5  # the figure is in the benchmarks; this catches a slip


def test_several_processes_are_told_apart():
    session = FakeSession(60)
    second = type(session.rows[0])(**(vars(session.rows[1]) | {"id": 900, "process": 2, "pid": 4243}))
    session.rows.append(second)
    first = session.processes.all()
    session.processes.all = lambda: [*first, type(first[0])(2, 4243, 4242, 100, 0, "worker", "child")]
    replay = Presenter(session, follow=False)
    replay.room = Room(60, 20)
    view = replay.view(10.0)
    assert view.header.others == 1
    assert {row.pid for row in view.table.rows} == {4242, 4243}
    assert sum(band.label.startswith("4242 ") for band in view.heat.bands) >= 6


def test_what_is_touched_is_resident_whenever_that_was_looked_at():
    session = FakeSession(60)
    session.vmas.rss = lambda sample: {row.id: 1 * MIB for row in session.rows}
    replay = Presenter(session, follow=False)
    replay.room = Room(60, 12)
    rows = {row.name: row for row in replay.view(10.0).table.rows}
    heap = rows["[heap]"]
    assert heap.rss_at_least
    assert heap.rss_bytes == heap.wss_bytes > MIB
    assert not rows["[stack]"].rss_at_least
    assert rows["[stack]"].rss_bytes == MIB


@pytest.mark.parametrize(
    ("home", "shown"),
    [
        ("/home/ann", "~/.local/state/memtui/train-4242.memtui"),
        ("/home/an", "/home/ann/.local/state/memtui/train-4242.memtui"),
        ("/", "/home/ann/.local/state/memtui/train-4242.memtui"),
    ],
)
def test_the_home_directory_is_a_tilde(home, shown, monkeypatch):
    monkeypatch.setenv("HOME", home)
    assert presenter(20).view().footer.path == shown


def test_a_user_without_a_home_has_whole_paths(monkeypatch):
    def nowhere(_class: type[Path]) -> Path:
        raise RuntimeError("could not determine home directory")

    monkeypatch.setattr(Path, "home", classmethod(nowhere))
    assert presenter(20).view().footer.path.startswith("/home/ann/")


def test_a_list_is_worked_out_while_it_is_shown():
    replay = presenter(20, children=2)
    assert replay.view().processes.rows == ()
    replay.show_list("processes")
    assert len(replay.view().processes.rows) == 3
    replay.show_list("table")
    assert replay.view().processes.rows == ()
