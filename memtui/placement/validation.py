"""Validation of JSON data value by value: a profile may come from a stranger."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
MOST_CHARACTERS = 4096  # of one text
MOST = 1 << 62  # of a whole number: sums of them stay numbers that SQLite and numpy can hold
LARGEST = 1e18  # of any other number


class Damaged(ValueError):
    """The data is not a valid graph, profile or plan; the message says what is wrong."""


def table(value: Any, what: str) -> Mapping[str, Any]:
    """Return a JSON object. Raises Damaged, as all functions of this module do."""
    if not isinstance(value, Mapping):
        raise Damaged(f"{what} is not a table")
    return value


def rows(fields: Mapping[str, Any], key: str) -> list[Any] | tuple[Any, ...]:
    """Return the list that stands under a key."""
    value = fields.get(key)
    if not isinstance(value, list | tuple):
        raise Damaged(f"{key} is not a list")
    return value


def list_of(fields: Mapping[str, Any], key: str, kind: Callable[[Any, str], T]) -> tuple[T, ...]:
    """Return the list that stands under a key, each of its values of one kind."""
    return tuple(kind(value, key) for value in rows(fields, key))


def required(fields: Mapping[str, Any], key: str, kind: Callable[[Any, str], T]) -> T:
    """Return the value that stands under a key."""
    if key not in fields:
        raise Damaged(f"{key} is missing")
    return kind(fields[key], key)


def optional(fields: Mapping[str, Any], key: str, kind: Callable[[Any, str], T]) -> T | None:
    """Return the value that stands under a key; None where there is none."""
    return None if fields.get(key) is None else required(fields, key, kind)


def text(value: Any, what: str) -> str:
    if not isinstance(value, str) or len(value) > MOST_CHARACTERS:
        raise Damaged(f"{what} is not a text, or too long")
    return value


def name(value: Any, what: str) -> str:
    """Return a text that is not empty."""
    if not text(value, what):
        raise Damaged(f"{what} is empty")
    return str(value)


def truth(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise Damaged(f"{what} is neither true nor false")
    return value


def count(value: Any, what: str) -> int:
    """Return a whole number from 0."""
    if type(value) is not int or not 0 <= value <= MOST:
        raise Damaged(f"{what} is not a whole number from 0")
    return value


def number(value: Any, what: str) -> float:
    """Return a number from 0, as nanoseconds and bytes a second are."""
    if type(value) not in (int, float) or not (math.isfinite(value) and 0 <= value <= LARGEST):
        raise Damaged(f"{what} is not a number from 0")
    return float(value)


def positive(value: Any, what: str) -> float:
    if number(value, what) <= 0:
        raise Damaged(f"{what} is not above 0")
    return float(value)
