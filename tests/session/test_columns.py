"""Dataclasses as declarations of tables: kinds of columns, and rows that are inserted by name."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import Generic

import pytest

from memtui.session.columns import Json, columns_of, insert_statement, insertion_into


@dataclass(frozen=True, slots=True)
class Columns(Generic[Json]):
    n: int
    about: Json
    share: float
    wide: float | None


@dataclass(frozen=True, slots=True)
class Record(Columns[str]):
    id: int
    size: int | None
    data: bytes


@dataclass(frozen=True, slots=True)
class Single:
    key: str


def test_columns_are_the_fields_in_their_order_with_their_kinds():
    expected = {"n": "i", "about": "t", "share": "n", "wide": "r", "id": "i", "size": "I", "data": "b"}
    assert list(columns_of(Record).items()) == list(expected.items())


def test_a_type_that_no_column_has_is_refused():
    @dataclass
    class Odd:
        values: list

    with pytest.raises(KeyError):
        columns_of(Odd)


def test_values_go_to_the_columns_of_their_names_whatever_the_order_of_the_table():
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t(data, size, id, wide, share, about, n)")
        record = Record(1, "{}", 0.5, None, 7, None, b"x")
        statement, values = insertion_into("t", Record)
        connection.execute(statement, values(record))
        assert connection.execute("SELECT * FROM t").fetchall() == [(b"x", None, 7, None, 0.5, "{}", 1)]
        statement, values = insertion_into("t", Record, ("n", "id"))
        connection.execute(statement, (*values(record), 10, 70))
        assert connection.execute("SELECT id, n, size FROM t").fetchall()[1] == (70, 10, None)


def test_a_single_column_is_a_row_too():
    statement, values = insertion_into("t", Single)
    assert (statement, values(Single("a"))) == ("INSERT OR REPLACE INTO t(key) VALUES (?)", ("a",))
    assert insertion_into("t", Single, ("key",)).values(Single("a")) == ()


def test_a_given_column_that_is_not_declared_is_refused():
    with pytest.raises(ValueError, match="table t has no column colour, size"):
        insertion_into("t", Single, ("size", "colour", "key"))


def test_what_becomes_of_a_row_whose_key_is_there():
    assert insert_statement("t", ("a", "b"), "IGNORE") == "INSERT OR IGNORE INTO t(a, b) VALUES (?, ?)"
