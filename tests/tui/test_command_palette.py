"""Actions by name, help about the chosen panel, and the same screen in other colours."""

from __future__ import annotations

import re
from importlib import import_module
from itertools import pairwise
from pkgutil import walk_packages

import pytest
from rich.color import EIGHT_BIT_PALETTE
from textual import events

import memtui
from memtui.tui import terminal
from memtui.tui.screens.command_palette import _ALSO, PaletteScreen, commands, matching
from memtui.tui.screens.help import ABOUT, SECTIONS, HelpScreen, help_for, wrapped
from memtui.tui.screens.help_texts import ALONE
from memtui.tui.screens.list_screen import ListScreen
from memtui.tui.screens.memory import MemoryScreen
from memtui.tui.screens.memory.keys import KEYS
from memtui.tui.session_app import MemtuiApp
from memtui.widgets.footer_line import KEYS as FOOTER_KEYS
from memtui.widgets.footer_line import SMALL_KEYS
from memtui.widgets.raster import NOTHING
from memtui.widgets.style import draw_style
from memtui.widgets.themes import DARK, THEMES
from memtui.widgets.views.memory import State
from tests.support.screen_driver import held, running


def method_of(action: str) -> object:
    owner, _, name = action.partition("(")[0].rpartition(".")
    return getattr(MemtuiApp if owner == "app" else MemoryScreen, f"action_{name}", None)


@pytest.mark.parametrize(
    "action", [c.action for c in commands()] + [k.action for k in (*FOOTER_KEYS, *SMALL_KEYS) if k.action != "quit"]
)
def test_every_action_that_is_offered_exists(action):
    assert method_of(action) is not None


def test_the_palette_has_every_key():
    assert {c.action for c in commands()} == {key.action for key in KEYS} - {"palette", "lift"}
    assert all(c.label for c in commands())


def test_words_are_found_in_any_order():
    assert matching("ratio miss")[0].action == "miss_ratio"
    assert [c.action for c in matching("pause")] == ["toggle_pause"]
    assert matching("zoom")[0].action == "zoom(1)"
    assert matching("no such thing") == ()


@pytest.mark.parametrize(
    ("typed", "action"),
    [("theme", "app.next_theme"), ("colors", "app.next_theme"), ("Search", "filter"), ("exit", "app.quit"),
     ("heat map", "panel(1)"), ("tree", "processes"), ("log", "output")],
)  # fmt: skip
def test_an_action_is_found_by_the_words_of_documents_and_of_other_programs(typed, action):
    assert action in {c.action for c in matching(typed)}


def test_other_words_belong_to_actions():
    assert set(_ALSO) <= {c.action for c in commands()}


async def test_an_action_by_its_name():
    async with running(held(live=False)) as d:
        await d.press("colon", *"first")
        assert isinstance(d.app.screen, PaletteScreen)
        assert "▸ home" in d.text
        await d.press("enter")
        await d.until(lambda: d.view.header.position_s == pytest.approx(0.2))
        assert d.app.screen is d.screen
        await d.press("ctrl+p", *"reverse", "enter")
        await d.until(lambda: not d.view.table.descending)
        await d.press("colon", *"nothing of that", "enter")
        assert "no action has these words" in d.text
        await d.press("escape")
        assert d.app.screen is d.screen


async def test_the_palette_on_a_small_screen_and_in_ascii():
    async with running(held(live=False), size=(60, 16), color="none", ascii_only=True) as d:
        await d.press("colon", "down", "down")
        assert d.text.isascii()
        assert "> t" in d.text or "> T" in d.text
        for _ in range(60):
            await d.press("pagedown")
        assert "> q" in d.text
        await d.press("enter")
        await d.until(lambda: d.app._exit)


@pytest.mark.parametrize(("keys", "first"), [("1", "Where and when"), ("2", "Reuse distance"), ("3", "Address ranges"),
                                             ("4", "Power"), ("p", "Processes")])  # fmt: skip
async def test_help_begins_with_the_chosen_panel(keys, first):
    async with running(held(live=False)) as d:
        await d.press(keys, "question_mark")
        assert isinstance(d.app.screen, HelpScreen)
        lines = [line.strip(" │") for line in d.text.splitlines()]
        assert next(line for line in lines[1:] if line and "┌" not in line).startswith(first)


@pytest.mark.parametrize("panel", [*ABOUT, *ALONE])
def test_help_loses_no_word_when_it_is_narrow(panel):
    whole = help_for(panel)
    for width in (52, 72, 110):
        lines = wrapped(whole.splitlines(), width)
        assert max(map(len, lines)) <= width
        assert " ".join(lines).split() == whole.split()


