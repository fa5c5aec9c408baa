"""Thin curves over one another, for the charts of one training and of several trainings."""

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
    """A curve.

    Attributes:
        heights: f8[2 * columns], 0 to 1, nan in a gap.
        style: of its cells.
        glyph: one ASCII character, for a terminal without braille.
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
    draw_style: DrawStyle,
    cursor: int | None = None,
    *,
    letters: bool = False,
) -> list[Line]:
    """Return rows of a picture; later curves lie over earlier ones, and a cell has the colour of the last one in it.

    ``letters``: draw the curves with their glyphs, also where there is braille.
    """
    codes = np.full((rows, columns), ord(" "), np.uint32)
    index = np.zeros((rows, columns), np.int64)
    if cursor is not None:
        codes[:, cursor], index[:, cursor] = ord("|" if draw_style.ascii_only else "│"), 1
    for number, curve in enumerate(curves, 2):
        curve_codes = _letters(curve, rows) if letters or draw_style.ascii_only else _braille(curve, rows)
        there = curve_codes != 0
        braille = (codes >= 0x2800) & (codes <= 0x28FF) & there & (curve_codes >= 0x2800)
        codes[there & ~braille] = curve_codes[there & ~braille]
        codes[braille] |= curve_codes[braille]
        index[there] = number
    return raster.lines(codes, index, [draw_style["text"], draw_style["cursor"], *(curve.style for curve in curves)])


def _braille(curve: Curve, rows: int) -> NDArray[np.uint32]:
    """Return connected dots: a jump is a vertical line in its second column."""
    heights = curve.heights
    codes = np.zeros((rows, len(heights) // 2), np.uint32)
    before: int | None = None
    for dot_column, height in enumerate(heights.tolist()):
        if height != height:
            before = None
            continue
        dot_row = min(max(int(height * rows * 4), 0), rows * 4 - 1)
        low, high = (dot_row, dot_row) if before is None else (min(dot_row, before + 1), max(dot_row, before - 1))
        before = dot_row
        if curve.dashed and dot_column % 4 > 1:
            continue
        for dot in range(min(low, dot_row), max(high, dot_row) + 1):
            codes[rows - 1 - dot // 4, dot_column // 2] |= _BITS[dot_column % 2, dot % 4]
    return np.where(codes == 0, 0, codes + 0x2800).astype(np.uint32)


def _letters(curve: Curve, rows: int) -> NDArray[np.uint32]:
    heights = np.fmax(curve.heights[0::2], curve.heights[1::2])
    codes = np.zeros((rows, len(heights)), np.uint32)
    finite = np.flatnonzero(np.isfinite(heights))
    if curve.dashed:
        finite = finite[finite % 2 == 0]
    rows_of = rows - 1 - np.clip(heights[finite] * rows, 0, rows - 1).astype(int)
    codes[rows_of, finite] = ord(curve.glyph)
    return codes


def forward_fill(columns: NDArray[np.int64], values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return f8[count]: each value at rising places repeated up to the next place; the last one is not repeated."""
    out = np.full(count, np.nan)
    finite = np.isfinite(values)
    columns, values = columns[finite], values[finite]
    if not len(columns):
        return out
    inside = np.arange(max(0, int(columns[0])), min(count, int(columns[-1]) + 1))
    out[inside] = values[np.searchsorted(columns, inside, side="right") - 1]
    return out
