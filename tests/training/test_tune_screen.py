"""The screen of a grid of trainings: its table, the output of a run, its keys, and the whole in a terminal."""

from __future__ import annotations

import signal
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memtui.training.tune.grid import from_options
from memtui.training.tune.presenter import GridLog
from memtui.training.tune.results import Results, TuneRow, create_results
from memtui.training.tune.screen import GridApp, GridScreen, columns_of
from memtui.tui.screens.help import HelpScreen
from memtui.widgets.views.tune import GridRow, GridView
from tests.support.goldens import compare
from tests.support.screen_text import screen_lines, screen_text
from tests.support.terminals import Terminal

NOW = datetime(2026, 7, 31, 12, 0, 5, tzinfo=UTC)
SIZES = [(210, 60), (120, 36), (80, 24), (60, 16)]
AXES = ["name=fcReLu,long_fc", "type=BP,DFA", "batch_size=50,100,200", "learning_rate=0.01,0.001,0.0001"]
ENDED = {
    0: TuneRow(93.06, 0.2512, 4, 576, "", 1_302_400, 408_000, seconds=61.0, session="/home/me/fcReLu.memtui"),
    1: TuneRow(88.5, 0.4, 4, 576, "", 1_302_400, 408_000, seconds=58.2),
    2: TuneRow(seconds=1.25, exit=1, error="RuntimeError: \\x1b[31mout of memory"),
    3: TuneRow(12.5, float("nan"), 3, 432, "expected 30 after 3 epochs, got 12.5", 3_000_000, 790_016, seconds=47.0),
    4: TuneRow(97.22, 0.09, 4, 576, peak_bytes=900_000, seconds=4000.0),  # its table knew no other peak
}


class Fixed:
    """A folder whose time stands still."""

    def __init__(self, results: Results, **changes) -> None:
        self._log, self.changes = GridLog(results), changes

    def view(self) -> GridView:
        result = self._log.view()
        path = f"results/{Path(result.path).name}"
        rows = tuple(replace(row, seconds=30.0) if row.state == "running" else row for row in result.rows)
        return replace(result, path=path, rows=rows, **self.changes)

    def files(self, run: int):
        return self._log.files(run)


def folder(tmp_path: Path, ended=ENDED, axes=AXES) -> Results:
    """With five runs that have ended; the sixth has begun."""
    results = create_results(tmp_path, from_options(axes, "" if axes is AXES else "fcReLu", {}, {}), NOW)
    for run in ended:
        results.output(run).write_text("".join(f"line {n} of {run}\n" for n in range(100)))
        results.errors(run).write_text(f"complaint of {run}\nmore\x1b[2J\n")
    results.output(5).write_text("")
    results.errors(5).write_text("iteration: 100, accuracy: 31%\riteration: 200, accuracy: 64%")
    results.write(ended)
    return results


@asynccontextmanager
async def running(source, size=(120, 36), **how):
    app = GridApp(source, **how)
    async with app.run_test(size=size) as pilot:
        await seen(pilot, lambda: app.screen._view.rows)
        await pilot.pause(0.05)
        yield app, pilot


async def seen(pilot, what) -> None:
    end = time.monotonic() + 10
    while not what():
        assert time.monotonic() < end, screen_text(pilot.app)
        await pilot.pause(0.02)


def live(results: Results) -> Fixed:
    """Looked at while this screen's own runs go on: those with output and no row run."""

    class Live(Fixed):
        def view(self) -> GridView:
            return super().view()

    source = Live(results)
    source._log = GridLog(results, lambda: False)
    return source


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_picture(tmp_path, size):
    async with running(live(folder(tmp_path)), size) as (app, _):
        lines = screen_lines(app)
        assert {len(line) for line in lines} == {size[0]}
        assert len(lines) == size[1]
        compare(f"grid-{size[0]}x{size[1]}", screen_text(app))


async def test_the_picture_in_ascii_and_without_colour(tmp_path):
    async with running(live(folder(tmp_path)), ascii_only=True, color="none") as (app, pilot):
        await pilot.press("s")
        assert screen_text(app).isascii()
        compare("grid-120x36-ascii", screen_text(app))


async def test_figures_that_have_no_room_are_left_out_whole(tmp_path):
    async with running(live(folder(tmp_path)), (66, 24)) as (app, pilot):
        await pilot.press("home")
        line = next(line.rstrip() for line in screen_lines(app) if "accuracy" in line and "·" in line)
    assert "…" not in line
    assert "iterations" not in line


async def test_too_small_a_terminal_says_so(tmp_path):
    async with running(live(folder(tmp_path)), (40, 10)) as (app, _):
        assert "60x16" in screen_text(app)


