"""Rows that are made when they come into sight, against a list of all of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.widgets.row_panel import LazyRows, index_of
from memtui.widgets.table import Column, Listing, ListingView, Row
from tests.support.screen_text import drawn


@settings(deadline=None, max_examples=50)
@given(st.sets(st.integers(0, 30)), st.integers(-3, 33), st.slices(30))
def test_they_are_a_list(numbers, asked, part):
    created: list[int] = []
    rows = LazyRows(np.array(sorted(numbers), np.int64), lambda n: created.append(n) or Row(n, (str(n),)))
    everything = [Row(n, (str(n),)) for n in sorted(numbers)]
    assert (len(rows), bool(rows)) == (len(everything), bool(everything))
    assert index_of(rows, asked) == index_of(everything, asked)
    assert rows.last_until(asked) == sum(n <= asked for n in numbers) - 1
    assert index_of(rows, None) is None
    assert created == [], "to find a row none is made"
    assert list(rows[part]) == everything[part]
    assert list(rows) == everything


async def test_a_list_makes_what_it_shows_and_keeps_the_first_row_chosen():
    """Also when its key is 0: a selection that a filter hid comes back."""
    formatted: list[int] = []

    def view(*numbers: int) -> ListingView:
        rows = LazyRows(np.array(numbers), lambda n: formatted.append(n) or Row(n, (f"row {n}",)))
        return ListingView("rows", (Column("name", 0),), rows)

    listing = Listing(view(*range(100_000)))
    text = await drawn(listing, 30, 10)
    assert "row 6" in text
    assert "row 7" not in text
    assert len(formatted) <= 20
    listing.show(view(*range(5)))
    assert listing.selected == 0
    listing.show(view(3, 4))
    listing.show(view(4))
    listing.show(view(*range(5)))
    assert listing.selected == 0
    assert listing.selected_row == Row(0, ("row 0",))