@pytest.mark.parametrize("width", [40, 72, 110])
@pytest.mark.parametrize("panel", [*ABOUT, *ALONE])
def test_help_is_filled_and_goes_on_under_its_own_words(panel, width):
    source = help_for(panel).splitlines()
    lines = wrapped(source, width)
    headings = [line for line in source if line and not line.startswith(" ")]
    names = [line.partition("  ")[0] for line in lines if line and not line.startswith(" ")]
    assert len(set(names)) == len(names), names
    for line, after in pairwise(lines):
        indent = len(after) - len(after.lstrip())
        assert not after or indent in (0, 2, 16), after
        is_key = "  " in (after[14:16], line[14:16])  # or a sentence after one
        after_heading = any(heading.endswith(f" {line.strip()}") for heading in headings)
        if indent == 16 or (indent == 2 and line.startswith("  ") and not is_key and not after_heading):
            assert len(line) + 1 + len(after.split()[0]) > width, "a line ends where no word fits"


def screens_of_lists() -> list[type[ListScreen]]:
    for module in walk_packages(memtui.__path__, "memtui."):
        if module.name.startswith("memtui.tui.screens.") or module.name.endswith(".screen"):
            import_module(module.name)
    return [each for each in ListScreen.__subclasses__() if each.__module__.startswith("memtui.")]


def test_every_screen_with_keys_of_its_own_has_help_of_its_own():
    help_of = {each.__name__: each.HELP for each in screens_of_lists()}
    assert help_of.pop("HomeScreen") == ""  # it takes ? as a letter of what is looked for
    assert help_of
    for name, panel in help_of.items():
        assert panel in ALONE, name
    for panel, words in ALONE.items():
        assert panel not in ABOUT
        assert all(section.partition("\n")[0] not in words.splitlines() for section in SECTIONS.values()), panel


@pytest.mark.parametrize("each", [each for each in screens_of_lists() if each.HELP], ids=lambda each: each.HELP)
def test_help_names_every_key_of_such_a_screen(each):
    names = {"shift+tab": "shift+Tab", "escape": "Esc", "tab": "Tab", "enter": "Enter"}
    for binding in [*each.BINDINGS, *ListScreen.BINDINGS]:
        keys = [names.get(key, key) for key in binding.key.split(",")]
        matches = [re.search(rf"(?<![\w+]){re.escape(key)}(?!\w)", ALONE[each.HELP]) for key in keys]
        assert any(matches) or binding.action == "help", binding


def luminance(index: int) -> float:
    red, green, blue = EIGHT_BIT_PALETTE[index]
    channels = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
    return 0.2126 * channels[0] + 0.7152 * channels[1] + 0.0722 * channels[2]


def contrast(a: int, b: int) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_themes_can_be_read(theme):
    """WCAG 2: 4.5 for text (7 for high contrast), and heat that rises away from the ground."""
    least = 7 if theme.name == "high-contrast" else 4.5
    for role in ("text", "title", "bright", "key", "live", "paused", "warning", "focus", "selected"):
        front, back, _ = theme.roles[role]
        assert contrast(front, theme.ground if back is None else back) >= least, role
    away = [contrast(level, theme.ground) for level in theme.heat]
    assert all(a < b for a, b in pairwise(away)), away
    assert theme.roles.keys() == DARK.roles.keys() == theme.roles_16.keys()
    assert len(theme.heat) == len(theme.heat_16) == 10


def test_no_theme_brings_colour_where_there_is_none():
    for name in THEMES:
        styles = draw_style("none", False, name)
        assert all(style.color is None and style.bgcolor is None for style in styles.styles.values())
        assert not styles.half_blocks
    for name in THEMES:
        assert all(s.color is None or s.color.number is None or s.color.number < 16
                   for s in draw_style("16", False, name).styles.values())  # fmt: skip
    assert draw_style("256", False, "light").pairs[NOTHING * 257].bgcolor.number == THEMES["light"].ground


async def test_the_key_changes_the_colours_and_nothing_else():
    async with running(held(live=False)) as d:
        await d.settle()
        before, seen = d.text, []
        for _ in range(3):
            strip = d.screen.panels.graph.render_line(0)
            seen.append({segment.style.bgcolor.number for segment in strip})
            await d.press("c")
            assert d.text == before
        assert seen == [{theme.ground} for theme in THEMES.values()]
        assert d.app.draw_style.theme == "dark"
        assert d.view.header.state is State.PAUSED


def test_terminal_and_widgets_know_the_same_themes():
    assert tuple(THEMES) == terminal.THEMES
    assert terminal.prepare(theme="light", environ={"TERM": "xterm"}).theme == "light"


async def test_words_typed_at_once_reach_the_palette():
    async with running(held(live=False)) as d:
        for character in ":zoom":
            d.app.post_message(events.Key("colon" if character == ":" else character, character))
        await d.until(lambda: "│ zoom  " in d.text and "▸ z" in d.text)
        await d.press("escape")
        assert not d.view.heat.zoom
