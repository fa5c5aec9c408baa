"""The lists below the chart of allocations: tensors, events, layers; goldens as in ``test_screen_goldens``."""

from __future__ import annotations

import numpy as np
import pytest

from memtui.analysis.allocation_trace import CATEGORIES, PHASES, StepTrace
from memtui.core.tracer_messages import AllocationStep
from memtui.tui.screens.allocation_lists import StepLists
from tests.support.allocation_screen import MIB, opened, title, until
from tests.support.goldens import compare
from tests.support.screen_text import screen_lines, screen_text

LAYERS = ("emb", *(f"blocks.{n}.{part}" for n in range(3) for part in ("attn", "mlp.up", "mlp.down")), "head")


def nested(number: int, layers: tuple[str, ...] = LAYERS) -> AllocationStep:
    """Each layer has 1 MiB of weights and one of state, keeps 2 MiB and needs 4 for a moment; backward makes 1 MiB."""
    ops = ("aten::linear/aten::addmm", "aten::gelu", "autograd::engine::evaluate_function: AddmmBackward0/aten::mm")
    first = len(ops)
    rows: list[tuple[int, str, int, str, int, int]] = []  # change in MiB, kind, block, phase, operator, layer
    for layer in range(len(layers)):
        rows.append((1, "weights", len(rows), "between", -1, first + layer))
        rows.append((1, "optimiser state", len(rows), "between", -1, first + layer))
    existing = blocks = len(rows)
    for layer in range(len(layers)):
        rows.append((2, "activations", blocks, "forward", 0, first + layer))
        rows.append((4, "temporaries", blocks + 1, "forward", 1, first + layer))
        rows.append((-4, "temporaries", blocks + 1, "forward", -1, -1))
        blocks += 2
    rows.append((1, "inputs", blocks, "forward", -1, -1))
    for layer in reversed(range(len(layers))):
        rows.append((1, "gradients", blocks + 1 + layer, "backward", 2, first + layer))
        rows.append((-2, "activations", existing + 2 * layer, "backward", -1, -1))
    columns = np.array(
        [
            (0, change * MIB, block, CATEGORIES.index(kind), PHASES.index(phase), op, layer)
            for change, kind, block, phase, op, layer in rows
        ],
        np.int64,
    ).T
    columns[0] = 1000 + 500_000 * np.maximum(0, np.arange(len(rows)) - existing + 1)
    end_ns = int(columns[0, -1])
    return AllocationStep(4242, number, 1000, end_ns, existing, (*ops, *layers), columns, cost_ns=5_000_000)


@pytest.mark.parametrize("size", [(210, 60), (120, 36), (80, 24)])
async def test_the_lists_are_the_pictures(tmp_path, size):
    async with opened(tmp_path, nested(20), size=size) as (app, pilot):
        for key, name in (("1", "tensors"), ("2", "events"), ("3", "layers")):
            await pilot.press(key, *["down"] * (key == "3"))
            await pilot.pause()
            compare(f"allocations-{name}-{size[0]}x{size[1]}", screen_text(app))


async def test_the_lists_in_ascii_without_colour_are_the_pictures(tmp_path):
    async with opened(tmp_path, nested(20), color="none", ascii_only=True) as (app, pilot):
        for name in ("tensors", "events", "layers"):
            assert screen_text(app).isascii()
            compare(f"allocations-{name}-120x36-ascii", screen_text(app))
            await pilot.press("tab")
            await pilot.pause()
        assert "alive at the cursor" in screen_text(app), "and round again"
        await pilot.press("shift+tab")
        assert "layers at the cursor" in screen_text(app)


