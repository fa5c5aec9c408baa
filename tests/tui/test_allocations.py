"""The screen of recorded training steps: on a session whose allocations are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.core.tracer_messages import AllocationStep, TensorRanges
from memtui.tui.screens.allocations import AllocationScreen
from tests.support.allocation_screen import MIB, opened, step, until
from tests.support.screen_text import screen_lines, screen_text


async def test_it_opens_at_the_peak_of_the_last_step(tmp_path):
    async with opened(tmp_path, step(20), step(40, extra=20)) as (app, _):
        shown = screen_text(app)
    assert "allocations  2 of 2 recorded   step 40 of pid 4242   peak 40.0 MiB at aten::gelu in layer blocks.9" in shown
    assert "+22.0 MiB aten::gelu in layer blocks.9" in shown
    assert "held 40.0 MiB" in shown
    assert "■ weights 8.00 MiB  ■ activations 10.0 MiB  ■ temporaries 22.0 MiB" in shown
    assert "alive at the cursor  12" in shown  # weights, ten activations, one temporary
    rows = [line for line in shown.splitlines() if "MiB  " in line and "aten::" in line]
    assert rows[0].split()[1:4] == ["22.0", "MiB", "temporaries"], "the largest first (but for what was there before)"


async def test_of_the_devices_of_a_step_the_one_that_holds_the_most_comes_first(tmp_path):
    known = {"device": "cuda:0", "allocated_peak_bytes": 42 << 20, "reserved_peak_bytes": 60 << 20}
    steps = step(20), replace(step(20, extra=20), **known), replace(step(20, extra=1), device="cuda:1")
    async with opened(tmp_path, *steps, size=(140, 36)) as (app, pilot):
        shown = screen_text(app)
        assert "allocations  2 of 3 recorded   step 20 of pid 4242 on cuda:0   peak 40.0 MiB requested" in shown
        assert "peak 40.0 MiB requested, 42.0 MiB allocated, 60.0 MiB reserved at aten::gelu" in shown
        await pilot.press("N")
        await until(pilot, lambda: "1 of 3 recorded   step 20 of pid 4242   peak 26.0 MiB at" in screen_text(app))


@pytest.mark.parametrize(
    ("cells", "title"),
    [
        (
            120,
            " allocations  1 of 1 recorded   step 20 on cuda:0   peak 26.0 MiB requested, 30.0 MiB allocated, 60.0 MiB",
        ),
        (90, " allocations  1 of 1   step 20 on cuda:0   peak 26.0 MiB requested, 30.0 MiB allocated "),
        (80, " allocations  1 of 1 on cuda:0   peak 26.0 MiB requested, 30.0 MiB allocated "),
    ],
)
async def test_what_was_requested_and_what_allocated_has_room_in_the_title(tmp_path, cells, title):
    known = {"device": "cuda:0", "allocated_peak_bytes": 30 << 20, "reserved_peak_bytes": 60 << 20}
    async with opened(tmp_path, replace(step(20), **known), size=(140, 36)) as (app, pilot):
        await pilot.resize_terminal(cells, 24)
        await until(pilot, lambda: screen_lines(app)[0].startswith(title))


async def test_blocks_that_are_not_known_are_not_shown_as_a_figure(tmp_path):
    unknown = replace(step(20), device="cuda:0", allocator_reason="blocks differ")
    async with opened(tmp_path, unknown, size=(140, 36)) as (app, _):
        assert "requested, allocated n/a at aten::gelu" in screen_text(app)


async def test_an_operator_without_a_name_is_called_unknown(tmp_path):
    nameless = step(20)
    columns = nameless.columns.copy()
    columns[5] = -1
    async with opened(tmp_path, replace(nameless, columns=columns)) as (app, _):
        assert "at an unknown operator in layer blocks." in screen_text(app)


async def test_the_picture_has_the_height_of_what_is_held(tmp_path):
    async with opened(tmp_path, step(20), color="none") as (app, _):
        lines = screen_lines(app)
        chart = app.screen.chart
        inside = [line[1 + 6 : -1] for line in lines[2 : 2 + chart.size.height - 3]]
        assert inside[-1].replace("│", "W") == "W" * len(inside[-1]), "weights are there all the time"
        # 28 MiB is the upper edge: at the peak of 26 nearly all rows are filled, at the end 8 of 28.
        cursor = inside[0].index("│")
        tall = [sum(row[x] != " " for row in inside) for x in range(len(inside[0])) if x != cursor]
        assert max(tall) >= len(inside) - 1
        assert tall[-1] == pytest.approx(len(inside) * 8 / 28, abs=1)
        kinds = {mark for row in inside for mark in row} - {" ", "│"}
        assert kinds == {"W", "A", "T"}


async def test_keys_move_the_cursor_and_the_step(tmp_path):
    async with opened(tmp_path, step(20), step(40)) as (app, pilot):
        screen = app.screen
        assert isinstance(screen, AllocationScreen)
        peak = screen.chart.row
        await pilot.press("right")
        assert screen.chart.row == peak + 1
        await pilot.press("left", "left")
        assert screen.chart.row == peak - 1
        await pilot.press("home")
        assert "1 of 65: +8.00 MiB there before of" not in screen_text(app)
        assert screen.chart.row == 0
        assert "alive at the cursor  1" in screen_text(app)
        await pilot.press("end")
        assert screen.chart.row == 64
        assert "freed" in screen_text(app)
        await pilot.press("P")
        assert screen.chart.row == peak
        await pilot.press("down", "down")
        assert screen.tensors.selected_row.cells[0].endswith("MiB")
        await pilot.press("N")
        await until(pilot, lambda: "1 of 2 recorded   step 20" in screen_text(app))
        await pilot.press("N", "N")
        assert "1 of 2 recorded" in screen_text(app)
        await pilot.press("n")
        await until(pilot, lambda: "2 of 2 recorded   step 40" in screen_text(app))
        await pilot.press("n")
        await pilot.pause(0.1)
        assert "2 of 2 recorded" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is not screen)
        assert "address ranges" in screen_text(app)


async def test_a_click_points(tmp_path):
    async with opened(tmp_path, step(20)) as (app, pilot):
        await pilot.click(offset=(8, 5))
        assert app.screen.chart.row < 5
        await pilot.click(offset=(117, 5))
        assert app.screen.chart.row > 60


async def test_a_session_without_steps_says_how_to_get_some(tmp_path):
    async with opened(tmp_path) as (app, pilot):
        assert "no training step was seen, as nothing was traced: memtui trace -- python train.py" in screen_text(app)
        await pilot.press("right", "left", "home", "end", "P", "n", "N", "down", "pagedown")
        await pilot.press("a")
        await until(pilot, lambda: "address ranges" in screen_text(app))


@pytest.mark.parametrize("size", [(210, 60), (120, 36), (80, 24), (60, 16)])
@pytest.mark.parametrize("how", [{}, {"ascii_only": True}, {"color": "16"}])
async def test_it_fits(tmp_path, size, how):
    async with opened(tmp_path, step(20), size=size, **how) as (app, _):
        lines = screen_lines(app)
        assert len(lines) == size[1]
        assert "Esc back" in lines[-1] or size[0] < 80
        assert any("peak 2" in line for line in lines)
        assert any("held " in line for line in lines) or size[0] < 80
        assert any("weights" in line for line in lines)
        if how.get("ascii_only"):
            assert "\n".join(lines).isascii()


async def test_too_small_a_terminal_says_so(tmp_path):
    async with opened(tmp_path, step(20)) as (app, pilot):
        await pilot.resize_terminal(50, 12)
        await until(pilot, lambda: "60x16" in screen_text(app))
        await pilot.resize_terminal(120, 36)
        await until(pilot, lambda: "held " in screen_text(app))


async def test_names_of_others_cannot_write_on_the_screen(tmp_path):
    hostile = step(20)
    names = ("\x1b[31mred\x1b]0;title\x07/x\r\n", *hostile.names[1:])
    changed = AllocationStep(4242, 20, hostile.start_ns, hostile.end_ns, 1, names, hostile.columns)
    async with opened(tmp_path, changed) as (app, pilot):
        await pilot.press("left", "left")
        assert all(char.isprintable() for line in screen_lines(app) for char in line)


async def test_a_tensor_of_no_model_is_named_where_it_is_known_from_elsewhere(tmp_path):
    """A data set that lies in a tensor: the step knows its size, and the map of tensors what it is."""
    data = step(20)
    columns = data.columns.copy()
    columns[1:4, 0] = 5 * MIB, 0, CATEGORIES.index("unknown")  # in place of the weights
    name = "int64[655360] of TensorDataset.tensors"
    where = np.array([[1 << 30], [5 * MIB], [CATEGORIES.index("unknown")]])
    ranges = TensorRanges(4242, data.end_ns + 10, where, (name,), ("",))
    async with opened(tmp_path, replace(data, columns=columns), ranges, size=(160, 36)) as (app, pilot):
        await until(pilot, lambda: "before this step: " in screen_text(app))
        assert f"before this step: {name}" in screen_text(app)
