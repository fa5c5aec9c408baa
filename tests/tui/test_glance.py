"""A long session is opened by a glance at it; what is shown in the end is what one who read all of it is shown."""

from __future__ import annotations

import io
import pickle
import shutil
import sqlite3
from contextlib import closing

import pytest

from memtui.session import reuse_reader, sample_reader
from memtui.session.file_format import SessionError
from memtui.session.session import Session
from memtui.tui.presenters import Presenter, Room
from memtui.widgets.views.memory import MemoryView
from tests.support.sessions import messages, write_session

SAMPLES = 300


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_session(tmp_path_factory.mktemp("session") / "s.memtui", messages(SAMPLES))


@pytest.fixture
def many(monkeypatch):
    """So many are many here."""
    for name, value in (("_MANY", 100), ("_SPREAD", 30), ("_LAST", 10)):
        monkeypatch.setattr(sample_reader, name, value)


def test_a_glance_has_samples_of_the_whole_session_and_the_last_ones(path, many):
    with closing(Session(path, glance=True)) as some, closing(Session(path)) as every:
        assert (some.partial, every.partial) == (True, False)
        assert some.samples.sample[0] == 0
        assert some.samples.sample[-11:].tolist() == list(range(SAMPLES - 11, SAMPLES))
        assert 30 <= len(some.samples) <= 50
        for name in ("end_ns", "wss_bytes", "rss_bytes"):
            whole = getattr(every.samples, name)[some.samples.sample]
            assert getattr(some.samples, name).tolist() == whole.tolist()
        assert (some.end, some.recorder_pid) == (every.end, every.recorder_pid)

        assert some.refresh()
        assert not some.partial
        assert some.samples.sample.tolist() == every.samples.sample.tolist()
        assert list(some.samples.status) == list(every.samples.status)


def test_a_short_session_is_read_at_once(path):
    with closing(Session(path, glance=True)) as reader:
        assert not reader.partial
        assert len(reader.samples) == SAMPLES


def test_windows_with_more_distances_than_were_glanced_at_are_no_damage(path, many, monkeypatch):
    """A window may have a distance for every earlier one, those that were not looked at included."""
    decoded = []
    decode = reuse_reader.decode_reuse
    monkeypatch.setattr(reuse_reader, "decode_reuse", lambda data, limit: decoded.append(limit) or decode(data, limit))
    with closing(Session(path, glance=True)) as reader:
        assert len(reader.samples) < SAMPLES
        reader.reuse.between(SAMPLES - 1, SAMPLES - 1)
    assert set(decoded) == {3 * SAMPLES}


def test_damage_between_the_samples_that_were_glanced_at_is_told_again_and_again(path, many, tmp_path):
    damaged = changed(path, tmp_path, "start_ns = 4, end_ns = 5")
    with closing(Session(damaged, glance=True)) as reader:
        assert 201 not in reader.samples.sample
        presenter = Presenter(reader, follow=False)
        presenter.view()
        for _ in range(3):
            with pytest.raises(SessionError, match="order of time"):
                presenter.view()
        assert reader.partial


def test_intervals_that_were_not_glanced_at_are_told_in_the_end(path, many, tmp_path):
    slower = changed(path, tmp_path, "asked_ns = 5000000000")
    assert final(slower, True)[0].reuse.interval == final(slower, False)[0].reuse.interval == "0.2-5 s"


def changed(path, folder, assignment: str):
    """A copy of the session with another sample 201, at which a glance does not look."""
    copy = folder / "changed.memtui"
    shutil.copy(path, copy)
    with closing(sqlite3.connect(copy)) as file:
        file.execute(f"UPDATE sample SET {assignment} WHERE sample = 201")
        file.commit()
    return copy


def final(path, glance: bool) -> tuple[MemoryView, int]:
    """The view that nothing is missing from, and how many came before it."""
    with closing(Session(path, glance=glance)) as reader:
        presenter = Presenter(reader, follow=False)
        presenter.room = Room(60, 12)
        for before in range(50):
            view = presenter.view()
            if presenter.complete:
                return view, before
    raise AssertionError("it was never complete")


def test_what_is_shown_in_the_end_is_the_same(path, many):
    after_a_glance, views = final(path, True)
    assert views >= 1, "the first picture was made of a part of the session"
    assert dumped(after_a_glance) == dumped(final(path, False)[0])


def dumped(view: MemoryView) -> bytes:
    """Return the values of a view, without which of them are one object."""
    result = io.BytesIO()
    pickler = pickle.Pickler(result)
    pickler.fast = True
    pickler.dump(view)
    return result.getvalue()