async def test_events_and_cursor_move_together(tmp_path):
    async with opened(tmp_path, nested(20)) as (app, pilot):
        screen = app.screen
        await pilot.press("2")
        begin, peak = 21, 53
        assert screen.events.selected == peak
        # What was there before, 11 layers of three and the input, 22 of the backward pass; all pairs but the peak's.
        assert "events  37 of 57, 20 freed at once hidden (f)" in title(app)
        await pilot.press("up")
        assert screen.chart.row == screen.events.selected == peak - 1
        assert "held 44.0 MiB" in screen_text(app)
        await pilot.press("up")
        assert screen.chart.row == screen.events.selected == peak - 4, "over the two that are hidden"
        await pilot.press("right")
        assert screen.chart.row == peak - 3
        assert screen.events.selected == peak - 4, "a hidden row is that of the one before it"
        await pilot.press("f")
        assert "events  57, those freed at once, too (f)" in title(app)
        assert screen.chart.row == screen.events.selected == peak - 3
        await pilot.press("home")
        assert screen.chart.row == screen.events.selected == begin
        assert screen.events.selected_row.cells[:3] == ("begin", "+22.0 MiB", "22.0 MiB")
        await pilot.press("pagedown")
        assert screen.chart.row == screen.events.selected == begin + screen.events.in_sight
        await pilot.press("end")
        assert screen.chart.row == screen.events.selected == 77
        await pilot.press("down")
        assert screen.chart.row == 77
        await pilot.press("P")
        assert screen.chart.row == screen.events.selected == peak
        await pilot.click(screen.events, offset=(10, 3))
        assert screen.chart.row == screen.events.selected != peak
        before = screen.chart.row
        screen.events.scroll_rows(3)
        await pilot.pause()
        assert screen.chart.row == screen.events.selected == before + 3
        await pilot.click(screen.chart, offset=(8, 5))
        assert screen.chart.row == screen.events.selected < before


async def test_a_filter_is_about_tensors_and_events(tmp_path):
    async with opened(tmp_path, nested(20), nested(40)) as (app, pilot):
        await pilot.press("3", "slash")
        assert app.screen.active is app.screen.events, "what a key changes has to be in sight"
        await pilot.press(*"grad")
        await pilot.pause()
        assert "events  11 of 57, 0 freed at once hidden (f)  / grad" in title(app)
        await pilot.press("space", "x", "equals_sign")
        await until(pilot, lambda: "x= is none of op, layer, kind, phase (Esc closes)" in screen_lines(app)[-1])
        assert "/ grad x" in title(app), "the last that was a filter"
        await pilot.press("enter")
        await until(pilot, lambda: "x= is none of" in screen_lines(app)[-1])
        await pilot.press(*["backspace"] * 2)
        await until(pilot, lambda: "none of" not in screen_lines(app)[-1])
        await pilot.press(*"mlp", "enter")
        await until(pilot, lambda: "Esc back" in screen_lines(app)[-1])
        assert "events  6 of 57" in title(app)
        assert app.screen.events.selected_row.cells[5] == "blocks.2.mlp.down"
        await pilot.press("1", "end")
        assert "alive at the cursor  6 of 34  / grad mlp" in title(app)
        await pilot.press("N")
        await until(pilot, lambda: "step 20 of pid" in screen_text(app))
        assert "/ grad mlp" in title(app)
        await pilot.press("escape")
        assert "alive at the cursor  34 " in title(app)
        await pilot.press("slash", "y", "y")
        await until(pilot, lambda: "nothing alive is of that filter" in screen_text(app))
        await pilot.press("escape", "2")
        await until(pilot, lambda: "events  37 of 57" in screen_text(app))
        await pilot.press("slash", *"!>4MiB", "space", *"temp", "enter")
        await until(pilot, lambda: "events  2 of 57, 20 freed" in screen_text(app))
        await pilot.press("escape", "slash", *"gelu", "space", *"emb")
        await until(pilot, lambda: "all of them are freed at once (f shows them)" in screen_text(app))


