"""Rows that are kept are the rows that are there, however they are asked for, and few are read twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.session import kept_rows
from memtui.session.kept_rows import KeptRows, Rows


class Table:
    """Rows by key, to which more are added at the end; counts what is read."""

    def __init__(self) -> None:
        self.rows: Rows = []
        self.read = 0

    def add(self, keys: list[int]) -> None:
        self.rows += [(key, (np.array([key]), np.array([1]))) for key in keys]

    def between(self, low: int, high: int) -> Rows:
        found = [row for row in self.rows if low <= row[0] < high]
        self.read += len(found)
        return found


STEPS = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 40), st.integers(0, 3)), max_size=25)


@given(STEPS, st.sampled_from([4, 30, 1000]))
@settings(max_examples=300, deadline=None)
def test_every_answer_is_right_while_the_table_grows(steps, keep):
    table = Table()
    kept = KeptRows(table.between)
    final = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_rows, "KEEP_ROWS", keep)
        for low, width, more in steps:
            table.add(list(range(final, final + more)))  # written, and not all of it known to be whole
            expected = [row for row in table.rows if low <= row[0] < low + width]
            assert [key for key, _ in kept.between(low, low + width, final)] == [key for key, _ in expected]
            assert len(kept) <= keep
            final += more


def test_following_reads_each_row_once():
    table = Table()
    kept = KeptRows(table.between)
    for newest in range(0, 500, 5):
        table.add(list(range(newest, newest + 5)))
        kept.between(newest, newest + 5, newest + 5)
        kept.between(max(0, newest - 43), newest + 5, newest + 5)
    assert table.read == 500


def test_questions_far_from_one_another_read_what_they_ask_for():
    table = Table()
    table.add(list(range(1000)))
    kept = KeptRows(table.between)
    kept.between(952, 1000, 1000)
    for low in range(900, 0, -20):
        assert [key for key, _ in kept.between(low, low + 1, 1000)] == [low]
    assert table.read == 48 + 45
    kept.between(952, 1000, 1000)
    assert table.read == 48 + 45, "the newest windows are still there"