async def test_the_cursor_is_on_the_run_that_goes_on_until_it_is_moved(tmp_path):
    results = folder(tmp_path)
    async with running(live(results)) as (app, pilot):
        assert app.screen.rows.selected == 5
        assert "iteration: 200, accuracy: 64%" in screen_text(app), "its last line"
        assert "running · accuracy – · loss – · peak – · above start – · 30 s" in screen_text(app)
        await pilot.press("up", "up", "up")
        assert " RuntimeError: \\x1b[31mout of memory" in screen_text(app)
        results.output(6).write_text("")
        await seen(pilot, lambda: app.screen._view.rows[6].state == "running")
        assert app.screen.rows.selected == 2
        await pilot.press("up")
        figures = "accuracy 88.50 % · loss 0.4 · peak 1.24 MiB · above start 398 KiB · 58 s · 576 iterations"
        assert figures in screen_text(app)
        results.write({**ENDED, 5: ENDED[0]})
        await pilot.press("end")
        await seen(pilot, lambda: app.screen.rows.selected == 6)


@pytest.mark.parametrize(
    ("keys", "name", "first"),
    [
        ("", "grid ▲", [0, 1, 2]), ("S", "grid ▼", [35, 34, 33]), ("s", "accuracy ▼", [4, 0, 1, 3, 2]),
        ("sS", "accuracy ▲", [3, 1, 0, 4, 2]), ("ss", "loss ▲", [4, 0, 1, 2, 3]), ("sss", "peak ▲", [4, 0, 1, 3, 2]),
        ("ssss", "above ▲", [0, 1, 3, 2]), ("sssss", "time ▲", [2, 5, 3, 1, 0, 4, 6]),
        ("ssssss", "state ▲", [2, 0, 1, 4, 5, 3, 6]), ("sssssss", "grid ▲", [0, 1, 2]),
    ],
)  # fmt: skip
async def test_orders(tmp_path, keys, name, first):
    """What is not known comes last, whichever way; so does a loss that is not a number."""
    async with running(live(folder(tmp_path))) as (app, pilot):
        if keys:
            await pilot.press(*keys)
        assert f"sorted by {name}" in screen_text(app)
        assert [row.key for row in app.screen.rows.view.rows[: len(first)]] == first
        assert app.screen.rows.selected == 5, "the cursor stays with its run"


async def test_enter_shows_what_a_run_printed_and_what_it_complained_of(tmp_path):
    results = folder(tmp_path)
    async with running(live(results)) as (app, pilot):
        await pilot.press("home", "enter")
        assert app.screen.output.display
        assert "line 99 of 0" in screen_text(app)
        assert "Esc: back" in screen_text(app)
        await pilot.press("home")
        assert "line 0 of 0" in screen_text(app)
        await pilot.press("pagedown", "down", "up", "end")
        assert "line 99 of 0" in screen_text(app)
        await pilot.press("tab")
        assert "complaint of 0" in screen_text(app)
        assert "more\\x1b[2J" not in screen_text(app), "what would move a cursor is not drawn"
        await pilot.press("escape")
        assert not app.screen.output.display
        await pilot.press("down", "down", "enter")
        assert "complaint of 2" in screen_text(app), "of one that failed that comes first"
        await pilot.press("escape", "pagedown", "enter")
        assert "is not there: the run has not begun" in " ".join(screen_text(app).replace("│", " ").split())
        await pilot.press("escape", "end", "enter")
        assert "iteration: 200, accuracy: 64%" in screen_text(app)
        results.errors(5).write_text("iteration: 300\n")
        await seen(pilot, lambda: "iteration: 300" in screen_text(app).split("┘")[0])
        await pilot.press("q")
    assert app.return_code == 0


async def test_a_folder_that_nobody_runs(tmp_path):
    async with running(Fixed(folder(tmp_path))) as (app, pilot):
        shown = screen_text(app)
        assert "interrupted" in shown
        assert "5 of 36, 1 failed" in shown
        assert " left" not in shown
        assert "q leaves ·" in shown
        await pilot.press("escape")
    assert app.return_code == 0


async def test_a_folder_that_another_process_runs(tmp_path):
    async with running(Fixed(folder(tmp_path), holder=4242)) as (app, _):
        assert "q leaves (process 4242 goes on)" in screen_text(app)


async def test_a_table_that_somebody_changed_is_told(tmp_path):
    results = folder(tmp_path)
    async with running(live(results)) as (app, pilot):
        results.summary.write_text("nonsense")
        await seen(pilot, lambda: "is not as memtui wrote it" in screen_text(app))
        results.summary.unlink()
        await seen(pilot, lambda: "0 of 36" in screen_text(app))


def test_a_view_of_a_folder(tmp_path):
    results = folder(tmp_path)
    view = GridLog(results, lambda: False).view()
    assert (view.ended, view.failed, view.own, len(view.rows)) == (5, 1, True, 36)
    assert [row.state for row in view.rows[:7]] == [
        "finished", "finished", "failed", "stopped early", "finished", "running", "waiting",
    ]  # fmt: skip
    assert view.rows[5].seconds < 60
    mean = (61 + 58.2 + 47 + 4000) / 4
    assert view.left_s == pytest.approx(31 * mean, rel=0.05)
    over = GridLog(results, lambda: True).view()
    assert (over.own, over.left_s, over.rows[5].state) == (False, None, "interrupted")