async def test_a_layer_of_the_tree_is_what_the_lists_are_about(tmp_path):
    async with opened(tmp_path, nested(20), nested(40)) as (app, pilot):
        screen = app.screen
        await pilot.press("2", "3")
        shown = screen.modules.view.rows
        assert names(shown[:6]) == ["emb", "blocks", "0", "attn", "mlp", "up"]
        parts = ("9.00 MiB", "0", "9.00 MiB", "18.0 MiB", "0", "36.0 MiB", "63.0 MiB", "80.8 %")
        assert shown[1].cells[1:] == parts
        assert "all: held 48.0 MiB, allocated in the step 78.0 MiB" in screen_text(app)
        await pilot.press("minus")
        assert names(screen.modules.view.rows) == ["emb", "blocks", "head", "(no layer)"]
        await pilot.press("down", "space", "down", "down")
        assert screen.modules.selected_row.cells[0].split() == ["▶", "1"]
        await pilot.press("space")
        assert names(screen.modules.view.rows[2:7]) == ["0", "1", "attn", "mlp", "2"]
        await pilot.press("enter")
        assert screen.active is screen.events, "the list that was there before"
        assert "in blocks.1" in title(app)
        assert {row.cells[5] for row in screen.events.view.rows} == {
            "blocks.1.attn",
            "blocks.1.mlp.up",
            "blocks.1.mlp.down",
        }
        assert "events  9 of 57, 6 freed at once hidden (f)  in blocks.1" in title(app)
        await pilot.press("1")
        assert "alive at the cursor  9 of 34  in blocks.1" in title(app)
        await pilot.press("N")
        await until(pilot, lambda: "step 20 of pid" in screen_text(app))
        assert "in blocks.1" in title(app)
        await pilot.press("escape")
        assert screen.active is screen.modules
        assert screen.modules.selected_row.cells[0].split() == ["▼", "1"]
        await pilot.press("plus")
        assert len(screen.modules.view.rows) == 19
        await pilot.press("pagedown", "pagedown", "enter")
        assert "in (no layer)" in title(app)
        await pilot.press("escape", "escape")
        await until(pilot, lambda: app.screen is not screen)


def names(rows) -> list[str]:
    return [row.cells[0].strip(" ▼▶") for row in rows]


async def test_only_what_is_in_sight_is_put_into_words(tmp_path, monkeypatch):
    """And nothing is worked out twice: a key costs the same with many rows as with few."""
    formatted: list[str] = []
    for name in ("_tensor", "_event"):
        make = getattr(StepLists, name)
        monkeypatch.setattr(
            StepLists, name, lambda self, number, make=make, name=name: formatted.append(name) or make(self, number)
        )
    layers = tuple(f"blocks.{n}" for n in range(2000))
    async with opened(tmp_path, nested(20, layers)) as (app, pilot):
        for name in ("usage_bytes", "by_category", "live_at", "peak_row", "peak_bytes", "start_bytes", "check"):
            monkeypatch.setattr(StepTrace, name, property(lambda self: pytest.fail("all over again")))
        await pilot.press("2")
        keys = ("right", "down", "pagedown", "P", "f", "1", "left", "down", "3", "right", "down", "2", "end", "home")
        for key in keys:
            formatted.clear()
            await pilot.press(key)
            await pilot.pause()
            assert len(formatted) <= 3 * app.screen.active.size.height, key
        assert len(app.screen.events.view.rows) == 10_002


async def test_names_of_others_cannot_write_on_the_lists(tmp_path):
    hostile = ("\x1b[31mred\x1b]0;title\x07", "\r\n.\x9b2J", "." * 500, "文" * 60)
    async with opened(tmp_path, nested(20, hostile)) as (app, pilot):
        for key in ("2", "3", "plus", "down", "down", "enter", "2"):
            await pilot.press(key)
            await pilot.pause()
            assert all(char.isprintable() for line in screen_lines(app) for char in line)


async def test_a_session_without_steps_has_empty_lists(tmp_path):
    async with opened(tmp_path) as (app, pilot):
        for key in ("2", "f", "down", "3", "space", "plus", "enter", "slash", "g", "enter", "pagedown", "tab", "1"):
            await pilot.press(key)
            await pilot.pause()
        assert "no step of a training was recorded" in screen_text(app)


async def test_help_is_about_it_and_a_small_terminal_keeps_what_is_typed(tmp_path):
    async with opened(tmp_path, nested(20)) as (app, pilot):
        screen = app.screen
        await pilot.press("question_mark")
        await until(pilot, lambda: "of training steps (memtui trace)" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is screen)
        await pilot.press("2", "slash", *"mlp")
        await pilot.resize_terminal(50, 12)
        await until(pilot, lambda: "60x16" in screen_text(app))
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "/ mlp" in screen_text(app))
        screen.set_focus(None)
        await pilot.press("escape")
        assert not screen.prompt.active
        assert "Esc back" in screen_lines(app)[-1]
