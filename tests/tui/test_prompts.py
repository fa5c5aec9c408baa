"""What can be typed on the memory screen, however fast it is typed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from textual import events

from memtui.tui.screens.memory.prompts import set_filter
from memtui.tui.screens.prompt import Prompt
from tests.support.screen_driver import running
from tests.support.screen_fakes import FakeRecording, FakeSession


async def test_typed_filter():
    async with running() as d:
        await d.press("slash", *"torch")
        await d.until(lambda: len(d.view.table.rows) == 2)
        assert d.screen.panels.prompt.active
        await d.press("enter")
        assert not d.screen.panels.prompt.active
        assert "/ torch hides 5" in d.text
        await d.press("slash", "escape")
        await d.until(lambda: len(d.view.table.rows) == 7)
        await d.press("slash", *"q?", "escape")
        assert d.app.is_running


async def test_jump():
    async with running() as d:
        await d.press("j", *"0:10", "enter")
        await d.until(lambda: not d.screen.panels.prompt.active)
        await d.until(lambda: 10 <= d.view.header.position_s < 10.3)
        await d.press("j", *"soon", "enter")
        await d.until(lambda: "'soon' is not a time" in d.text)
        assert d.screen.panels.prompt.active
        await d.press("escape")
        assert not d.screen.panels.prompt.active
        await d.press("j", *"99:00", "enter")
        await d.until(lambda: "the session is 25.2 s long" in d.text)


async def test_a_memory_size_that_is_typed_is_looked_up_on_the_curve():
    async with running(size=(140, 44)) as d:
        await d.press("b", *"100MiB", "enter")
        await d.until(lambda: "with 100 MiB, " in d.text)
        assert "┌ miss ratio" in d.text
        assert not d.screen.panels.prompt.active
        await d.press("b", *"much", "enter")
        await d.until(lambda: "'much' is not a size" in d.text)
        await d.press("escape")
        assert not d.screen.panels.prompt.active


async def test_without_a_curve_a_memory_size_says_why():
    async with running(FakeSession(0)) as d:
        await d.press("b", *"1GiB", "enter")
        await d.until(lambda: "there is no miss ratio" in d.text)
        assert d.screen.panels.prompt.active


async def test_keys_typed_before_the_prompt_is_there_are_not_lost():
    async with running() as d:
        for name, character in (("j", "j"), ("0", "0"), ("colon", ":"), ("1", "1"), ("2", "2"), ("enter", None)):
            d.app.post_message(events.Key(name, character))
        await d.until(lambda: 12 <= d.view.header.position_s < 12.3)
        await d.until(lambda: not d.screen.panels.prompt.active)
        assert d.app.screen is d.screen


async def test_a_refused_jump_keeps_its_reason_while_the_session_grows():
    async with running(FakeSession(100, growing=True), live=True) as d:
        await d.press("j", *"soon", "enter")
        await d.until(lambda: "'soon' is not a time" in d.text)
        seen = d.view.header.duration_s
        await d.until(lambda: d.view.header.duration_s > seen + 0.5)
        assert "'soon' is not a time" in d.text.splitlines()[-1]
        assert "Esc closes" in d.text
        await d.press("x")  # other words are not wrong yet
        await d.until(lambda: "is not a time" not in d.text)
        await d.press("escape")
        assert not d.screen.panels.prompt.active
        assert "q quit" in d.text.splitlines()[-1]


@pytest.mark.parametrize(
    "keys", [("j", *"0:05", "enter"), ("j", "escape"), ("slash", "a", "enter"), ("j", *"1", "enter")]
)
async def test_a_prompt_that_was_closed_before_it_had_the_focus_takes_no_key(keys):
    """Whoever types faster than the screen draws must not lose it: the focus came to the prompt once it was closed."""
    async with running() as d:
        for key in keys:
            d.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await d.until(lambda: not d.screen.panels.prompt.active)
        await d.pilot.pause(0.3)
        assert d.app.focused is None
        await d.press("question_mark")
        await d.until(lambda: len(d.app.screen_stack) > 1)


@pytest.mark.parametrize("focus_after", range(9))
async def test_keys_are_taken_in_the_order_in_which_they_were_typed(focus_after, monkeypatch):
    """Whenever the focus comes: what is typed before it is not overtaken, and what follows Enter is for the screen."""
    monkeypatch.setattr(Prompt, "_take_focus", lambda _prompt: None)
    recording = FakeRecording()
    async with running(live=True, order=recording) as d:
        for place, key in enumerate(("i", *"20ms", "enter", "M", *"a b", "enter", "question_mark")):
            if place == focus_after and d.screen.panels.prompt.active:
                d.screen.panels.prompt.query_one("#prompt-input").focus()
            character = {"question_mark": "?", "enter": None, " ": " "}.get(key, key)
            d.app.post_message(events.Key("space" if key == " " else key, character))
            if place == 0:
                await d.until(lambda: d.screen.panels.prompt.active)
        await d.until(lambda: len(d.app.screen_stack) > 1)
        await d.until(lambda: len(recording.orders) == 2)
        assert recording.orders == [("interval", {"interval_ns": 20_000_000}), ("mark", {"text": "a b"})]
        assert not d.screen.panels.prompt.active


@pytest.mark.parametrize("width", [80, 60])
async def test_what_is_typed_is_seen_on_a_narrow_terminal(width):
    async with running(live=True, order=FakeRecording(), size=(width, 24)) as d:
        await d.press("M", *"the first epoch", "i")
        await d.until(lambda: "mark this moment the first epochi " in d.text)
        await d.press("escape", "i", *"50ms")
        await d.until(lambda: "interval or budget 50ms " in d.text)
        assert ("budget: 5%, none" in d.text) == (width == 80)
        await d.press("x", "enter")
        await d.until(lambda: "0.001 to" in d.text)
        assert " 50msx " in d.text


@pytest.mark.parametrize(("width", "whole"), [(80, False), (100, True)])
async def test_an_error_is_not_cut_for_a_key_that_is_known(width, whole):
    async with running(size=(width, 24)) as d:
        await d.press("j", *"xyz", "enter")
        await d.until(lambda: "'xyz' is not a time: 7:12, 90, 5m, 50%, +30, -1:30" in d.text)
        last = d.text.splitlines()[-1].rstrip()
        assert last.endswith("(Esc closes)" if whole else "-1:30")


def test_a_filter_is_about_the_list_in_sight():
    presenter = SimpleNamespace(tensors=SimpleNamespace(filter_text=""), ranges=SimpleNamespace(filter_text=""))
    set_filter("tensors", " conv ")(presenter)
    set_filter("processes", "heap")(presenter)
    assert (presenter.tensors.filter_text, presenter.ranges.filter_text) == ("conv", "heap")
