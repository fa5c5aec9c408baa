"""The panels of the memory screen on terminals of every size."""

from __future__ import annotations

import pytest

from tests.support.screen_driver import held, running
from tests.support.screen_text import screen_lines


@pytest.mark.parametrize("size", [(210, 60), (120, 36), (100, 30), (80, 24), (60, 16)])
async def test_every_line_is_as_wide_as_the_screen(size):
    async with running(size=size) as d:
        lines = screen_lines(d.app)
        assert len(lines) == size[1]
        assert {len(line) for line in lines} == {size[0]}
        assert "working set" in d.text


async def test_too_small_says_what_it_needs():
    async with running(size=(50, 12)) as d:
        assert "memtui needs 60x16 cells, this terminal has 50x12" in d.text
        await d.pilot.resize_terminal(120, 36)
        await d.until(lambda: "address ranges" in d.text)


async def test_small_screen_shows_one_panel_at_a_time():
    async with running(size=(80, 24)) as d:
        seen = []
        for key in ("1", "2", "3", "4", "tab", "shift+tab"):
            await d.press(key)
            titles = ("where and when", "reuse distance", "address ranges", "power")
            seen.append([w for w in titles if "┌ " + w in d.text])
        assert seen == [[w] for w in ("where and when", "reuse distance", "address ranges", "power")] + [
            ["where and when"],
            ["power"],
        ]
        assert "1-4 panel" in d.text


@pytest.mark.parametrize("key", ["m", "full_stop", "comma"])
async def test_the_miss_ratio_comes_into_sight_where_another_panel_stands(key):
    async with running(size=(80, 24)) as d:
        await d.press("3", key)
        await d.until(lambda: "┌ miss ratio" in d.text)


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_a_key_shows_how_it_is_measured_and_takes_it_away_again(size):
    async with running(held(live=False), size=size) as d:
        before = len([line for line in d.text.splitlines() if line.strip()])
        assert "flush" not in d.text
        await d.press("h")
        await d.until(lambda: "tracker pagetable   flush cold" in d.text)
        assert "interval asked 0.20 s, true 0.21 s" in " ".join(d.text.split())
        assert d.text.splitlines()[-1].startswith(" space play")
        await d.press("h")
        await d.until(lambda: "flush" not in d.text)
        assert len([line for line in d.text.splitlines() if line.strip()]) == before


async def test_help_and_arrows_are_about_what_is_chosen():
    async with running() as d:
        panels = d.screen.panels
        assert (panels.chosen, panels.subject) == ("table", "table")  # before a choice, on a large screen
        await d.press("w")
        assert (panels.chosen, panels.subject) == ("table", "tensors")
        assert panels.rows is panels.tensors
        await d.press("2")
        assert (panels.chosen, panels.subject) == ("reuse", "reuse")
        await d.press("o")
        assert (panels.chosen, panels.subject) == ("reuse", "output")
        assert panels.name_of(panels.heat) == "heat"
        assert panels.name_of(panels.tensors) == panels.name_of(panels.table) == "table"
        assert panels.name_of(panels.graph) is None
        await d.pilot.resize_terminal(80, 24)
        panels.panel = None
        assert panels.chosen == "heat"  # before a choice, on a small one
