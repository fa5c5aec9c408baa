"""What all apps have: nothing is kept of texts that are gone, and free memory goes back to the kernel."""

from __future__ import annotations

import pytest
from rich import cells

from memtui.tui.base_app import TerminalApp, forget_widths
from tests.support.allocation_screen import until


def test_widths_of_texts_that_are_gone_are_dropped():
    for number in range(100):
        cells.cell_len(f"▁▂▃ {number}")
    assert cells.cached_cell_len.cache_info().currsize >= 100
    forget_widths()
    assert cells.cached_cell_len.cache_info().currsize == 0


@pytest.fixture
def on_terminal(monkeypatch):
    """Apps take the place where tests run them for a terminal, and forget every few milliseconds."""
    monkeypatch.setattr(TerminalApp, "is_headless", False)
    monkeypatch.setattr("memtui.tui.base_app.FORGET_S", 0.01)
    monkeypatch.setattr("memtui.tui.terminal.watch_signals", lambda loop, leave: None)
    monkeypatch.setattr("memtui.tui.terminal.unwatch_signals", lambda loop: None)
    monkeypatch.setattr("memtui.tui.terminal.hung_up", lambda: False)


@pytest.mark.usefixtures("on_terminal")
@pytest.mark.parametrize("name", ["forget_widths", "give_back_free_pages"])
async def test_an_app_on_a_terminal_lets_go_now_and_then(monkeypatch, name):
    calls: list[None] = []
    monkeypatch.setattr(f"memtui.tui.base_app.{name}", lambda: calls.append(None))
    async with TerminalApp[None]().run_test() as pilot:
        await until(pilot, lambda: len(calls) >= 2)
