"""The pages of one window as an array."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import memtui
from memtui.api.window_pages import Pages, WindowPages
from memtui.core.errors import UserError
from memtui.core.page_set import PageSet
from memtui.core.samples import Window
from memtui.session.session import Session
from tests.support.hostile_sessions import small_stream
from tests.support.sessions import write_session


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    """A session in which another process touches more in each second window: 4242 in those with even numbers."""

    def stream():
        for message in small_stream():
            if isinstance(message, Window):
                less = message.sample % 2
                first, second = message.processes
                parts = [replace(each, pages=half(each.pages)) if each is (first, second)[1 - less] else each
                         for each in (first, second)]  # fmt: skip
                message = replace(message, processes=tuple(parts))
            yield message

    return write_session(tmp_path_factory.mktemp("api") / "s.memtui", stream())


def half(pages: PageSet) -> PageSet:
    """Return the first half of some pages."""
    numbers = pages.pages()
    return PageSet.from_pages(numbers[: len(numbers) // 2])


@pytest.mark.parametrize("pid", [4242, 4243])
def test_they_are_those_of_the_session(path, pid):
    with memtui.open(path) as session, closing(Session(path)) as truth:
        (key,) = [process.key for process in truth.processes.all() if process.pid == pid]
        for window in truth.samples.sample:  # numbers of numpy
            expected = truth.pages.page_set(int(window), key)
            pages = session.pages(window, pid)
            assert isinstance(session.pages, Pages)
            assert isinstance(pages, WindowPages)
            assert (pages.sample, pages.pid) == (window, pid)
            starts, ends = pages.as_array().T.astype(int)
            assert (starts[1:] >= ends[:-1]).all()
            assert (ends - starts).sum() == pages.size_bytes == expected.size_bytes
            assert len(pages) == expected.touch_count
            rows = [row for row in session.pages if row["sample"] == window and row["pid"] == pid]
            # The table splits runs where a mapping ends.
            assert sum(row["end"] - row["start"] for row in rows) == pages.size_bytes
            assert {row["start"] for row in rows} >= set(starts.tolist())


def test_without_a_process_they_are_of_the_one_that_touched_most(path):
    with memtui.open(path) as session:
        for window, pid in ((2, 4242), (3, 4243)):
            most = session.pages(window)
            assert most.pid == pid
            assert np.array_equal(most.as_array(), session.pages(window, pid).as_array())
            assert len(most) > len(session.pages(window, 8485 - pid))


def test_what_is_not_there_is_said(path, tmp_path):
    with memtui.open(path) as session:
        with pytest.raises(UserError, match="no pages of process 1 are stored in window 3"):
            session.pages(3, 1)
        with pytest.raises(UserError, match="no pages are stored in window 99"):
            session.pages(99)
    with memtui.open(path, redact=True) as session, pytest.raises(UserError, match="addresses are hidden"):
        session.pages(3)
    (tmp_path / "a.memtui").write_bytes(path.read_bytes())
    with memtui.open(tmp_path) as sessions, pytest.raises(UserError, match="of one session"):
        sessions.pages(3)
