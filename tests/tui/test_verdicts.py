"""The verdict at the cursor, on the screen and on its page."""

from __future__ import annotations

from contextlib import asynccontextmanager, closing

import pytest

from memtui.core.samples import KILLED_FOR_MEMORY, End
from memtui.reports.verdict.recent import MOST_UNIONS, Check, Finding
from memtui.reports.verdict.verdict import Verdict
from memtui.session.page_reader import PageReader
from memtui.session.session import Session
from memtui.tui.presenters import verdicts
from memtui.tui.presenters.verdicts import VerdictLog
from memtui.tui.screens.verdict import VerdictScreen, verdict_rows
from memtui.tui.session_app import MemtuiApp
from tests.support.allocation_screen import until
from tests.support.growing_sessions import appending, filling, pages, session_of, steady
from tests.support.screen_text import screen_lines


@pytest.fixture
def growing(tmp_path):
    return session_of(tmp_path / "s.memtui", lambda n: (20, 300 + 5 * n, 30), appending(5), limit=filling)


@pytest.fixture(params=[True, False], ids=["memory will be full", "no forecast"])
def rests(request, tmp_path):
    """A session, and the seconds between two verdicts: while the cursor moves, and at the newest window."""
    path = session_of(
        tmp_path / "s.memtui", lambda n: (20, 300 + 5 * n, 30), appending(5), limit=filling if request.param else None
    )
    return path, *((verdicts.NEAR_S, verdicts.NEAR_S) if request.param else (verdicts.LIVE_S, verdicts.NEWEST_S))


def rest(log: VerdictLog, reader: Session, index: int):
    """Stand still at a window for two pictures."""
    log.update(reader, index, moving=False)
    return log.update(reader, index, moving=False)


def names(log: VerdictLog) -> list[str]:
    return [check.rule for check in log.verdict.checks if check.finding is not None]


def test_it_is_that_of_the_cursor(growing):
    log = VerdictLog()
    with closing(Session(growing)) as reader:
        assert log.update(reader, -1, moving=False) is None
        assert log.forms == ()
        rest(log, reader, 5)
        assert (names(log), log.forms) == ([], ())
        early = log.verdict
        assert log.update(reader, 89, moving=False) is early
        assert log.due, "a cursor that is on its way costs nothing"
        log.update(reader, 89, moving=False)
        assert not log.due
        assert names(log) == ["oom", "leak"]
        ((long, *_),) = log.forms
        assert long.startswith("Cgroup /job will be out of memory in about")
        assert long.endswith("stop what grows.")
        rest(log, reader, 5)
        assert names(log) == []


def test_while_the_cursor_moves_it_is_computed_every_few_seconds(rests, monkeypatch):
    path, live_s, _ = rests
    now = [100.0]
    monkeypatch.setattr(verdicts.time, "monotonic", lambda: now[0])
    log = VerdictLog()
    with closing(Session(path)) as reader:
        first = log.update(reader, 60, moving=True)
        now[0] += live_s - 1
        assert log.update(reader, 64, moving=True) is first
        assert log.end_ns == reader.samples.end_ns[60], "the page names the window that its verdict is of"
        now[0] += 1
        later = log.update(reader, 65, moving=True)
        assert later is not first
        now[0] += live_s
        assert log.update(reader, 65, moving=True) is later, "the cursor has not moved"
        assert rest(log, reader, 66) is not later, "it stands now"


def test_at_the_newest_window_it_follows_the_memory_and_the_end(rests, monkeypatch):
    """The next window may last half a minute, and memory is read some times a second meanwhile."""
    path, _, newest_s = rests
    now = [100.0]
    monkeypatch.setattr(verdicts.time, "monotonic", lambda: now[0])
    log = VerdictLog()
    with closing(Session(path)) as reader:
        ended, reader.end = reader.end, None
        first = log.update(reader, 89, moving=True)
        now[0] += newest_s - 1
        assert log.update(reader, 89, moving=True) is first
        now[0] += 1
        later = log.update(reader, 89, moving=True)
        assert later is not first
        reader.end = End(ended.t_ns, "target exited", f"{KILLED_FOR_MEMORY}cgroup /job reached its limit of 2.00 GiB")
        assert log.update(reader, 89, moving=False) is later
        killed = rest(log, reader, 89)
        assert killed is not later
        if newest_s == verdicts.NEAR_S:  # a limit was read
            assert killed.findings[0].sentence.startswith("The program was killed by the kernel")
        now[0] += newest_s
        assert log.update(reader, 89, moving=True) is killed, "nothing comes any more"


