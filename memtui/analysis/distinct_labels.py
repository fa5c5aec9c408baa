"""Labels of address ranges of which no two are alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memtui.core.page_sizes import PAGE_BYTES


class Labelled(NamedTuple):
    """What tells a range from others of the same label; ``start`` in bytes."""

    label: str
    perms: str
    start: int


def distinct_labels(ranges: Sequence[Labelled], *, addresses: bool = True) -> list[str]:
    """Return the labels of ranges: alike ones get their permissions, and then what differs of their addresses.

    Addresses are without the three zeros that those of pages have: ``libc rw-p``, ``libc r--p …b7c``. Where they may
    not be shown, labels stay alike.
    """
    labels = _told_apart([r.label for r in ranges], [r.perms for r in ranges])
    if not addresses:
        return labels
    pages = [f"{r.start // PAGE_BYTES:09x}" for r in ranges]
    common = {label: _common(texts) for label, texts in _by_label(labels, pages).items()}
    return _told_apart(labels, [f"…{page[common[label] :]}" for label, page in zip(labels, pages, strict=True)])


def _told_apart(labels: list[str], parts: list[str]) -> list[str]:
    """Return the labels, with their parts where those of one label differ."""
    alike = _by_label(labels, parts)
    return [f"{label} {part}" if len(alike[label]) > 1 else label for label, part in zip(labels, parts, strict=True)]


def _by_label(labels: list[str], texts: list[str]) -> dict[str, set[str]]:
    by_label: dict[str, set[str]] = {}
    for label, text in zip(labels, texts, strict=True):
        by_label.setdefault(label, set()).add(text)
    return by_label


def _common(texts: set[str]) -> int:
    """Return how many characters all texts begin with."""
    shortest = min(map(len, texts))
    return next((n for n in range(shortest) if len({text[n] for text in texts}) > 1), shortest)
