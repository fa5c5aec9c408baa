"""From numbers to cells, without an app."""

from __future__ import annotations

import numpy as np
import pytest
from rich.style import Style

from memtui.widgets import raster, text
from memtui.widgets.style import draw_style
from memtui.widgets.views.memory import TimeAxis

S = 1_000_000_000
A, B = Style(bold=True), Style(italic=True)


def rows(codes) -> list[str]:
    return [raster.text_of(row) for row in codes]


def test_area_in_braille_fills_from_the_bottom():
    assert rows(raster.area([0, 0.5, 1, 0.25], 1)) == ["⢠⣇"]
    assert rows(raster.area([1, 1, 0.5, 0.5, np.nan, 0], 2)) == ["⣿  ", "⣿⣿ "]


def test_area_never_hides_something_small():
    assert rows(raster.area([1e-6, 0], 2)) == [" ", "⡀"]


def test_area_of_odd_length_drops_the_last():
    assert raster.area([1, 1, 1], 1).shape == (1, 1)


def test_trace_draws_one_dot_a_value():
    codes = raster.trace([0, 0.99, np.nan, 0.5], 2)
    assert codes.shape == (2, 2)
    assert sum(int(c - 0x2800).bit_count() for c in codes.ravel() if c) == 3


@pytest.mark.parametrize(
    ("values", "height", "picture"),
    [([0, 0.5, 1], 1, [" ▄█"]), ([0.75, 0.001], 2, ["▄ ", "█▁"]), ([2.0, -1.0, np.nan], 1, ["█  "])],
)
def test_bars(values, height, picture):
    assert rows(raster.bars(values, height)) == picture


def test_gauge_has_a_fixed_width():
    for fraction in (-1, 0, 0.01, 0.5, 0.999, 1, 7, float("nan")):
        assert len(raster.gauge(fraction, 9)) == 9
    assert raster.gauge(0.5, 4) == "██  "
    assert raster.gauge(0.5, 4, ascii_only=True) == "##  "


def test_spark():
    assert raster.spark([0, 1, 8], 5) == "   ▁▇"
    assert raster.spark(range(20), 3) == "▇▇▇"


def test_quantise_keeps_sparse_touches_visible():
    assert raster.quantise([0, 1e-4, 0.25, 1, np.nan]).tolist() == [0, 1, 5, 9, raster.NOTHING]


def test_runs_merge_cells_of_one_style():
    codes = np.array([[ord(c) for c in word] for word in ("abcd", "efgh")], np.uint32)
    assert raster.lines(codes, np.array([[0, 0, 1, 1], [0, 0, 0, 0]]), [A, B]) == [
        [("ab", A), ("cd", B)],
        [("efgh", A)],
    ]
    assert raster.lines(codes[:, :0], np.zeros((2, 0), int), [A]) == [[], []]


def test_half_blocks_use_two_levels_a_cell():
    levels = np.array([[1, 1, 2], [1, 1, 3]], np.uint8)
    pairs = draw_style().pairs
    assert raster.half_blocks(levels, pairs) == [[("  ", pairs[257]), ("▀", pairs[2 * 256 + 3])]]
    assert raster.half_blocks(levels[:1], pairs) == [[("  ", pairs[257]), (" ", pairs[514])]]


def test_shades_take_the_hotter_pixel():
    levels = np.array([[0, 9, raster.NOTHING], [1, 0, raster.NOTHING]], np.uint8)
    assert raster.shade_cells(levels, raster.SHADES, A) == [[("░█ ", A)]]
    assert raster.shade_cells(levels, raster.ASCII_SHADES, A) == [[(".@ ", A)]]


def test_bins_take_the_largest_and_hold_a_long_window():
    start, end = np.array([0.0, 10, 20]), np.array([10.0, 20, 30])
    values = np.array([[5.0, 7, 6], [1, 0, 2]])
    assert raster.bin_samples(start, end, values, 0, 15.0, 2).tolist() == [[5, 7], [1, 2]]
    assert raster.bin_samples(start, end, values, 0, 5.0, 6).tolist() == [[5, 5, 7, 7, 6, 6], [1, 1, 0, 0, 2, 2]]


