"""What all apps have: nothing is kept of texts that are gone."""

from __future__ import annotations

import gc
import weakref

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
async def test_an_app_on_a_terminal_drops_them_now_and_then(monkeypatch):
    calls: list[None] = []
    monkeypatch.setattr("memtui.tui.base_app.forget_widths", lambda: calls.append(None))
    async with TerminalApp[None]().run_test() as pilot:
        await until(pilot, lambda: len(calls) >= 2)


class Node:
    def __init__(self) -> None:
        self.itself = self


@pytest.mark.usefixtures("on_terminal")
async def test_cycles_are_collected_now_and_then():
    """However few objects came since the last collection."""
    thresholds = gc.get_threshold()
    async with TerminalApp[None]().run_test() as pilot:
        try:
            gc.set_threshold(0)  # Python collects nothing by itself
            node = weakref.ref(Node())
            assert node() is not None
            await until(pilot, lambda: node() is None)
        finally:
            gc.set_threshold(*thresholds)