def test_columns_share_a_place_where_there_are_many_axes():
    rows = (GridRow(0, ("a" * 30, "b" * 30, "c" * 30), "", "waiting"),)
    for width, joined in ((400, False), (117, True), (57, True)):
        columns, together = columns_of(GridView(axes=("x", "y", "z"), rows=rows), width)
        assert together is joined
        assert len([c for c in columns if c.name in ("x", "y", "z")]) == (0 if joined else 3)
    assert columns_of(GridView(), 100)[0]


async def test_help_is_about_these_keys(tmp_path):
    async with running(live(folder(tmp_path))) as (app, pilot):
        await pilot.press("question_mark")
        await pilot.pause(0.1)
        assert isinstance(app.screen, HelpScreen)
        assert "Runs of a grid of trainings" in screen_text(app)
        assert "jump to a typed time" not in screen_text(app)
        await pilot.press("escape")
        await pilot.pause(0.1)
        assert isinstance(app.screen, GridScreen)


@pytest.mark.real_clock(alone=False)
class TestInATerminal:
    """The real thing, with runs that learn nothing."""

    @pytest.fixture
    def start(self, tmp_path, monkeypatch):
        monkeypatch.setenv("TUNE_RUNS", str(tmp_path / "runs"))
        monkeypatch.setenv("TUNE_SLEEP", "0.5")
        terminals = []

        def begun(*words, **more) -> Terminal:
            terminals.append(Terminal("tune", *words, module="tests.support.tune_stub", **more))
            return terminals[-1]

        yield begun
        for one in terminals:
            one.close()

    def words(self, tmp_path) -> tuple[str, ...]:
        return ("fcReLu", "--grid", "seed=1,2,3,4", "--grid", "type=BP,DFA", "-o", str(tmp_path / "results"))

    def pids(self, tmp_path) -> list[int]:
        return [int(line.split()[-1]) for line in (tmp_path / "runs").read_text().splitlines()]

    def test_it_is_left_and_goes_on(self, start, tmp_path):
        terminal = start(*self.words(tmp_path))
        terminal.read(60, until="2 of 8")
        terminal.read(60, until="running")  # between two runs none does
        terminal.send("q")
        assert terminal.end(20) == 130  # as of ^C: it has not ended
        assert terminal.restored()
        assert "runs have ended; memtui tune --resume" in terminal.output.decode()
        assert not any(Path(f"/proc/{pid}").exists() for pid in self.pids(tmp_path))
        terminal = start(*self.words(tmp_path), columns=80, rows=24)
        terminal.read(60, until="8 of 8")
        terminal.read(20, until=" q leaves")
        terminal.send("q")
        assert terminal.end(20) == 0
        assert "all 8 runs have ended" in terminal.output.decode()
        assert len(self.pids(tmp_path)) <= 9

    def test_a_screen_that_is_killed_ends_the_runs(self, start, tmp_path):
        terminal = start(*self.words(tmp_path))
        terminal.read(60, until="1 of 8")
        terminal.process.send_signal(signal.SIGKILL)
        terminal.process.wait()
        end = time.monotonic() + 15
        while any(Path(f"/proc/{pid}").exists() for pid in self.pids(tmp_path)):
            assert time.monotonic() < end
            time.sleep(0.05)
        time.sleep(1.0)
        assert len(self.pids(tmp_path)) < 8

    def test_a_second_one_is_refused_and_may_look(self, start, tmp_path, monkeypatch):
        monkeypatch.setenv("TUNE_SLEEP", "4")
        first = start(*self.words(tmp_path))
        first.read(60, until="running")
        second = start(*self.words(tmp_path))
        assert second.end(20) == 1
        assert b"is being run by process" in second.output
        (results,) = (tmp_path / "results").iterdir()
        third = start(str(results))
        third.read(60, until="q leaves (process")
        third.send("q")
        assert third.end(20) == 0
        assert first.process.poll() is None

    def test_without_a_terminal_to_draw_on_rows_are_printed(self, start, tmp_path, monkeypatch):
        monkeypatch.setenv("TUNE_SLEEP", "0")
        terminal = start("fcReLu", "--grid", "seed=1", "-o", str(tmp_path), before=("env", "TERM=dumb"))
        assert terminal.end(20) == 0
        assert b"summary.csv" in terminal.output
        assert not terminal.restored()

    def test_what_is_wrong_is_said_without_a_screen(self, start, tmp_path):
        terminal = start("fcReLu", "--grid", "type=XX")
        assert terminal.end(20) == 2
        assert b"type is one of BP" in terminal.output
        assert not terminal.restored()