def test_bins_leave_a_gap_open():
    start, end = np.array([0.0, 40]), np.array([10.0, 50])
    bins = raster.bin_samples(start, end, np.array([[1.0, 2], [3, np.nan]]), 0, 10.0, 6)
    np.testing.assert_array_equal(bins, [[1, *[np.nan] * 3, 2, np.nan], [3, *[np.nan] * 5]])
    assert np.isnan(raster.bin_samples(start, end, np.array([[np.nan, np.nan]]), 0, 10.0, 6)).all()


def test_bins_of_a_moving_window_do_not_change():
    """A picture that moves on by one bin shows the same values one column further left."""
    end = np.arange(1, 400) * 0.21
    values = np.random.default_rng(1).random((2, len(end)))
    first = raster.bin_samples(end - 0.2, end, values, 10, 0.5, 60)
    second = raster.bin_samples(end - 0.2, end, values, 11, 0.5, 60)
    np.testing.assert_array_equal(first[:, 1:], second[:, :-1])


@pytest.mark.parametrize("value", [1, 5, 1000, 1025, 3 << 20, 140 << 20, 1.3e9])
def test_nice_ceiling(value):
    top = raster.nice_ceiling(value)
    assert value <= top <= 2 * value


def test_axis_columns():
    axis = TimeAxis(origin_ns=0, start_ns=0, end_ns=60 * S, cursor_ns=30 * S, follow=False)
    assert axis.bins(60) == (S, 0)
    assert axis.column(30 * S, 60) == 29
    assert axis.column(60 * S, 60) == 59
    assert axis.column(61 * S, 60) is None
    assert axis.shows_cursor
    assert not TimeAxis(0, 0, 60 * S, 60 * S, False).shows_cursor


@pytest.mark.parametrize(
    ("label", "cells", "shown"),
    [("abc", 5, "abc  "), ("abcdefgh", 5, "ab…gh"), ("abcdef", 3, "abc"), ("日本語の名前", 7, "日 …前"), ("x", 0, "")],
)
def test_fit(label, cells, shown):
    assert text.width(text.fit(label, cells)) == cells
    if label.isascii():
        assert text.fit(label, cells) == shown


@pytest.mark.parametrize(
    ("label", "cells", "shown"),
    [
        ("a b", 5, "a b  "),
        ("why it is so", 8, "why it… "),
        ("abcdef", 3, "abc"),
        ("日本語の名前", 8, "日本語… "),
        ("x", 0, ""),
    ],
)
def test_a_sentence_is_cut_at_its_end(label, cells, shown):
    assert text.sentence(label, cells) == shown
    assert text.width(shown) == cells


def test_clean_shows_what_would_break_a_line():
    assert text.clean("a\x1b]52;c;x\x07b") == "a\\x1b]52;c;x\\x07b"
    assert text.clean("ev\u202eil\u200b") == "ev<U+202E>il<U+200B>"
    assert text.clean("caf\u00e9 [bold]") == "café [bold]"


def test_looks():
    assert draw_style("none").heat[5] == Style()
    assert not draw_style("16").half_blocks
    assert draw_style("256").half_blocks
    assert draw_style(ascii_only=True).displayable("─●│") == "-*|"


def test_a_bar_of_progress():
    assert text.progress_bar(1, 4, 8) == "━━──────"
    assert text.progress_bar(4, 4, 8) == "━" * 8
    assert text.progress_bar(0, 0, 3) == "───"
    assert text.progress_bar(1, 2, -3) == ""


@pytest.mark.parametrize(
    ("cells", "shown"),
    [(40, "q leave · s sort · a · b · c"), (27, "q leave · s sort · a · b"), (19, "q leave · s sort"), (3, "q leave")],
)
def test_ranked_parts_give_way(cells, shown):
    parts = [("q leave", 1), ("s sort", 2), ("a", 3), ("b", 3), ("c", 4)]
    assert text.fitting_ranked(parts, cells) == shown


def test_ranked_parts_are_as_wide_as_their_cells():
    assert text.fitting_ranked([("×××", 1), ("一", 2)], 5, "") == "×××一"
    assert text.fitting_ranked([("×××", 1), ("一", 2)], 4, "") == "×××"
