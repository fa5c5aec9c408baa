"""Queries of a session's file: conditions on many numbers."""

from __future__ import annotations

import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from memtui.session.connection import one_of

NUMBERS = st.sets(st.integers(0, 3000)) | st.integers(0, 1500).map(range)


@given(NUMBERS)
def test_conditions_on_many_numbers_choose_these(numbers):
    with sqlite3.connect(":memory:") as connection:
        connection.execute("CREATE TABLE t(id INTEGER PRIMARY KEY)")
        connection.executemany("INSERT INTO t VALUES (?)", [(number,) for number in range(3001)])
        chosen = []
        for condition, values in one_of("id", numbers):
            assert len(values) <= 512
            chosen += [row for (row,) in connection.execute(f"SELECT id FROM t WHERE {condition} ORDER BY id", values)]
    connection.close()
    assert chosen == sorted(numbers)


@given(st.lists(st.integers(1, 600), min_size=1, max_size=40))
def test_few_statements_differ(counts):
    """A connection keeps 128 of them compiled, whatever their size."""
    assert len({condition for count in counts for condition, _ in one_of("id", range(count))}) <= 10
