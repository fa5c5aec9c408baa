"""What a session may contain. SQLite stores any type in any column and JSON any shape, so every value is checked once.

All raise ValueError with what is wrong; the reader names the file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from typing import Any

MAX_INTEGER = 1 << 62  # two of them, and nanoseconds of 146 years, fit in 64 bits
MAX_SAMPLE, MAX_PROCESS = 1 << 42, 1 << 20  # their bits in a row's key
MAX_ADDRESS = 1 << 57  # with five levels of page tables
MAX_REAL = 1e18
MAX_PID = 1 << 22
MAX_DEVICE = 64  # characters of its name
_NONE = type(None)
_TYPES: dict[str, frozenset[type]] = {
    "i": frozenset((int,)),
    "I": frozenset((int, _NONE)),
    "r": frozenset((float, int, _NONE)),
    "n": frozenset((float, int)),
    "t": frozenset((str,)),
    "b": frozenset((bytes,)),
}


def check_rows(rows: Sequence[tuple[Any, ...]], kinds: str) -> None:
    """Check types and ranges by column.

    ``i`` integer, ``I`` integer or NULL, ``n`` number, ``r`` number or NULL, ``t`` text, ``b`` blob.
    """
    if not rows:
        return
    for number, (column, kind) in enumerate(zip(zip(*rows, strict=True), kinds, strict=True)):
        if not _TYPES[kind].issuperset(map(type, column)):
            raise ValueError(f"column {number} holds another type")
        if kind in "nr":
            # In this form a value that is not a number is refused, too.
            within = all(-MAX_REAL <= value < MAX_REAL for value in column if value is not None)
        elif kind in "iI":  # an hour of samples is checked before the first frame is drawn: this is the fast way
            present = [value for value in column if value is not None] if kind == "I" else column
            within = not present or (min(present) >= 0 and max(present) < MAX_INTEGER)
        else:
            continue
        if not within:
            raise ValueError(f"column {number} holds a number out of range")


def check_vma(start: int, end: int, first_sample: int, last_sample: int | None) -> None:
    """Check a row of the table of VMAs."""
    if not start < end <= MAX_ADDRESS or (start | end) & 0xFFF:
        raise ValueError("a VMA is not a range of pages")
    if first_sample >= MAX_SAMPLE or (last_sample is not None and not first_sample <= last_sample < MAX_SAMPLE):
        raise ValueError("a VMA ends before it begins")


def parse_json(text: str) -> Any:
    """Return one JSON value."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("is nested without end") from None


def check_fields(record: Any) -> None:
    """Check a dataclass of ``samples`` whose fields came from JSON: each of the type it is declared with."""
    for field in fields(record):
        name, value = f"{type(record).__name__}.{field.name}", getattr(record, field.name)
        if isinstance(value, tuple):
            for part in value:
                check_fields(part)
        elif is_dataclass(value):
            check_fields(value)
        elif not _fits(value, str(field.type)):
            raise ValueError(f"{name} holds another type, or a number out of range")


def _fits(value: Any, declared: str) -> bool:
    wanted = declared.split(" | ")
    if value is None:
        return "None" in wanted
    if type(value) is int:
        # The one number that may be below 0 is the offset from UTC.
        return "int" in wanted and -86400 <= value < MAX_INTEGER
    return type(value).__name__ in wanted


def check_device(name: object) -> None:
    """Raise ValueError for an impossible name of a device."""
    if not isinstance(name, str) or len(name) > MAX_DEVICE:
        raise ValueError("a device has no name that can be")
