"""The home screen: what it finds, how it is moved about in, and that it opens what was chosen."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual import events

from memtui.cli.home import Home
from memtui.session.file_format import SessionError
from memtui.session.session import Session
from memtui.session.summary import summarize
from memtui.tui.screens.home import REFRESH_S, HomeApp
from memtui.widgets.views.home import HomeView, ProcessRow, SessionRow
from tests.support.cli import memtui
from tests.support.live import needs_tracker
from tests.support.screen_text import screen_lines, screen_text
from tests.support.sessions import messages, write_session
from tests.support.terminals import Terminal

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
    for text in ("running processes  3", "torch GPU", "9.00 GiB", "python3 train.py --lr 3", "recorded abcd", "2 h"):
        assert text in shown
    for text in ("sessions  3", "recording", "18000", "01:00:00", "bad.memtui: is truncated", "70.0 MiB"):
        assert text in shown
    assert "\x1b" not in shown
    assert "\\x1b]52;c;AAAA\\x07[red]<U+202E>" in shown


async def test_the_script_of_a_long_command_line_stays_in_sight():
    folder = "/home/ada/projects/experiments/a_run_with_a_long_name"
    trains = [
        ProcessRow(
            pid, "ada", ("torch",), 1 << 30, 9.0, f"python {folder}/train.py --data {folder}/tokens.bin --lr {lr}"
        )
        for pid, lr in ((11, "1e-3"), (12, "1e-4"))
    ]
    async with running(replace(VIEW, processes=tuple(trains)), size=(100, 24)) as (app, _):
        for pid, lr in (("11", "1e-3"), ("12", "1e-4")):
            line = next(line for line in screen_lines(app) if f" {pid} " in line)
            assert "train.py" in line
            assert lr in line
    alike = [replace(trains[0], pid=pid, command=f"python {folder}/{pid}/train.py") for pid in (11, 12)]
    async with running(replace(VIEW, processes=tuple(alike)), size=(80, 24)) as (app, _):
        for pid in ("11", "12"):
            assert f"{pid}/" in next(line for line in screen_lines(app) if f" {pid} " in line), "it tells them apart"


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


async def test_letters_typed_over_others_in_one_go_take_their_place():
    async with running() as (app, pilot):
        await pilot.press(*"zz")
        for key in ("backspace", "backspace", *"train"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await pilot.pause(0.3)
        assert " filter: train▏" in screen_text(app)


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


# -- what changes while it is looked at


def hungry(folder, name: str, mib: int) -> subprocess.Popen[str]:
    """A real process with so much memory, which takes as much again for every line it reads."""
    code = (
        "import sys\n"
        f"b = [bytearray({mib} << 20)]; print(flush=True)\n"
        f"for _ in sys.stdin: b.append(bytearray({mib} << 20)); print(flush=True)\n"
    )
    script = folder / f"{name}.py"
    script.write_text(code)
    child = subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert child.stdout is not None
    child.stdout.readline()
    return child


@asynccontextmanager
async def real(folder):
    """The screen on the processes of this machine, with those of this test in sight."""
    app = HomeApp(Home(folder / "state", folder / "state" / "sessions").scan)
    async with app.run_test(size=(150, 60)) as pilot:
        app.screen._typed = str(folder)
        await until(pilot, lambda: "looking ..." not in screen_text(app))
        app.screen.fill()
        yield app, pilot


async def until(pilot, holds, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come"
        await pilot.pause(0.05)


def line_of(app, text: str) -> int | None:
    return next((y for y, line in enumerate(screen_lines(app)) if text in line), None)


def size_in(app, text: str) -> str:
    return next((line.partition(" MiB")[0].split()[-1] for line in screen_lines(app) if text in line), "")


@pytest.mark.real_clock(alone=False)
async def test_sizes_change_and_programs_come_and_go_and_the_chosen_row_stays_where_it_is(tmp_path):
    small, middle = hungry(tmp_path, "small", 40), hungry(tmp_path, "middle", 60)
    try:
        async with real(tmp_path) as (app, pilot):
            await until(pilot, lambda: line_of(app, "small.py") is not None and line_of(app, "middle.py") is not None)
            assert line_of(app, "middle.py") < line_of(app, "small.py"), "the largest comes first"
            await pilot.press("down")
            assert app.screen.processes.selected == ("attach", str(small.pid))
            line, size = line_of(app, "small.py"), size_in(app, "small.py")
            assert size
            # It becomes the larger one, and a third one that is larger still begins.
            for _ in range(2):
                small.stdin.write("more\n")
                small.stdout.readline()
            large = hungry(tmp_path, "large", 200)
            try:
                await until(pilot, lambda: line_of(app, "large.py") is not None)
                # 80 MiB more; sizes from 100 on are shown without a decimal, so "49.4" becomes "129".
                await until(pilot, lambda: float(size_in(app, "small.py")) >= float(size) + 79)
                assert line_of(app, "small.py") == line
                assert line_of(app, "middle.py") < line
                assert line_of(app, "large.py") > line
                assert "1 new at the end" in screen_text(app)
                # What ends above the cursor, and under it, keeps its place, and Enter opens no neighbour.
                middle.kill()
                small.kill()
                await until(pilot, lambda: screen_text(app).count("ended") == 2)
                assert line_of(app, "small.py") == line
                await pilot.press("enter")
                assert app.return_value is None
                assert "the process has ended; choose another row" in screen_text(app)
                # The next key makes the order anew.
                await pilot.press(" ")
                assert line_of(app, "small.py") is None
                assert app.screen.processes.selected == ("attach", str(large.pid))
            finally:
                large.kill()
                large.communicate()
    finally:
        for child in (small, middle):
            child.kill()
            child.communicate()


async def test_a_question_stays_while_the_screen_is_refreshed():
    views = [VIEW]
    app = HomeApp(lambda: views[0])
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: "postgres" in screen_text(app))
        await pilot.press("down", "down", "enter")
        for _ in range(2):
            app.screen.post_message(type(app.screen).Seen(VIEW))
            await pilot.pause(0.05)
            assert "process 99 belongs to root: Enter once more watches it" in screen_text(app)
        await pilot.press("enter")
    assert app.return_value == ("attach", "99")


async def test_a_recording_that_ends_keeps_its_row_and_is_then_replayed():
    app = HomeApp(lambda: VIEW)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: "postgres" in screen_text(app))
        await pilot.press("tab")
        line = line_of(app, "python other.py")
        newer = SessionRow("/s/new.memtui", time.time(), 1.0, 3, 1 << 20, "python new.py", "recording", pid=18)
        ended = replace(VIEW.sessions[0], state="stopped", pid=None)
        view = replace(VIEW, sessions=(newer, ended, *VIEW.sessions[1:]))
        app.screen.post_message(type(app.screen).Seen(view))
        await until(pilot, lambda: line_of(app, "python new.py") is not None)
        assert line_of(app, "python other.py") == line
        await pilot.press("enter")
    assert app.return_value == ("replay", "/s/17.memtui")


# -- what it finds


def test_it_is_refreshed_within_two_seconds():
    assert REFRESH_S < 2


def test_a_child_of_a_process_in_the_list_is_told_from_it(tmp_path):
    """As the workers of a DataLoader, whose command lines are that of the training."""
    big = "keep = bytearray(48 << 20); "
    code = (
        f"import os, sys, time; {big}child = os.fork() or os.getpid()\n"
        "if child == os.getpid(): keep = bytearray(48 << 20)\n"
        "else: print(child, flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        try:
            home, end = Home(tmp_path, tmp_path / "sessions"), time.monotonic() + 10
            while not {child, parent.pid} <= (rows := {row.pid: row for row in home.scan().processes}).keys():
                assert time.monotonic() < end
            assert rows[parent.pid].kinds == ("python",)
            assert rows[child].kinds == ("python", f"of {parent.pid}")
        finally:
            os.kill(child, 9)
            parent.kill()


def test_a_summary_says_what_the_session_says(tmp_path):
    path = write_session(tmp_path / "s.memtui", messages(30))
    summary = summarize(path)
    reader = Session(path)
    samples = reader.samples
    assert summary.command == reader.hello.target.command
    assert summary.samples == 30
    assert summary.duration_s == (samples.end_ns[-1] - samples.start_ns[0]) / 1e9
    assert summary.end == reader.end.kind
    assert summary.began_s == reader.hello.clock.wall_ns / 1e9
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
    monkeypatch.setattr("memtui.cli.home.summarize", lambda path: calls.append(path) or summarize(path))
    for _ in range(3):
        rows = {Path(row.path).name: row for row in home.scan().sessions}
    assert len(calls) == 2
    assert (rows["good.memtui"].samples, rows["good.memtui"].trouble) == (5, "")
    assert (rows["bad.memtui"].samples, rows["bad.memtui"].trouble) == (None, "is truncated")


def test_without_a_terminal_it_is_the_help():
    done = memtui()
    assert done.returncode == 0
    assert "\nwatch:\n" in done.stdout


@pytest.mark.real_clock(alone=False)
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
