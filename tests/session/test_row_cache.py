"""Cached rows equal the rows of the table, however they are requested, and few are read twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtui.session import row_cache
from memtui.session.row_cache import RowCache, Rows
from tests.conftest import LONG


class Table:
    """Rows by key, to which more are added at the end; counts what is read."""

    def __init__(self) -> None:
        self.rows: Rows = []
        self.read = 0

    def add(self, keys: list[int]) -> None:
        self.rows += [(key, (np.array([key]), np.array([1, 2]))) for key in keys]

    def between(self, low: int, high: int) -> Rows:
        rows = [row for row in self.rows if low <= row[0] < high]
        self.read += len(rows)
        return rows


ROW_BYTES = 8 + 16
STEPS = st.lists(st.tuples(st.integers(0, 120), st.integers(0, 40), st.integers(0, 3)), max_size=25)


@given(STEPS, st.sampled_from([4, 30, 1000]), st.booleans())
@settings(max_examples=300 if LONG else 100, deadline=None)
def test_every_answer_is_right_while_the_table_grows(steps, keep, by_bytes):
    table = Table()
    cache = RowCache(table.between)
    final = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_cache, *keeping(keep, by_bytes=by_bytes))
        for low, width, more in steps:
            table.add(list(range(final, final + more)))  # written, and not all of it known to be whole
            expected = [row for row in table.rows if low <= row[0] < low + width]
            assert [key for key, _ in cache.between(low, low + width, final)] == [key for key, _ in expected]
            assert len(cache) <= keep
            final += more


def keeping(rows: int, *, by_bytes: bool) -> tuple[str, int]:
    """Return the bound at which a number of rows is cached."""
    return ("KEEP_BYTES", rows * ROW_BYTES) if by_bytes else ("KEEP_ROWS", rows)


@pytest.mark.parametrize("by_bytes", [False, True])
def test_as_many_as_may_be_kept_are_read_once(by_bytes, monkeypatch):
    monkeypatch.setattr(row_cache, *keeping(48, by_bytes=by_bytes))
    table = Table()
    cache = RowCache(table.between)
    for newest in range(0, 500, 4):
        table.add(list(range(newest, newest + 4)))
        cache.between(max(0, newest - 44), newest + 4, newest + 4)
        assert len(cache) == min(newest + 4, 48)
    assert table.read == 500


def test_a_wider_question_far_away_takes_the_place_of_what_was_kept(monkeypatch):
    monkeypatch.setattr(row_cache, *keeping(200, by_bytes=True))
    table = Table()
    table.add(list(range(1000)))
    cache = RowCache(table.between)
    for _ in range(3):
        cache.between(952, 1000, 1000)
    for _ in range(3):
        cache.between(0, 200, 1000)
    assert (table.read, len(cache)) == (48 + 200, 200)


def test_following_reads_each_row_once():
    table = Table()
    cache = RowCache(table.between)
    for newest in range(0, 500, 5):
        table.add(list(range(newest, newest + 5)))
        cache.between(newest, newest + 5, newest + 5)
        cache.between(max(0, newest - 43), newest + 5, newest + 5)
    assert table.read == 500


def test_questions_far_from_one_another_read_what_they_ask_for():
    table = Table()
    table.add(list(range(1000)))
    cache = RowCache(table.between)
    cache.between(952, 1000, 1000)
    for low in range(900, 0, -20):
        assert [key for key, _ in cache.between(low, low + 1, 1000)] == [low]
    assert table.read == 48 + 45
    cache.between(952, 1000, 1000)
    assert table.read == 48 + 45, "the newest windows are still there"


def test_short_answers_of_a_growing_session_keep_few_rows():
    table = Table()
    cache = RowCache(table.between)
    for newest in range(0, 20_000, 16):
        table.add(list(range(newest, newest + 16)))
        cache.between(max(0, newest - 240), newest + 16, newest + 16)
        assert len(cache) <= row_cache.KEEP_SHORT
    assert table.read == 20_000  # and each is read once
    cache.between(0, 10_000, 20_000)
    assert len(cache) >= 10_000  # of a long answer all rows are cached
    read = table.read
    cache.between(0, 9_000, 20_000)
    assert table.read == read
