"""Which panels are in sight and how much room each gets."""

from __future__ import annotations

import pytest

from memtui.tui.screens.layout import PANELS, arrange, panels_in_sight

FRAME = {"header", "top", "graph"}


@pytest.mark.parametrize("above", [0, 2, 5])
@pytest.mark.parametrize("size", [(60, 16), (80, 24), (99, 50), (100, 30), (120, 36), (210, 60), (400, 120)])
def test_arrangement_uses_all_rows(size, above):
    for power in (True, False):
        shape = arrange(*size, above, power=power)
        line = shape.kind == "large" and not power
        assert shape.top + shape.middle + shape.bottom == size[1] - 2 - above - line
        assert not line or shape.power == 0
        if shape.kind != "large":
            continue
        assert shape.heat + shape.reuse == size[0]
        assert shape.bottom >= 9 - above - (not power)


def test_arrangement_too_small():
    assert arrange(59, 40).kind == arrange(200, 15).kind == "tiny"


def test_a_terminal_that_is_too_small_has_a_notice_and_nothing_else():
    assert panels_in_sight("tiny", "heat", "table", details=True, output=True, prompt=True) == {"notice"}


@pytest.mark.parametrize("listed", ["table", "processes", "tensors"])
def test_a_large_screen_has_all_panels_whichever_is_chosen(listed):
    below = {"middle", "heat", "reuse", listed}
    for chosen in PANELS:
        assert panels_in_sight("large", chosen, listed) == FRAME | {"words", "power", "footer"} | below


@pytest.mark.parametrize(
    ("chosen", "below"),
    [("heat", {"middle", "heat"}), ("reuse", {"middle", "reuse"}), ("table", {"tensors"}), ("power", {"power"})],
)
def test_a_small_screen_has_the_chosen_panel(chosen, below):
    assert panels_in_sight("small", chosen, "tensors") == FRAME | {"words", "footer"} | below


def test_without_power_a_large_screen_has_a_line_and_a_small_one_still_the_panel():
    large = panels_in_sight("large", "table", "table", power=False)
    assert "power-line" in large
    assert "power" not in large
    small = panels_in_sight("small", "power", "table", power=False)
    assert "power" in small
    assert "power-line" not in small


def test_the_output_takes_the_place_of_the_panels_below_the_graph():
    assert panels_in_sight("large", "heat", "table", output=True) == FRAME | {"words", "power", "footer", "output"}
    assert panels_in_sight("small", "power", "table", output=True) == FRAME | {"words", "footer", "output"}


def test_the_prompt_takes_the_place_of_the_footer():
    ids = panels_in_sight("small", "heat", "table", sentences=False, prompt=True)
    assert ids == FRAME | {"prompt", "middle", "heat"}


def test_details_are_lines_of_their_own():
    changed = panels_in_sight("large", "heat", "table", details=True) ^ panels_in_sight("large", "heat", "table")
    assert changed == {"details"}
