"""Memory by call stack on the screen: the window at the cursor, by stack, function and file."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from memtui.core.call_stacks import Frame
from memtui.formats.session_writer import write
from memtui.session.session import Session
from memtui.tui.presenters import stacks as presenter
from memtui.tui.presenters.stacks import OUTSIDE, StackLog
from memtui.tui.screens.allocations import AllocationScreen
from memtui.tui.screens.stacks import StacksScreen
from memtui.tui.session_app import MemtuiApp
from tests.support.allocation_screen import until
from tests.support.sessions import messages, write_session
from tests.support.stack_captures import capture_of, imported, imported_of_messages, joined_session, stacks_of

MIB = 1 << 20
HOT, MOVING = "hot (train.py) < main (train.py:3)", "moving (train.py:2) < main (train.py:3)"


@pytest.fixture
def joined(tmp_path):
    return joined_session(tmp_path)


class Head:
    """A cursor that stands still."""

    def __init__(self, index: int) -> None:
        self.index = index


def rows_of(view):
    return {row.name: row for row in view.rows}


def test_the_window_at_the_cursor(joined):
    session, log = Session(joined), StackLog()
    view = log.view(session, Head(6))
    rows = rows_of(view)
    assert (view.pid, view.by, view.note) == (4242, "stack", "")
    assert view.time_s == pytest.approx(6 * 0.203 + 0.2)
    assert (rows[HOT].touched_bytes, rows[HOT].there_bytes, rows[HOT].resident_bytes) == (4 * MIB, 4 * MIB, 4 * MIB)
    assert rows[MOVING].touched_bytes == 8 * MIB
    # The pages that were resident at the end of window 5 are 640 pages behind.
    assert view.resident == "resident: of 1 window before"
    assert rows[OUTSIDE].touched_bytes == 8 * 4096
    assert sum(row.touched_bytes for row in view.rows) == session.samples.stored_bytes[6]
    assert log.view(session, Head(5)).resident == "resident: of this window"


def test_sums_by_function_and_file_have_what_they_call(joined):
    session, log = Session(joined), StackLog()
    log.next_group()
    functions = rows_of(log.view(session, Head(6)))
    assert functions["main (train.py)"].touched_bytes == 12 * MIB
    assert functions["main (train.py)"].peak_bytes == 72 * MIB
    log.next_group()
    files = rows_of(log.view(session, Head(6)))
    assert files["/x/train.py"].allocations == 4
    log.next_group()
    assert log.by == "stack"


def test_a_window_outside_of_the_capture_has_what_was_allocated(joined):
    view = StackLog().view(Session(joined), Head(19))
    assert view.note == presenter._UNCOVERED
    assert rows_of(view)[MOVING].touched_bytes is None
    assert rows_of(view)[MOVING].peak_bytes == 64 * MIB


def test_without_a_capture_or_a_recording_the_reason_is_there(tmp_path):
    path = write_session(tmp_path / "s.memtui", messages(3))
    assert StackLog().view(Session(path), Head(0)).note == presenter.NOTHING
    write(imported_of_messages(), tmp_path / "i.memtui")
    view = StackLog().view(Session(tmp_path / "i.memtui"), Head(0))
    assert view.note.startswith("no recording of this process")
    assert rows_of(view)[HOT].peak_bytes == 4 * MIB


def test_the_order_is_that_of_a_column_and_rows_that_nobody_reads_are_left_out(joined, monkeypatch):
    session, log = Session(joined), StackLog()
    names = [row.name for row in log.view(session, Head(6)).rows]
    assert names[:2] == [MOVING, HOT]
    assert log.view(session, Head(6)) is log.view(session, Head(6))
    log.next_sort()
    assert log.view(session, Head(6)).sort == "resident"
    log.reverse()
    view = log.view(session, Head(6))
    assert (view.rows[0].resident_bytes, view.descending) == (0, False)
    monkeypatch.setattr(presenter, "MOST_ROWS", 2)
    log.reverse()
    view = log.view(session, Head(6))
    assert [row.name for row in view.rows] == [MOVING, HOT, "2 more", OUTSIDE]
    assert view.count == 4
    assert sum(row.touched_bytes for row in view.rows) == session.samples.stored_bytes[6]
    assert (view.rows[2].peak_bytes, view.rows[2].allocations) == (4 * MIB, 2)
    monkeypatch.setattr(presenter, "MOST_ROWS", 1)
    log.next_group()
    more = rows_of(log.view(session, Head(6)))["4 more"]
    assert more.touched_bytes is None, "a block is in several functions"


def test_windows_that_were_looked_at_are_cached(joined, monkeypatch):
    session, log, counted = Session(joined), StackLog(), []
    count = presenter.stack_use
    monkeypatch.setattr(presenter, "stack_use", lambda *args: counted.append(1) or count(*args))
    for index in (6, 7, 6, 7):
        log.view(session, Head(index))
    assert len(counted) == 2


@asynccontextmanager
async def opened(path, size=(120, 36), **how):
    reader = Session(path)
    reader.release()
    app = MemtuiApp(lambda: reader, live=False, **how)
    async with app.run_test(size=size) as pilot:
        yield app, pilot


async def test_the_screen_lists_and_sorts(joined):
    async with opened(joined) as (app, pilot):
        await until(pilot, lambda: app.screen.view is not None)
        await pilot.press("C")
        await until(pilot, lambda: isinstance(app.screen, StacksScreen) and app.screen._view.pid)
        screen = app.screen
        await pilot.press("home", "shift+right")
        await until(pilot, lambda: screen._view.time_s is not None and not screen._view.note)
        assert [row.cells[-1] for row in screen.rows.view.rows][:2] == [MOVING, HOT]
        assert screen.rows.view.rows[0].cells[0] == "8.00 MiB"
        await pilot.press("s", "s", "S")
        await until(pilot, lambda: "sorted by there ▲" in screen.rows.view.title)
        assert screen.rows.view.rows[0].cells[2] == "0 B"
        await pilot.press("S", "s")
        await until(pilot, lambda: "sorted by at peak ▼" in screen.rows.view.title)
        assert screen.rows.view.rows[0].cells[-1] == MOVING
        await pilot.press("home")
        moving = screen.rows.view.rows[0].key
        screen.rows.select(moving)
        for key in ("escape", "s", "S", "n"):  # what they change is in sight
            await pilot.press("enter")
            await until(pilot, lambda: screen.rows.view.title.startswith("call stack"))
            calls = [row.cells for row in screen.rows.view.rows]
            assert calls == [("moving", "2", "/x/train.py"), ("main", "3", "/x/train.py")]
            await pilot.press(key)
            await until(pilot, lambda: not screen.rows.view.title.startswith("call stack"))
            assert screen.rows.selected == moving
        await pilot.press("g")
        await until(pilot, lambda: screen._view.by == "function")
        assert "by function" in screen.rows.view.title
        await pilot.press("question_mark")
        await until(pilot, lambda: app.screen is not screen)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is screen)
        await pilot.press("C")
        await until(pilot, lambda: app.screen is not screen)


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (210, 50)])
async def test_an_imported_capture_has_its_stacks(tmp_path, size):
    write(imported_of_messages(), tmp_path / "i.memtui")
    async with opened(tmp_path / "i.memtui", size=size, imported=True) as (app, pilot):
        await until(pilot, lambda: isinstance(app.screen, AllocationScreen))
        await pilot.press("C")
        await until(pilot, lambda: isinstance(app.screen, StacksScreen) and app.screen._view.pid)
        rows = app.screen.rows.view.rows
        assert rows[0].cells[-1].startswith("moving (train.py:2)")
        assert rows[0].cells[3] == "64.0 MiB"


async def test_different_stacks_of_one_name_are_two_rows(tmp_path):
    one, two = (Frame("forward", f"/lib/{name}/model.py", 3) for name in "ab")
    capture = capture_of([(30, 0, 0, 2), (20, 1, 1, 2)], 2, stacks=stacks_of([one], [two]))
    write(imported(capture), tmp_path / "i.memtui")
    async with opened(tmp_path / "i.memtui", imported=True) as (app, pilot):
        await until(pilot, lambda: isinstance(app.screen, AllocationScreen))
        await pilot.press("C")
        await until(pilot, lambda: isinstance(app.screen, StacksScreen) and app.screen._view.pid)
        rows = app.screen.rows
        assert [row.cells[-1] for row in rows.view.rows] == ["forward (model.py:3)"] * 2
        rows.select(rows.view.rows[0].key)
        await pilot.press("down", "down")
        assert rows.selected_row is rows.view.rows[1]
        await pilot.press("enter")
        await until(pilot, lambda: rows.view.title.startswith("call stack"))
        assert [row.cells[-1] for row in rows.view.rows] == ["/lib/b/model.py"], "the calls tell them apart"
