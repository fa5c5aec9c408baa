"""Text in cells: a foreign text never breaks a line, names keep both ends. Numbers come from ``memtui.core.units``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from rich.cells import cell_len, set_cell_size

from memtui.core.shorten import shorten
from memtui.core.text import printable as clean
from memtui.core.units import (
    about_percent,
    change,
    clock,
    duration,
    energy,
    energy_column,
    percent,
    power,
    power_column,
    short_power,
    short_size,
    size,
    size_column,
    span,
)

__all__ = [
    "about_percent",
    "change",
    "clean",
    "clock",
    "duration",
    "energy",
    "energy_column",
    "fit",
    "percent",
    "power",
    "power_column",
    "sentence",
    "short_power",
    "short_size",
    "shortened",
    "size",
    "size_column",
    "span",
    "width",
]  # fmt: skip

_BEFORE_NAMES = " ▶▼"
COMPARED = 400  # rows of a table whose names are compared with each other, in sight or not


def width(text: str) -> int:
    """Return cells a text takes."""
    return len(text) if text.isascii() else cell_len(text)


def sentence(text: str, cells: int) -> str:
    """Return a text padded to ``cells``, or cut with an ellipsis at its end (a sentence is read from its start)."""
    if cells < 4 or width(text) <= cells:
        return fit(text, cells)
    return fit(set_cell_size(text, cells - 1).rstrip() + "…", cells)


def fitting_keys(keys: Sequence[str], cells: int) -> str:
    """Join as many keys as have room, the most important first; the last two (help, leave) always stay."""
    shown = list(keys)
    while width(" · ".join(shown)) > cells and len(shown) > 2:
        shown.pop(-3)
    return " · ".join(shown)


def fitting_ranked(parts: Sequence[tuple[str, int]], cells: int, separator: str = " · ") -> str:
    """Join ranked parts, as many as have room: the last of the highest rank gives way first, those of rank 1 never."""
    shown = list(parts)
    while width(separator.join(part for part, _ in shown)) > cells and (most := max(rank for _, rank in shown)) > 1:
        shown.pop(max(index for index, (_, rank) in enumerate(shown) if rank == most))
    return separator.join(part for part, _ in shown)


def progress_bar(done: int, of: int, cells: int) -> str:
    """Return a bar of ``cells`` cells, heavy as far as ``done`` of ``of`` parts are done; all light without parts."""
    heavy = round(cells * done / of) if of else 0
    return "━" * heavy + "─" * max(0, cells - heavy)


def fit(text: str, cells: int, *, right: bool = False) -> str:
    """Return a text padded to ``cells``, or cut with an ellipsis in its middle (both ends of a name matter)."""
    if cells <= 0:
        return ""
    have = width(text)
    if have <= cells:
        pad = " " * (cells - have)
        return pad + text if right else text + pad
    if cells < 4:
        return set_cell_size(text, cells)
    head = (cells - 1) // 2
    tail = cells - 1 - head
    # Wide characters: take characters from the end until the tail is full.
    end = ""
    for char in reversed(text):
        if width(char + end) > tail:
            break
        end = char + end
    return set_cell_size(set_cell_size(text, head) + "…" + end, cells)


def shortened(names: list[str], cells: int) -> list[str]:
    """Return the names of a column cut so that what differs between them stays, and how deep each lies in a tree."""
    if not any(name.startswith(" ") for name in names):
        return shorten(names, cells)
    out, depths = list(names), [len(name) - len(name.lstrip(_BEFORE_NAMES)) for name in names]
    for depth in set(depths):
        indices = [n for n, deep in enumerate(depths) if deep == depth]
        for n, name in zip(indices, shorten([names[n][depth:] for n in indices], cells - depth), strict=True):
            out[n] = names[n][:depth] + name
    return out


def in_column(rows: Sequence[Any], first: int, name: Callable[[Any], str], cells: Sequence[int]) -> list[str]:
    """Return the names of rows from the first in sight on, ``cells`` for each, different from those of all rows."""
    start, end = (0, len(rows)) if len(rows) <= COMPARED else (first, first + len(cells))
    names = tuple(map(name, rows[start:end]))
    fitted = {width: _fitted_names(names, width) for width in set(cells)}
    return [fitted[width][first - start + index] for index, width in enumerate(cells)]


@lru_cache(16)
def _fitted_names(names: tuple[str, ...], cells: int) -> tuple[str, ...]:
    """Return the names of a column in ``cells`` each. They are the same from view to view, as a rule."""
    return tuple(fit(short, cells) for short in shortened(list(map(clean, names)), cells))
