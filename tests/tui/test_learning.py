"""Loss, accuracy and memory on screen: of one training as it goes on, and of several over one another."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memtui.core.tracer_messages import LearningProgress
from memtui.reports.comparison.model import change_text
from memtui.reports.comparison.text import read
from memtui.reports.comparison.training import with_distinct_titles
from memtui.reports.redact import open_source
from memtui.session.session import Session
from memtui.session.tables.allocations import trace_of
from memtui.session.tables.learning import About, about_text
from memtui.tui.screens.comparison import ComparisonApp, ComparisonScreen
from memtui.tui.screens.training import TrainingScreen
from memtui.widgets.line_chart import Curve, drawn, forward_fill
from memtui.widgets.style import draw_style
from tests.support import sessions
from tests.support.allocation_screen import step, until
from tests.support.goldens import compare
from tests.support.learning_screen import NAN, all_told, told
from tests.support.screen_text import screen_lines, screen_text
from tests.support.training_screen import opened
from tests.support.training_screen import told as tensors


async def test_loss_accuracy_and_the_least_that_is_wanted(tmp_path):
    async with opened(tmp_path, *all_told(), step(20)) as (app, pilot):
        shown = screen_text(app)
        assert "learning fcReLu by DFAMEM" in shown
        assert "loss 0.08205" in shown
        assert "accuracy 90.0 %" in shown
        assert "at least 60 %" in shown
        assert "epoch 4 of 4 · iteration 200" in shown
        assert "peak 87.0 MiB" in shown  # memory stays below it, on the same axis
        await pilot.press("home")
        await until(pilot, lambda: "epoch 1 of 4 · iteration 10" in screen_text(app))
        head = next(line for line in screen_lines(app) if "learning fcReLu" in line)
        assert "accuracy" not in head  # it was not measured by then
        await pilot.press("end")
        await until(pilot, lambda: "iteration 200" in screen_text(app))


@pytest.mark.parametrize("width", [120, 100, 80])
async def test_figures_of_the_learning_panel_are_named_where_there_is_little_room(tmp_path, width):
    async with opened(tmp_path, *all_told(), step(20), size=(width, 30)) as (app, _):
        head = next(line for line in screen_lines(app) if "learning fcReLu" in line)
        assert "loss 0.08205" in head
        assert "90.0 %" in head
        assert "60 %" in head
        assert "epoch 4" in screen_text(app)


async def test_a_click_is_a_moment(tmp_path):
    async with opened(tmp_path, *all_told()) as (app, pilot):
        await pilot.click(offset=(30, 4))
        await until(pilot, lambda: "iteration 200" not in screen_text(app))


async def test_the_segment_that_sets_the_peak_is_named(tmp_path):
    recorded = step(20)
    trace = trace_of(recorded)
    layer = trace.name(int(trace.layer[trace.peak_row]))
    about = About(4242, "fcReLu", "DFAMEM", {}, (("other",), (layer, "act")), True)
    points = LearningProgress(4242, about_text(about), told().places, told().values)
    for size in ((120, 36), (80, 24)):
        folder = tmp_path / str(size[0])
        folder.mkdir()
        async with opened(folder, recorded, points, tensors(0), size=size) as (app, _):
            assert f"set by {layer} to act alone" in screen_text(app)
            assert ("iteration 200" if size[0] == 120 else "DFAMEM  epoch 4") in screen_text(app)


async def test_a_training_that_tells_nothing_of_it_has_no_such_panel(tmp_path):
    async with opened(tmp_path, *(tensors(n) for n in range(0, 80, 10))) as (app, _):
        assert not app.screen.learning.display
        assert "learning" not in screen_text(app)


@pytest.mark.parametrize("size", [(210, 60), (120, 36), (80, 24), (60, 16)])
@pytest.mark.parametrize("how", [{}, {"ascii_only": True}, {"color": "16"}])
async def test_it_fits(tmp_path, size, how):
    async with opened(tmp_path, *all_told(), size=size, **how) as (app, _):
        lines = screen_lines(app)
        assert len(lines) == size[1]
        assert any("learning fcReLu by DFAMEM" in line for line in lines)
        if how.get("ascii_only"):
            assert "\n".join(lines).isascii()


@pytest.mark.parametrize("size", [(210, 60), (120, 36), (80, 24)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_training_screen_is_the_picture(tmp_path, size):
    async with opened(tmp_path, *all_told(), size=size) as (app, _):
        compare(f"learning-{size[0]}x{size[1]}", "\n".join(screen_lines(app)))


async def test_the_training_screen_in_ascii_is_the_picture(tmp_path):
    async with opened(tmp_path, *all_told(), size=(120, 36), ascii_only=True) as (app, _):
        compare("learning-120x36-ascii", "\n".join(screen_lines(app)))


async def test_names_of_others_cannot_write_on_the_screen(tmp_path):
    async with opened(tmp_path, *all_told(network="\x1b[31mred\x1b]0;t\x07\r\n")) as (app, _):
        assert all(char.isprintable() for line in screen_lines(app) for char in line)


def runs(tmp_path: Path):
    paths = []
    for rule, offset in (("BP", 0.0), ("DFAMEM", 0.5)):
        stream = list(sessions.messages(20))
        stream[9:9] = [*all_told(rule, offset=offset), step(20)]
        paths.append(sessions.write_session(tmp_path / f"{rule}.memtui", stream))
    readers = [open_source(path) for path in paths]
    found = read(readers, paths)
    for reader in readers:
        reader.close()
    return found


@asynccontextmanager
async def compared(tmp_path, size=(120, 36), **how):
    app = ComparisonApp(runs(tmp_path), **how)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: isinstance(app.screen, ComparisonScreen))
        await pilot.pause(0.1)
        yield app, pilot


async def test_trainings_lie_over_one_another(tmp_path):
    async with compared(tmp_path) as (app, pilot):
        shown = screen_text(app)
        assert "A 0.08205  B 0.582" in shown
        assert "A 90.0 %  B 90.0 %" in shown
        assert "memory above the start" in shown
        assert "allocations and frees of one iteration" in shown
        await pilot.press("x")
        await until(pilot, lambda: "seconds" in screen_text(app))
        await pilot.press("m")
        await until(pilot, lambda: "memory of tensors" in screen_text(app))
        assert "A 87.0 MiB  B 87.0 MiB" in screen_text(app)
        await pilot.press("c", "down", "x")
        await until(pilot, lambda: "iterations" in screen_text(app))
        await pilot.press("q")


@pytest.mark.parametrize("size", [(210, 60), (120, 36), (80, 24)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_comparison_is_the_picture(tmp_path, size):
    async with compared(tmp_path, size=size) as (app, _):
        compare(f"compare-{size[0]}x{size[1]}", "\n".join(screen_lines(app)))


@pytest.mark.parametrize("how", [{"ascii_only": True}, {"color": "16"}, {"color": "none"}])
@pytest.mark.parametrize("size", [(120, 36), (60, 16), (50, 12)])
async def test_the_comparison_fits(tmp_path, size, how):
    async with compared(tmp_path, size=size, **how) as (app, _):
        lines = screen_lines(app)
        assert len(lines) == size[1]
        if how.get("ascii_only"):
            assert "\n".join(lines).isascii()


def test_the_figures_of_a_run(tmp_path):
    one, other = (session.training for session in runs(tmp_path))
    assert (one.title, other.title) == ("fcReLu by BP", "fcReLu by DFAMEM")
    assert one.iterations == 200
    assert one.best_accuracy == one.last_accuracy == 90
    assert other.last_loss == pytest.approx(0.582, abs=1e-3)
    assert other.one_segment
    assert change_text(one, one) == ""
    assert change_text(other, one) == "+0.0 %"
    assert len(one.step.x) == len(one.step.y)
    assert one.step.y.max() == one.peak_above_start_bytes
    assert one.memory.x.tolist() == sorted(one.memory.x.tolist())


def test_two_of_one_name_are_told_apart_by_their_files(tmp_path):
    one, _ = runs(tmp_path)
    same = with_distinct_titles([replace(one, name="x"), replace(one, name="y")])
    assert [session.training.title for session in same] == ["fcReLu by BP (x)", "fcReLu by BP (y)"]


def test_a_jump_is_a_line_and_a_gap_is_none():
    heights = np.array([0.0, 0.0, 0.99, 0.99, NAN, NAN, 0.5, 0.5])
    (top, *_, bottom) = drawn([Curve(heights, draw_style()["text"], "o")], 3, 4, draw_style())
    words = ["".join(run for run, _ in line) for line in (top, bottom)]
    assert words[0][1] != " "
    assert words[1][0] != " "
    assert words[0][2] == words[1][2] == " "
    letters = drawn([Curve(heights, draw_style()["text"], "o")], 3, 4, draw_style(ascii_only=True))
    assert ["".join(run for run, _ in line) for line in letters] == [" o  ", "   o", "o   "]


def test_values_are_held_up_to_the_last_one():
    values = forward_fill(np.array([1, 3, 5]), np.array([10.0, NAN, 30.0]), 8)
    assert np.array_equal(values, [NAN, 10, 10, 10, 10, 30, NAN, NAN], equal_nan=True)


def test_the_screen_begins_with_the_training_where_it_is_asked_to(tmp_path):
    """``memtui train`` opens there."""
    import asyncio

    from memtui.tui.session_app import MemtuiApp

    stream = list(sessions.messages(20))
    stream[9:9] = all_told()
    reader = Session(sessions.write_session(tmp_path / "s.memtui", stream))
    reader.release()

    async def open_and_look() -> None:
        app = MemtuiApp(lambda: reader, live=False, first="training")
        async with app.run_test(size=(120, 36)) as pilot:
            await until(pilot, lambda: isinstance(app.screen, TrainingScreen) and "loss" in screen_text(app))

    asyncio.run(open_and_look())
