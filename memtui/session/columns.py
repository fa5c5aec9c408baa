"""Tables declared as dataclasses, whose fields are the columns: INSERT by name, and the kinds of what is read.

The type of a field is that of its column: ``int``, ``float``, ``str`` and ``bytes``, with ``| None`` where it may
be NULL. A declaration that is generic has the types of its type variables here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, get_type_hints

Integer = TypeVar("Integer")  # ``int``, or all of them as an array
OptionalInteger = TypeVar("OptionalInteger")  # ``int | None``, or an array with nan
Text = TypeVar("Text")  # ``str``, or a sequence of them
Json = TypeVar("Json")  # ``str``, or what it stands for

_KINDS: dict[Any, str] = {
    int: "i",
    int | None: "I",
    float: "n",
    float | None: "r",
    str: "t",
    bytes: "b",
    Integer: "i",
    OptionalInteger: "I",
    Text: "t",
    Json: "t",
}


@cache
def columns_of(record: type) -> dict[str, str]:
    """Return the columns of a record in their order, with their kinds (``validation.check_rows``)."""
    return {name: _KINDS[hint] for name, hint in get_type_hints(record).items()}


class Insertion(NamedTuple):
    """A statement, and the function that takes its values from an object."""

    statement: str
    values: Callable[[Any], tuple[Any, ...]]


@cache
def insertion_into(table: str, record: type, given: tuple[str, ...] = (), or_else: str = "REPLACE") -> Insertion:
    """Return how a row of a record is inserted whose values are attributes of an object, named as the columns are.

    The values of the ``given`` columns are not attributes: they follow the others. ``or_else``: see
    ``insert_statement``.

    Raises:
        ValueError: no such column.
    """
    names = columns_of(record)
    if unknown := set(given) - names.keys():
        raise ValueError(f"table {table} has no column {', '.join(sorted(unknown))}")
    taken = [name for name in names if name not in given]
    return Insertion(insert_statement(table, (*taken, *given), or_else), _getter(taken))


def insert_statement(table: str, columns: Iterable[str], or_else: str = "REPLACE") -> str:
    """Return an INSERT by name; ``or_else`` says what becomes of a row with a known key: it replaces the old one."""
    names = list(columns)
    return f"INSERT OR {or_else} INTO {table}({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda source: tuple(getattr(source, name) for name in names)
