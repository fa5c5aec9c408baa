"""The screen of training steps over time: on a session in which what tensors held is known."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.session.file_format import SessionError
from memtui.session.session import Session
from memtui.tui.presenters import Presenter
from memtui.tui.presenters.markers import StepTicks
from memtui.tui.presenters.training import UNTRACED, WAITING, TrainingLog
from memtui.tui.screens.allocations import AllocationScreen
from memtui.tui.screens.memory import MemoryScreen
from memtui.tui.screens.training import TrainingScreen
from memtui.tui.session_app import MemtuiApp
from memtui.widgets.views.memory import TimeAxis
from tests.support import sessions
from tests.support.allocation_screen import step, until
from tests.support.screen_text import screen_lines, screen_text
from tests.support.training_screen import MIB, MS, opened, told

SECOND = 1000 * MS


UNSEEN = {"usage": np.empty((4 + len(CATEGORIES), 0), np.int64), "view": "", "reason": "torch.compile has compiled it"}


async def test_what_is_held_at_the_cursor_and_at_most(tmp_path):
    async with opened(tmp_path, *(told(n) for n in range(0, 80, 10))) as (app, pilot):
        shown = screen_text(app)
        assert (
            "pid 4242 · step 79 · 50.0 ms each, 20 a second · cheap view: 1 step in 2, takes 0 % of the time" in shown
        )
        assert "peak 87.0 MiB" in shown
        assert "held here 87.0 MiB at aten::gelu" in shown
        lines = [" ".join(line.strip("│ ").split()) for line in screen_lines(app)]
        assert "A activations 79.0 MiB 91 % 79.0 MiB 0 B" in lines
        assert "W weights 8.00 MiB 9 % 8.00 MiB 8.00 MiB" in lines
        assert "all that is known 87.0 MiB 87.0 MiB 8.00 MiB" in lines
        await pilot.press("down", "pagedown", "up")
        await pilot.press("home")
        await until(pilot, lambda: "step 3 ·" in screen_text(app))  # the end of the first window, after 200 ms
        assert "held here 12.0 MiB" in screen_text(app)


async def test_keys_are_those_of_the_time_axis(tmp_path):
    async with opened(tmp_path, *(told(n) for n in range(0, 80, 10))) as (app, pilot):
        await pilot.press("home")
        await until(pilot, lambda: "step 3 ·" in screen_text(app))
        await pilot.press("right")
        await until(pilot, lambda: "step 8 ·" in screen_text(app))
        await pilot.press("left")
        await until(pilot, lambda: "step 3 ·" in screen_text(app))
        await pilot.press("P")
        await until(pilot, lambda: "held here 87.0 MiB" in screen_text(app))
        await pilot.press("plus")
        await until(pilot, lambda: app.screen._view.axis.span_ns == SECOND)
        await pilot.press("minus", "minus")
        await until(pilot, lambda: app.screen._view.axis.span_ns > 3 * SECOND)
        await pilot.click(offset=(20, 5))
        await until(pilot, lambda: "held here 87.0" not in screen_text(app))
        await pilot.press("end")
        await until(pilot, lambda: "held here 87.0 MiB" in screen_text(app))
        await pilot.press("question_mark")
        await until(pilot, lambda: "of a traced training (memtui trace)" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, TrainingScreen))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, MemoryScreen))


async def test_the_newest_step_is_shown_where_steps_came_after_the_last_window(tmp_path):
    """The session has 4 s of windows, and steps of 5 s."""
    async with opened(tmp_path, *(told(n) for n in range(0, 100, 10))) as (app, pilot):
        await pilot.press("end")
        await until(pilot, lambda: "step 99 ·" in screen_text(app))
        await pilot.press("left")
        await until(pilot, lambda: "step 77 ·" in screen_text(app))


async def test_enter_shows_the_recorded_step_that_is_nearest(tmp_path):
    async with opened(tmp_path, told(0), step(20), step(40), told(10)) as (app, pilot):
        assert "2 recorded" in screen_text(app)
        assert "Enter recorded step near here" in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, AllocationScreen) and "1 of 2" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, TrainingScreen))


async def test_enter_shows_the_step_of_the_device_that_is_shown(tmp_path):
    both = step(20), replace(step(20, extra=1), device="cuda:0")
    async with opened(tmp_path, told(0), *both, told(10), replace(told(10), device="cuda:0")) as (app, pilot):
        assert "1 recorded" in screen_text(app)
        await pilot.press("d")
        await until(pilot, lambda: "memory of cuda:0" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, AllocationScreen) and "on cuda:0" in screen_text(app))


@pytest.mark.parametrize("size", [(210, 60), (120, 36), (100, 30), (80, 24)])
async def test_a_session_without_a_training_says_so_once(tmp_path, size):
    async with opened(tmp_path, size=size) as (app, pilot):
        shown = " ".join(screen_text(app).replace("│", " ").split())
        assert shown.count("no training step was seen") == 1
        assert "memtui trace -- python train.py" in shown
        assert "recorded step" not in shown.rpartition("┘")[2], "no key for what is not there"
        assert "space pause" in shown.rpartition("┘")[2]
        assert re.search(r"by kind ─", shown), "neither a moment nor a number of rows that are not there"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, AllocationScreen) and "was recorded" in screen_text(app))
        for key in "1234":
            await pilot.press(key)
            await pilot.pause()
            shown = " ".join(screen_text(app).replace("│", " ").split())
            assert shown.count("no step of a training was recorded") == 1
            assert "nothing was allocated" not in shown, "there is no step in which nothing was allocated"


@pytest.mark.parametrize("width", [210, 120, 100, 80])
async def test_titles_lose_whole_parts_and_never_half_of_one(tmp_path, width):
    async with opened(tmp_path, told(0), step(20), told(10), size=(width, 30)) as (app, pilot):
        first = screen_lines(app)[0]
        assert "…" not in first
        assert re.search(r"pid 4242 · step \d+ · 50.0 ms each.* · 1 recorded *$", first)
        assert ("cheap view: 1 step in 2" in first) == (width >= 100)
        assert (", takes 0 % of the time" in first) == (width >= 120)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, AllocationScreen) and "1 of 1" in screen_text(app))
        first = screen_lines(app)[0]
        assert "…" not in first
        assert "step 20 of pid 4242   peak 26.0 MiB" in first
        assert ("recording it took" in first) == (width > 120)
        await pilot.resize_terminal(210, 30)
        await until(pilot, lambda: "recording it took" in screen_lines(app)[0])


async def test_processes_are_looked_at_one_after_the_other(tmp_path):
    async with opened(tmp_path, told(0), told(0, pid=77)) as (app, pilot):
        assert "pid 4242 of 2" in screen_text(app)
        await pilot.press("n")
        await until(pilot, lambda: "pid 77 of 2" in screen_text(app))
        await pilot.press("N")
        await until(pilot, lambda: "pid 4242 of 2" in screen_text(app))


async def test_why_nothing_is_seen_between_recorded_steps(tmp_path):
    async with opened(tmp_path, told(0, **UNSEEN)) as (app, _):
        assert "cheap view off: torch.compile has compiled it" in screen_text(app)
        assert "tensors are seen in recorded steps only: torch.compile has compiled it" in screen_text(app)


async def test_a_session_from_before_shows_its_recorded_steps(tmp_path):
    stream = list(sessions.messages(6))
    stream[9:9] = [step(20)]
    reader = Session(sessions.write_session(tmp_path / "s.memtui", stream))
    reader.release()
    app = MemtuiApp(lambda: reader, live=False)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: app.screen.view is not None)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, AllocationScreen))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, MemoryScreen))


@pytest.mark.parametrize("size", [(210, 60), (120, 36), (80, 24), (60, 16)])
@pytest.mark.parametrize("how", [{}, {"ascii_only": True}, {"color": "16"}])
async def test_it_fits(tmp_path, size, how):
    async with opened(tmp_path, *(told(n) for n in range(0, 80, 10)), size=size, **how) as (app, _):
        lines = screen_lines(app)
        assert len(lines) == size[1]
        assert any("peak 87.0 MiB" in line for line in lines)
        assert any("activations" in line for line in lines)
        assert re.search(r"\? help [·|] Esc back$", lines[-1].rstrip())
        if how.get("ascii_only"):
            assert "\n".join(lines).isascii()
            assert any("AAAA" in line for line in lines)


async def test_names_of_others_cannot_write_on_the_screen(tmp_path):
    hostile = {"names": ("\x1b[31mred\x1b]0;title\x07/x\r\n",), "view": "\x1b[2Jall", "reason": "\x9b31m"}
    async with opened(tmp_path, told(0, **hostile)) as (app, _):
        assert all(char.isprintable() for line in screen_lines(app) for char in line)


async def test_of_a_long_session_the_fullest_parts_are_shown(tmp_path):
    """Of 3,000 messages 600 are decoded; the one with the peak is among them."""
    tall = 1234
    stream = list(sessions.messages(2))
    parts = []
    for n in range(3000):
        part = told(10 * n)
        part.usage[4:] = MIB
        if n == tall:
            part.usage[4] = 500 * MIB
        parts.append(part)
    end_ns = parts[-1].ends_ns[0, -1]
    stream[9:9] = parts
    path = sessions.write_session(tmp_path / "s.memtui", stream)
    reader = Session(path)
    from memtui.analysis.tensor_usage import MOST_ROWS
    from memtui.tui.presenters.playhead import Playhead
    from memtui.tui.presenters.training import TrainingLog

    head = Playhead(recording=False, follow=False, span_ns=None)
    head.grow(0, np.array([int(end_ns)]), recording=False)
    log = TrainingLog()
    view = log.view(reader, head)
    assert len(log._decoded) == MOST_ROWS
    assert view.allocated_bytes.sum(axis=1).max() >= 500 * MIB
    reader.close()


async def test_the_graph_has_a_tick_for_each_step_where_they_are_few(tmp_path):
    stream = list(sessions.messages(20))
    stream[9:9] = [told(0, **UNSEEN), told(10, **UNSEEN)]
    reader = Session(sessions.write_session(tmp_path / "s.memtui", stream))
    reader.release()
    app = MemtuiApp(lambda: reader, live=False)
    async with app.run_test(size=(120, 36)) as pilot:
        await until(pilot, lambda: app.screen.view is not None)
        ticks = [mark for mark in app.screen.view.graph.ticks if mark.kind == "each step"]
        assert [mark.t_ns for mark in ticks] == [(n + 1) * 50 * MS for n in range(20)]
        assert "each step" not in screen_text(app)


def test_many_steps_are_no_ticks(tmp_path):
    stream = list(sessions.messages(20))
    stream[9:9] = [told(n, **UNSEEN) for n in range(0, 80, 10)]
    reader = Session(sessions.write_session(tmp_path / "s.memtui", stream))
    steps = StepTicks()
    assert steps.between(reader, TimeAxis(0, 0, 4 * SECOND, 4 * SECOND, False)) == ()
    assert len(steps.between(reader, TimeAxis(0, SECOND, 2 * SECOND, 2 * SECOND, False))) == 21
    reader.close()


def _opened(path):
    """The session of a recording as soon as it has a window."""
    deadline = time.monotonic() + 30
    while True:
        with contextlib.suppress(SessionError):
            reader = Session(path)
            if len(reader.samples):
                return reader
            reader.close()
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.real_clock(alone=False)
@pytest.mark.parametrize(("how", "note"), [((), UNTRACED), (("--trace", "--every", "7"), WAITING)])
def test_a_recording_without_steps_says_whether_anything_is_traced(tmp_path, how, note):
    """While a real program runs that trains nothing; and a session keeps what was asked for."""
    path = tmp_path / "s.memtui"
    argv = [
        "record",
        "--tracker",
        "rss",
        "--no-sudo",
        "--interval",
        "0.05",
        "-o",
        str(path),
        *how,
        "--",
        "sleep",
        "60",
    ]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    recording = subprocess.Popen([sys.executable, "-m", "memtui", *argv], env=environment, stderr=subprocess.DEVNULL)
    try:
        reader = _opened(path)
        assert reader.hello.options.trace_every == (7 if how else None)
        presenter = Presenter(reader, follow=True)
        assert TrainingLog().view(presenter.reader, presenter.playhead).note == note
        reader.close()
    finally:
        recording.send_signal(signal.SIGINT)
        recording.wait(20)
    assert "memtui trace -- " in UNTRACED


async def test_a_training_of_less_than_a_second_has_an_axis_that_fits_it(tmp_path):
    """Half a second of a session of 4 s: the picture is about it, and afterwards about the whole again."""
    async with opened(tmp_path, told(20)) as (app, pilot):
        training = app.screen
        axis = training._view.axis
        assert axis.span_ns < 0.8 * SECOND
        assert axis.start_ns < 20 * 50 * MS
        assert axis.end_ns >= 30 * 50 * MS
        lines = screen_lines(app)
        start, end = (f"00:00:0{(t_ns - axis.origin_ns) / SECOND:.2f}" for t_ns in (axis.start_ns, axis.end_ns))
        assert any(start[:-1] in line and end[:-1] in line for line in lines), lines
        starts = [axis.column(int(t_ns), 100) for t_ns in training._view.start_ns]
        assert None not in starts
        assert starts[-1] - starts[0] > 50, "the steps fill the picture"
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, MemoryScreen))
        await until(pilot, lambda: app.screen.view.graph.axis.span_ns > 3 * SECOND)


async def test_what_the_user_chose_to_see_stays(tmp_path):
    async with opened(tmp_path, told(20)) as (app, pilot):
        fitted = app.screen._view.axis.span_ns
        await pilot.press("minus")
        await until(pilot, lambda: app.screen._view.axis.span_ns == SECOND)
        assert fitted < SECOND
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, MemoryScreen))
        await pilot.pause(0.1)
        assert app.screen.view.graph.axis.span_ns == SECOND
