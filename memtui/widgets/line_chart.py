"""Thin lines over one another: what the charts of a training and of several trainings share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.style import Style

from memtui.widgets import raster
from memtui.widgets.raster import Line
from memtui.widgets.style import DrawStyle

_BITS = np.array([[0x40, 0x04, 0x02, 0x01], [0x80, 0x20, 0x10, 0x08]], np.uint32)  # braille, from the bottom up


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A line.

    Attributes:
        heights: f8[2 * columns], 0 to 1, nan where it is not.
        style: of its cells.
        glyph: one ASCII character, where there is no other way to draw.
        dashed: with gaps.
    """

    heights: NDArray[np.float64]
    style: Style
    glyph: str
    dashed: bool = False


def drawn(
    curves: Sequence[Curve],
    rows: int,
    columns: int,
    look: DrawStyle,
    cursor: int | None = None,
    *,
    letters: bool = False,
) -> list[Line]:
    """Return rows of a picture; later curves lie over earlier ones, and a cell has the colour of the last one in it.

    ``letters``: draw with their glyphs, also where there are others.
    """
    codes = np.full((rows, columns), ord(" "), np.uint32)
    index = np.zeros((rows, columns), np.int64)
    if cursor is not None:
        codes[:, cursor], index[:, cursor] = ord("|" if look.ascii_only else "│"), 1
    for number, curve in enumerate(curves, 2):
        marks = _letters(curve, rows) if letters or look.ascii_only else _braille(curve, rows)
        there = marks != 0
        braille = (codes >= 0x2800) & (codes <= 0x28FF) & there & (marks >= 0x2800)
        codes[there & ~braille] = marks[there & ~braille]
        codes[braille] |= marks[braille]
        index[there] = number
    return raster.lines(codes, index, [look["text"], look["cursor"], *(curve.style for curve in curves)])


def _braille(curve: Curve, rows: int) -> NDArray[np.uint32]:
    """Return the dots, connected: a jump is a vertical line in the column it leads to."""
    heights = curve.heights
    codes = np.zeros((rows, len(heights) // 2), np.uint32)
    before: int | None = None
    for at, height in enumerate(heights.tolist()):
        if height != height:
            before = None
            continue
        place = min(max(int(height * rows * 4), 0), rows * 4 - 1)
        low, high = (place, place) if before is None else (min(place, before + 1), max(place, before - 1))
        before = place
        if curve.dashed and at % 4 > 1:
            continue
        for dot in range(min(low, place), max(high, place) + 1):
            codes[rows - 1 - dot // 4, at // 2] |= _BITS[at % 2, dot % 4]
    return np.where(codes == 0, 0, codes + 0x2800).astype(np.uint32)


def _letters(curve: Curve, rows: int) -> NDArray[np.uint32]:
    heights = np.fmax(curve.heights[0::2], curve.heights[1::2])
    marks = np.zeros((rows, len(heights)), np.uint32)
    known = np.flatnonzero(np.isfinite(heights))
    if curve.dashed:
        known = known[known % 2 == 0]
    place = rows - 1 - np.clip(heights[known] * rows, 0, rows - 1).astype(int)
    marks[place, known] = ord(curve.glyph)
    return marks


def held(places: NDArray[np.int64], values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """f8[count]: values at rising places, each held to the next one, the last one only in its place."""
    out = np.full(count, np.nan)
    known = np.isfinite(values)
    places, values = places[known], values[known]
    if not len(places):
        return out
    inside = np.arange(max(0, int(places[0])), min(count, int(places[-1]) + 1))
    out[inside] = values[np.searchsorted(places, inside, side="right") - 1]
    return out