@pytest.mark.parametrize(("indices", "most_each"), [(range(100, 200, 5), 16), (range(46, 64), 8)])
def test_pages_are_read_once_while_a_recording_goes_on(tmp_path, monkeypatch, indices, most_each):
    read = []
    page_set = PageReader.page_set
    monkeypatch.setattr(PageReader, "page_set", lambda *of: read.append(of[1]) or page_set(*of))
    path = session_of(tmp_path / "s.memtui", lambda n: (20, 600, 0), lambda n: pages((10, 10, 0)), windows=200)
    log = VerdictLog()
    with closing(Session(path)) as reader:
        for index in indices:
            rest(log, reader, index)
            assert names(log) == ["untouched"]
    assert len(read) < len(indices) * most_each + 200, "each group once, and the one that is not full"
    assert len(log._pages) <= MOST_UNIONS


@asynccontextmanager
async def opened(path, size):
    reader = Session(path)
    reader.release()
    app = MemtuiApp(lambda: reader, live=False)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.screen.view is not None)
        yield app, pilot


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (210, 60)])
async def test_the_page_has_findings_actions_figures_and_checks(growing, size):
    async with opened(growing, size) as (app, pilot):
        await until(pilot, lambda: app.screen.view.sentences.sentences[0][0].startswith("Cgroup /job will be out of"))
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, VerdictScreen) and app.screen.rows.view.rows)
        page = "\n".join(row.cells[0] for row in app.screen.rows.view.rows)
        assert all(len(line) <= size[0] - 6 for line in page.splitlines())
        words = " ".join(page.split())
        assert "1 Cgroup /job will be out of memory" in words
        assert "Next: Save a checkpoint now" in words
        assert "2 Memory grows by 5.00 MiB/s" in words
        assert "- memory of an allocator (no file): 445 MiB more" in words
        assert "Looked at - limit of memory" in words
        shown = screen_lines(app)
        assert "verdict   2 findings   window at 90.0 s" in shown[0]
        assert any("will be out of memory" in line for line in shown)
        await pilot.press("home")
        await until(pilot, lambda: "nothing found." in [row.cells[0] for row in app.screen.rows.view.rows])
        rows = [row.cells[0] for row in app.screen.rows.view.rows]
        assert "Not known" in rows
        await pilot.press("question_mark")
        await until(pilot, lambda: not isinstance(app.screen, VerdictScreen))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, VerdictScreen))
        await pilot.press("v")
        await until(pilot, lambda: not isinstance(app.screen, VerdictScreen))


async def test_a_healthy_program_has_nothing_to_do_on_its_page(tmp_path):
    path = session_of(tmp_path / "s.memtui", steady)
    async with opened(path, (120, 36)) as (app, pilot):
        assert app.screen.view.sentences.sentences[0][0].startswith("In a window of")
        await pilot.press("v")
        await until(pilot, lambda: isinstance(app.screen, VerdictScreen) and app.screen.rows.view.rows)
        assert "verdict   nothing to do" in screen_lines(app)[0]
        await pilot.press("down", "pagedown", "escape")
        await until(pilot, lambda: not isinstance(app.screen, VerdictScreen))


@pytest.mark.parametrize("width", [30, 114])
def test_lines_keep_to_the_width_and_cannot_change_the_terminal(width):
    finding = Finding("Cgroup /a\x1b[2J is full. " * 9, "full", "Do so.", ("a figure " * 20,))
    rows = verdict_rows(Verdict((Check("oom", "limit", finding=finding), Check("leak", "why " * 30, False))), width)
    assert max(len(row.cells[0]) for row in rows) <= width
    assert [row.key for row in rows] == list(range(len(rows)))
    assert "\x1b" not in "".join(row.cells[0] for row in rows)
