"""Reuse distances of one range on a recorded session: they add up to what was stored of its process."""

import sqlite3

import pytest

from memtui.analysis.reuse_histogram import ReuseHistogram
from memtui.session.file_format import row_id
from memtui.session.session import Session
from memtui.tui.presenters import range_reuse
from memtui.tui.presenters.range_reuse import RangeReuse
from memtui.tui.presenters.reuse import reuse_view
from memtui.tui.presenters.time_budget import TimeBudget
from tests.support import sessions

SAMPLES = 60
PLENTY = 60.0


@pytest.fixture
def reader(tmp_path):
    with_pages = sessions.write_session(tmp_path / "s.memtui", sessions.messages(SAMPLES))
    reader = Session(with_pages)
    yield reader
    reader.close()


def row_named(reader, name):
    return next(row for row in reader.vmas.rows() if row.name == name)


def shown(reader, row, sample, log=None):
    view, whole = (log or RangeReuse()).view(reader, row, sample, TimeBudget(PLENTY))
    assert whole
    return view


def test_the_ranges_add_up_to_the_process(reader):
    stored = reader.reuse.until(SAMPLES - 1)
    views = [shown(reader, row, SAMPLES - 1) for row in reader.vmas.rows()]
    assert sum(view.touches for view in views) == stored.touches
    for bound in ("upper", "lower"):
        total = sum(getattr(view, bound) * view.touches for view in views if len(view.edges_bytes))
        assert total == pytest.approx(getattr(stored, bound))
    first = sum(view.first_share * view.touches for view in views if view.touches)
    assert first == pytest.approx(stored.first_touches)


def test_a_range_has_distances_of_its_own(reader):
    heap, data = (row_named(reader, name) for name in ("[heap]", ""))
    hot, streamed = (shown(reader, row, SAMPLES - 1) for row in (heap, data))
    # The heap comes back in every window; 2048 pages move through the data by 640 a window.
    assert hot.touches == 1024 * SAMPLES
    assert hot.first_share == pytest.approx(1 / SAMPLES)
    assert streamed.touches == 2048 * SAMPLES
    assert streamed.first_share == pytest.approx(16384 / streamed.touches)
    assert hot.whose == "of [heap]"
    assert streamed.whose == "of anon 64M"
    assert not hot.note


def test_going_back_and_forth_shows_the_same(reader):
    log, row = RangeReuse(), row_named(reader, "")
    for sample in (30, 31, 59, 12, 40, 0, 59):
        there, anew = shown(reader, row, sample, log), shown(reader, row, sample)
        assert there.touches == anew.touches
        assert (there.upper == anew.upper).all()
        assert (there.lower == anew.lower).all()


def test_another_range_is_not_added_to_the_first(reader):
    log = RangeReuse()
    for name in ("[heap]", "", "[heap]"):
        row = row_named(reader, name)
        assert shown(reader, row, 20, log).touches == shown(reader, row, 20).touches


def test_it_takes_no_more_than_its_share_of_a_picture(reader):
    log, row = RangeReuse(), row_named(reader, "[heap]")
    view, whole = log.view(reader, row, SAMPLES - 1, TimeBudget(0.0))
    assert not whole
    assert view.whose == "of [heap], still adding up"
    pictures = 0
    while not whole:
        view, whole = log.view(reader, row, SAMPLES - 1, TimeBudget(0.002))
        pictures += 1
    assert view.touches == 1024 * SAMPLES
    assert pictures > 1


def test_a_long_session_says_since_when(reader, monkeypatch):
    monkeypatch.setattr(range_reuse, "LAST_SAMPLES", 20)
    monkeypatch.setattr(range_reuse, "KEEP_SAMPLES", 30)
    log, row = RangeReuse(), row_named(reader, "[heap]")
    view = shown(reader, row, SAMPLES - 1, log)
    assert view.whose == "of [heap] since 00:00:08"  # sample 40, of windows of 203 ms
    assert view.touches == 1024 * 20
    assert view.first_share == pytest.approx(1 / 20)  # as in a session begun then
    assert shown(reader, row, 55, log).touches == 1024 * 16
    assert shown(reader, row, 45, log).touches == 1024 * 20  # too few were left: 20 before this one
    assert shown(reader, row, 19, log).whose == "of [heap]"
    assert shown(reader, row, 59, log).whose == "of [heap] since 00:00:08"  # a jump
    followed = RangeReuse()
    for sample in range(SAMPLES):
        view = shown(reader, row, sample, followed)
    assert view.touches == 1024 * SAMPLES  # following reads the new windows only
    assert shown(reader, row, 30, followed).touches == 1024 * 31
    assert shown(reader, row, 20, followed).touches == 1024 * 20  # behind what is kept


def test_distances_across_thinned_pages_are_not_made_up(reader):
    heap = row_named(reader, "[heap]")
    with sqlite3.connect(reader.path) as connection:
        for sample in range(1, 31, 2):
            low, high = row_id(sample, 0), row_id(sample + 1, 0)
            connection.execute("DELETE FROM page_set WHERE id >= ? AND id < ?", (low, high))
    connection.close()
    reader.downsampled_to_bytes = 1 << 20
    view = shown(reader, heap, SAMPLES - 1)
    assert view.whose == "of [heap] since 00:00:06"  # sample 30
    assert view.touches == 1024 * 30
    log = RangeReuse()
    assert shown(reader, heap, 9, log).note == "no distances of one range: page sets up to here were downsampled"
    assert shown(reader, heap, 9, log).note
    assert shown(reader, heap, 10, log).touches == 1024
    assert shown(reader, heap, SAMPLES - 1, log).touches == 1024 * 30


def test_an_unknown_moment_has_none(reader):
    row = row_named(reader, "[stack]")
    view = shown(reader, row, 0)
    assert (view.first_share, view.touches) == (1.0, 8)
    nothing = reuse_view(ReuseHistogram(), 0.2)
    assert nothing.first_share is None
