"""The whole screen as text, at four sizes and in three colour modes, and what a thousand keys leave of it.

``MEMTUI_GOLDENS=write python -m pytest tests/tui/test_goldens.py`` writes the pictures anew: look at the difference
before you commit it.
"""

from __future__ import annotations

import numpy as np
import pytest

from memtui.tui.screens.help import HelpScreen
from memtui.tui.screens.memory.keys import KEYS
from memtui.tui.session_app import MemtuiApp
from memtui.widgets.views.memory import State
from tests.conftest import LONG
from tests.support.goldens import compare
from tests.support.screen_driver import Driver, held, running
from tests.support.screen_fakes import FakeSession
from tests.support.screen_text import screen_lines

SIZES = ((210, 60), (120, 36), (80, 24), (50, 12))


@pytest.mark.parametrize("color", ["256", "16", "none"])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_screen_is_the_picture(size, color):
    """A replay at its end, a range chosen: every panel, its cursor and its focus are in the picture."""
    async with running(held(live=False), size=size, color=color) as d:
        if size[0] >= 60:
            await d.press("3", "down")
            await d.press("1")
            await d.until(lambda: d.view.graph.focus)
        await d.settle()
        compare(f"memory-{size[0]}x{size[1]}-{color}", d.text)
        used = {segment.style.color for segment in segments(d) if segment.style and segment.style.color}
        numbers = {colour.number for colour in used if colour.number is not None}
        assert {"256": max(numbers, default=0) >= 16, "16": max(numbers, default=0) < 16, "none": not used}[color]


def segments(d: Driver) -> list:
    panels = (d.screen.panels.graph, d.screen.panels.heat, d.screen.panels.footer, d.screen.panels.notice)
    return [segment for panel in panels for y in range(panel.size.height) for segment in panel.render_line(y)]


async def test_the_screen_in_ascii_is_the_picture():
    async with running(held(live=False), size=(120, 36), color="none", ascii_only=True) as d:
        await d.press("m", "down")
        await d.until(lambda: d.view.graph.focus)
        await d.settle()
        assert d.text.isascii()
        compare("memory-120x36-ascii", d.text)


async def test_hundreds_of_keys_and_resizes_break_nothing(monkeypatch):
    """All keys of the screen, those of prompts, and some that mean nothing, live on a tree that grows."""

    async def stay(self) -> None:
        pass

    monkeypatch.setattr(MemtuiApp, "action_quit", stay)
    monkeypatch.setattr(MemtuiApp, "action_detach", stay)
    random = np.random.default_rng(20)
    keys = sorted({name for key in KEYS for name in key.key.split(",")} - {"ctrl+p"})
    keys += ["9", "x", "percent_sign", "backspace", "escape", "enter", "escape", "shift+up", "ctrl+p"]
    sizes = [*SIZES, (100, 30), (60, 16), (30, 8), (101, 31), (99, 29), (160, 20), (61, 90)]
    session = FakeSession(60, growing=True, children=2)
    session.events = lambda first, last: []
    async with running(session, live=True) as d:
        for _ in range(20 if LONG else 6):
            await d.pilot.press(*(str(random.choice(keys)) for _ in range(10)))
            lines = screen_lines(d.app)
            assert {len(line) for line in lines} == {d.app.size.width}
            assert len(lines) == d.app.size.height
            shown = d.screen.panels.header.view
            assert shown is None or not shown.notice, shown.notice  # the thread that reads found nothing broken
            await d.pilot.resize_terminal(*sizes[random.integers(len(sizes))])
        await d.pilot.resize_terminal(120, 36)
        for _ in range(6):
            await d.press("escape")
        await d.press("l")
        await d.until(lambda: d.app.screen is d.screen and d.view.header.state is State.LIVE, 20)
        assert not isinstance(d.app.screen, HelpScreen)
        assert d.screen.panels.header.view.notice == ""
