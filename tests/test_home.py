"""The home screen: what it finds, how it is moved about in, and that it opens what was chosen."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import asynccontextmanager

import pytest

from memtui.candidates import Candidates, is_own
from memtui.home import Home
from memtui.screens.home import HomeApp
from memtui.session.reader import SessionReader
from memtui.session.store import SessionError
from memtui.session.summary import summarize
from memtui.views_home import HomeView, ProcessRow, SessionRow
from tests.live import needs_tracker
from tests.screen_text import screen_lines, screen_text
from tests.sessions import messages, write_session
from tests.terminals import Terminal
from tests.test_cli import memtui

EVIL = "\x1b]52;c;AAAA\x07[red]\u202e"
VIEW = HomeView(
    "server",
    (
        ProcessRow(4242, "ada", ("torch", "GPU"), 9 << 30, 7200.0, "/usr/bin/python3 train.py --lr 3"),
        ProcessRow(17, "bob", ("python",), 300 << 20, 5.0, f"python {EVIL}", recording="abcd"),
        ProcessRow(99, "root", (), 2 << 30, 86_400.0, "postgres"),
    ),
    (
        SessionRow("/s/17.memtui", time.time() - 60, 60.0, 300, 1 << 20, "python other.py", "recording", pid=17),
        SessionRow("/s/old.memtui", 1.6e9, 3600.0, 18_000, 70 << 20, "python train.py", "duration"),
        SessionRow("/s/bad.memtui", 1.6e9, None, None, 12, "", "unreadable", "is truncated"),
    ),
    user="ada",
)


@asynccontextmanager
async def running(view: HomeView = VIEW, size=(120, 36), **how):
    app = HomeApp(lambda: view, **how)
    async with app.run_test(size=size) as pilot:
        for _ in range(200):
            await pilot.pause(0.01)
            if "looking ..." not in screen_text(app):
                break
        yield app, pilot


async def test_it_shows_what_runs_and_what_was_recorded():
    async with running() as (app, _):
        shown = screen_text(app)
    for words in ("running processes  3", "torch GPU", "9.00 GiB", "python3 train.py --lr 3", "recorded abcd", "2 h"):
        assert words in shown
    for words in ("sessions  3", "recording", "18000", "01:00:00", "bad.memtui: is truncated", "70.0 MiB"):
        assert words in shown
    assert "\x1b" not in shown
    assert "\\x1b]52;c;AAAA\\x07[red]<U+202E>" in shown


@pytest.mark.parametrize("size", [(210, 60), (120, 36), (80, 24), (60, 16)])
@pytest.mark.parametrize("how", [{}, {"color": "16"}, {"color": "none", "ascii_only": True}])
async def test_every_line_is_as_wide_as_the_screen(size, how):
    async with running(size=size, **how) as (app, _):
        lines = screen_lines(app)
        assert {len(line) for line in lines} == {size[0]}
        assert len(lines) == size[1]
        if how.get("ascii_only"):
            assert all(line.isascii() for line in lines)


async def test_too_small_says_what_it_needs():
    async with running(size=(50, 12)) as (app, pilot):
        assert "memtui needs 60x16 cells" in screen_text(app)
        await pilot.resize_terminal(100, 30)
        await pilot.pause(0.1)
        assert "running processes" in screen_text(app)


async def test_typing_filters_both_lists():
    async with running() as (app, pilot):
        await pilot.press(*"train")
        shown = screen_text(app)
        assert "running processes  1, 2 without that text" in shown
        assert "sessions  1, 2 without that text" in shown
        await pilot.press(*" zz")
        assert "no running process has that text" in screen_text(app)
        await pilot.press("backspace", "backspace", "backspace")
        assert "running processes  1" in screen_text(app)
        await pilot.press("escape")
        assert "running processes  3" in screen_text(app)
        await pilot.press(*"q", "ctrl+u")
        assert "running processes  3" in screen_text(app)


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [
        (["enter"], ("attach", "4242")),
        (["down", "down", "down", "up", "enter"], ("attach", "17")),
        (["tab", "enter"], ("attach", "17")),  # it is recorded now
        (["tab", "down", "enter"], ("replay", "/s/old.memtui")),
        (["tab", "pagedown", "pageup", "tab", "enter"], ("attach", "4242")),
        ([*"postgres", "enter", "enter"], ("attach", "99")),
        (["down", "enter"], ("attach", "17")),  # of another user, and recorded already
        ([*"nothing of this kind", "enter", "escape", "escape"], None),
        (["escape"], None),
        (["ctrl+c"], None),
    ],
)
async def test_enter_opens_what_is_chosen(keys, chosen):
    async with running() as (app, pilot):
        await pilot.press(*keys)
        await pilot.pause(0.05)
        assert not app.is_running
        assert app.return_value == chosen


async def test_a_click_chooses_and_a_second_one_opens():
    async with running() as (app, pilot):
        lines = screen_lines(app)
        y = next(i for i, line in enumerate(lines) if "old.memtui" in line or "18000" in line)
        await pilot.click(offset=(20, y))
        assert app.is_running
        await pilot.click(offset=(20, y))
        await pilot.pause(0.05)
        assert app.return_value == ("replay", "/s/old.memtui")


async def test_a_process_of_somebody_else_is_asked_about_once():
    async with running() as (app, pilot):
        await pilot.press(*"postgres", "enter")
        assert "process 99 belongs to root: Enter once more watches it" in screen_text(app)
        await pilot.press("escape", "up", "up", "down", "down", "enter")
        assert "process 99 belongs to root" in screen_text(app), "what was moved away from is asked about anew"
        assert app.return_value is None
        await pilot.press("enter")
    assert app.return_value == ("attach", "99")


async def test_a_row_that_a_text_hides_is_selected_again_when_it_is_back():
    async with running() as (app, pilot):
        await pilot.press(*"postgres")
        assert app.screen.processes.selected == ("attach", "99")
        await pilot.press("escape")
        assert app.screen.processes.selected == ("attach", "4242")
        await pilot.press(*"postgres", "down", "escape")
        assert app.screen.processes.selected == ("attach", "99"), "unless another one was chosen meanwhile"


async def test_the_chosen_row_stays_chosen_when_others_come():
    views = [VIEW]
    app = HomeApp(lambda: views[0])
    async with app.run_test(size=(120, 36)) as pilot:
        await pilot.pause(0.2)
        await pilot.press("down")
        more = ProcessRow(1000, "eve", ("torch",), 99 << 30, 1.0, "bigger")
        app.screen._view = HomeView("server", (more, *VIEW.processes), VIEW.sessions)
        app.screen.fill()
        await pilot.press("enter")
        await pilot.pause(0.05)
        assert app.return_value == ("attach", "17")


async def test_a_session_that_cannot_be_opened_says_why_and_the_list_stays():
    async with running() as (app, pilot):
        await pilot.press("tab", "down", "down", "enter")
        await pilot.pause(0.05)
        assert app.return_value is None
        assert "it cannot be opened: is truncated" in screen_text(app)


# -- what it finds


@pytest.mark.parametrize(
    ("command", "own"),
    [
        ("python -m memtui attach 1", True),
        ("/srv/venv/bin/memtui record 1", True),
        ("python -P -m memtui.sampler", True),
        ("python -m memtui.workloads.cnn --epochs 3", False),
        ("python /home/ada/memtui-runs/train.py", False),
    ],
)
def test_memtui_itself_is_no_candidate_and_what_it_trains_is(command, own):
    assert is_own(command) == own


def test_processes_are_known_by_what_they_have_mapped(tmp_path):
    library = tmp_path / "libtorch_cpu.so"
    library.write_bytes(bytes(4096))
    code = (
        "import mmap, sys, time\n"
        f"file = open({str(library)!r}, 'rb'); keep = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)\n"
        "big = bytearray(48 << 20); print(flush=True); time.sleep(60)"
    )
    secret = "--api-key=hunter2"
    with subprocess.Popen([sys.executable, "-c", code, secret], stdout=subprocess.PIPE) as child:
        try:
            child.stdout.readline()
            found = {c.pid: c for c in Candidates().look()}
            mine = found[child.pid]
            assert mine.kinds == ("torch",)
            assert mine.rss_bytes >= 48 << 20
            assert 0 <= mine.age_s < 60
            assert "hunter2" not in mine.command
            assert os.getpid() not in found
            assert os.getppid() not in found, "pausing it would stop memtui"
        finally:
            child.kill()


def test_what_ended_is_forgotten():
    candidates = Candidates()
    with subprocess.Popen(
        [sys.executable, "-c", "b = bytearray(64 << 20); print(flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as child:  # fmt: skip
        child.stdout.readline()
        assert child.pid in {c.pid for c in candidates.look()}
        child.kill()
    assert child.pid not in {c.pid for c in candidates.look()}
    assert child.pid not in candidates._known


def test_a_summary_says_what_the_session_says(tmp_path):
    path = write_session(tmp_path / "s.memtui", messages(30))
    found = summarize(path)
    reader = SessionReader(path)
    samples = reader.samples
    assert found.command == reader.hello.target.command
    assert found.samples == 30
    assert found.duration_s == (samples.end_ns[-1] - samples.start_ns[0]) / 1e9
    assert found.end == reader.end.kind
    assert found.began_s == reader.hello.clock.wall_ns / 1e9
    reader.close()
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(SessionError, match="truncated"):
        summarize(path)


def test_sessions_are_looked_into_once(tmp_path, monkeypatch):
    folder = tmp_path / "sessions"
    folder.mkdir()
    write_session(folder / "good.memtui", messages(5))
    (folder / "bad.memtui").write_bytes(b"SQLite format 3\0" + bytes(50))
    home = Home(tmp_path, folder)
    calls = []
    monkeypatch.setattr("memtui.home.summarize", lambda path: calls.append(path) or summarize(path))
    for _ in range(3):
        rows = {os.path.basename(row.path): row for row in home.look().sessions}
    assert len(calls) == 2
    assert (rows["good.memtui"].samples, rows["good.memtui"].trouble) == (5, "")
    assert (rows["bad.memtui"].samples, rows["bad.memtui"].trouble) == (None, "is truncated")


def test_without_a_terminal_it_is_the_help():
    done = memtui()
    assert done.returncode == 0
    assert "commands:" in done.stdout


@needs_tracker
def test_from_home_to_a_process_and_back(tmp_path, monkeypatch):
    """The whole program on a terminal: typed, found, attached, left."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    code = "b = bytearray(40 << 20)\nwhile True: b[:: 4096] = b[:: 4096]"
    with subprocess.Popen([sys.executable, "-c", code, "unmistakable"]) as child:
        terminal = Terminal(module="memtui")
        try:
            terminal.read(20, until=str(child.pid))
            terminal.send("unmistak")
            terminal.read(5, until="filter: unmistak")
            terminal.send("\r")
            terminal.read(30, until="LIVE")
            terminal.send("q")
            assert terminal.end() == 0
            assert terminal.restored()
            assert "session: " in terminal.text
            assert child.poll() is None
        finally:
            terminal.close()
            child.kill()
