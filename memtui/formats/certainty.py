"""How certain a format is that a file is of its kind: the share of what it looks at that is as it writes it.

Each format has a function ``certainty``, which returns 0 for what is not its own, up to 1. The most certain one reads
the file, which may be damaged: it knows best how to say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import ModuleType
from typing import Any

MOST_LINES = 200  # or other parts of a file that a format looks at
_MOST_BYTES = 1 << 20  # of these lines together
_MOST_OF_LINE = 1 << 16  # bytes


def share_of(items: Iterable[Any], matches: Callable[[Any], object]) -> float:
    """Return the share of the first items that match; 0 without any."""
    matched = [bool(matches(item)) for item in islice(items, MOST_LINES)]
    return sum(matched) / len(matched) if matched else 0.0


def lines_of(data: bytes, start: int = 0) -> Iterator[bytes]:
    """Yield the first lines of a text that are not empty, cut short, from the one that has a byte of some number."""
    start = data.rfind(b"\n", 0, start) + 1
    for line in filter(bytes.strip, data[start : start + _MOST_BYTES].split(b"\n")):
        yield line[:_MOST_OF_LINE]


def most_certain(formats: Sequence[ModuleType], content: Any) -> ModuleType | None:
    """Return the format that is most certain of a content, of equally certain ones the first; None: all say no."""
    certainties = [form.certainty(content) for form in formats]
    return formats[certainties.index(most)] if (most := max(certainties)) > 0 else None
