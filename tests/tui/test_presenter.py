"""From a session to the view of the memory screen, without a screen."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from memtui.tui.presenters import Presenter, Room
from tests.support.screen_fakes import MIB, FakeSession


def presenter(count: int = 300, **options) -> Presenter:
    made = Presenter(FakeSession(count, **options), follow=False)
    made.room = Room(60, 12)
    return made


def test_presenter_is_complete_after_some_views():
    one = presenter()
    seen = 0
    while not (one.view(0.01) and one.complete):
        seen += 1
        assert seen < 200
    view = one.view()
    assert view.heat.share.shape == (24, 60)
    assert np.isfinite(view.heat.share[0]).all()
    asked = one.reader.asked_pages
    one.view()
    assert one.reader.asked_pages == asked


def test_heat_columns_move_on_unchanged():
    session = FakeSession(400, growing=True, clock=lambda: 0.0)
    one = Presenter(session, follow=True)
    one.room = Room(60, 12)
    before = one.view(10.0).heat
    session.first = 405  # a second later: one column further
    one.refresh()
    after = one.view(10.0).heat
    moved = after.axis.bins(60)[1] - before.axis.bins(60)[1]
    assert moved in (1, 2)
    np.testing.assert_array_equal(before.share[:, moved:-1], after.share[:, : -moved - 1])


def test_seek_costs_little_on_a_long_session():
    one = presenter(18_000)
    one.view()
    began = time.process_time()
    for percent in range(0, 100, 10):
        one.playhead.jump(f"{percent}%")
        one.view(0.0)
    assert (time.process_time() - began) / 10 < 0.5  # the figure is in the benchmarks; this catches a slip


def test_several_processes_are_told_apart():
    session = FakeSession(60)
    second = type(session.rows[0])(**(vars(session.rows[1]) | {"id": 900, "process": 2, "pid": 4243}))
    session.rows.append(second)
    first = session.processes.all()
    session.processes.all = lambda: [*first, type(first[0])(2, 4243, 4242, 100, 0, "worker", "child")]
    one = Presenter(session, follow=False)
    one.room = Room(60, 20)
    view = one.view(10.0)
    assert view.header.others == 1
    assert {row.pid for row in view.table.rows} == {4242, 4243}
    assert sum(band.label.startswith("4242 ") for band in view.heat.bands) >= 6


def test_what_is_touched_is_resident_whenever_that_was_looked_at():
    session = FakeSession(60)
    session.vmas.rss = lambda sample: {row.id: 1 * MIB for row in session.rows}
    one = Presenter(session, follow=False)
    one.room = Room(60, 12)
    rows = {row.name: row for row in one.view(10.0).table.rows}
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
    one = presenter(20, children=2)
    assert one.view().processes.rows == ()
    one.show_list("processes")
    assert len(one.view().processes.rows) == 3
    one.show_list("table")
    assert one.view().processes.rows == ()
