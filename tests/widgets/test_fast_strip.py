"""Lines as bytes: what a terminal shows of them is what it shows of Textual's own strips, for fewer bytes."""

from __future__ import annotations

import pyte
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from memtui.widgets.fast_strip import FastStrip

COLOURS = st.sampled_from([None, "color(17)", "color(243)", "color(208)"])
FLAGS = st.sampled_from([None, True])
STYLES = st.builds(Style, color=COLOURS, bgcolor=COLOURS, bold=FLAGS, reverse=FLAGS, underline=FLAGS)
LINES = st.lists(st.tuples(st.text("ab ▀│", max_size=4), STYLES), max_size=12)
CELLS = 60


def console(system: str) -> Console:
    return Console(color_system=system, force_terminal=True)


def shown(text: str) -> list:
    screen = pyte.Screen(CELLS, 1)
    pyte.Stream(screen).feed(text)
    return [screen.buffer[0][x] for x in range(CELLS)]


@given(LINES, st.sampled_from(["256", "standard", "truecolor"]))
@example([(" ", Style(bgcolor="color(17)")), ("", Style(bold=True)), ("", Style(reverse=True))], "256")
@example([(" ", Style()), ("a", Style(bold=True)), (" ", Style()), ("b", Style(underline=True))], "256")
@settings(max_examples=150, deadline=None)
def test_a_terminal_shows_the_same(line, system):
    on = console(system)
    width = sum(len(run) for run, _ in line)
    textual_strip = Strip([Segment(run, style) for run, style in line], width)
    drawn = FastStrip(line, width)
    assert shown(drawn.render(on)) == shown(textual_strip.render(on))
    assert len(drawn.render(on)) <= len(textual_strip.render(on))
    assert shown(drawn.render(on) + "x") == shown(textual_strip.render(on) + "x"), "nothing is left behind it"


def test_what_the_compositor_does_to_a_whole_line_makes_no_segments():
    drawn = FastStrip([("ab", Style()), ("c", Style(bold=True))], 3)
    assert drawn.divide(cut for cut in (3,)) == [drawn]
    drawn.render(console("256"))
    with pytest.raises(AttributeError):
        Strip._segments.__get__(drawn)
    assert [strip.text for strip in drawn.divide([2, 3])] == ["ab", "c"]


@settings(deadline=None)
@given(LINES, st.integers(0, 20), st.integers(0, 20))
def test_cut_it_is_a_strip_like_others(line, start, cells):
    width = sum(len(run) for run, _ in line)
    textual_strip = Strip([Segment(run, style) for run, style in line], width)
    drawn = FastStrip(line, width)
    assert drawn.cell_length == width
    assert drawn.crop(start, start + cells) == textual_strip.crop(start, start + cells)
    assert list(drawn) == list(textual_strip)
    assert drawn.text == textual_strip.text
    assert drawn == textual_strip


def test_neighbouring_cells_of_one_style_cost_one_code():
    style = Style(color="color(243)", bgcolor="color(17)")
    other = Style(color="color(208)", bgcolor="color(17)")
    drawn = FastStrip([("a", style), ("b", style), ("c", other)], 3)
    assert drawn.render(console("256")) == "\x1b[38;5;243;48;5;17mab\x1b[38;5;208;48;5;17mc\x1b[0m"
    assert ColorSystem.EIGHT_BIT is console("256")._color_system


def test_what_no_strip_has_it_has_not():
    with pytest.raises(AttributeError):
        FastStrip([], 0).colour  # noqa: B018
