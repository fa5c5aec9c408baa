"""What all apps have: nothing is kept of texts that are gone."""

from __future__ import annotations

from rich import cells

from memtui.tui.base_app import TerminalApp, forget_widths
from tests.support.allocation_screen import until


def test_widths_of_texts_that_are_gone_are_dropped():
    for number in range(100):
        cells.cell_len(f"▁▂▃ {number}")
    assert cells.cached_cell_len.cache_info().currsize >= 100
    forget_widths()
    assert cells.cached_cell_len.cache_info().currsize == 0


async def test_an_app_on_a_terminal_drops_them_now_and_then(monkeypatch):
    calls: list[None] = []
    monkeypatch.setattr(TerminalApp, "is_headless", False)
    monkeypatch.setattr("memtui.tui.base_app.FORGET_S", 0.01)
    monkeypatch.setattr("memtui.tui.base_app.forget_widths", lambda: calls.append(None))
    monkeypatch.setattr("memtui.tui.terminal.watch_signals", lambda loop, leave: None)
    monkeypatch.setattr("memtui.tui.terminal.unwatch_signals", lambda loop: None)
    monkeypatch.setattr("memtui.tui.terminal.hung_up", lambda: False)
    async with TerminalApp[None]().run_test() as pilot:
        await until(pilot, lambda: len(calls) >= 2)
