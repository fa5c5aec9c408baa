"""Convert numpy arrays to glyphs, heat levels and lines of styled runs. Depends on no app.

A *line* is a list of runs, a run is ``(text, style)``. Few runs a line is what keeps a screen cheap: neighbouring
cells of one style become one run, values are quantised to a few levels, styles are created once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.style import Style

from memtui.core.fast_numpy import median

Run = tuple[str, Style]
Line = list[Run]
Codes = NDArray[np.uint32]
Levels = NDArray[np.uint8]

NOTHING = 255  # level of a cell about which nothing is known
LEVELS = 9  # warm levels 1..9; 0 is "mapped, not touched"
VERTICAL = " ▁▂▃▄▅▆▇█"
HORIZONTAL = " ▏▎▍▌▋▊▉█"
SHADES = " ░▒▓█"
ASCII_SHADES = " .:-=+*#%@"
ASCII_VERTICAL = " ._-=+*##"
# Braille dots from the bottom up, left and right column of a cell.
_LEFT = np.array([0x00, 0x40, 0x44, 0x46, 0x47], np.uint32)
_RIGHT = np.array([0x00, 0x80, 0xA0, 0xB0, 0xB8], np.uint32)
_LEFT_DOT = np.array([0x40, 0x04, 0x02, 0x01], np.uint32)
_RIGHT_DOT = np.array([0x80, 0x20, 0x10, 0x08], np.uint32)
_SPACE = ord(" ")


def text_of(codes: Codes) -> str:
    """Return the string of code points, row after row."""
    return codes.astype("<u4").tobytes().decode("utf-32-le")


def lines(codes: Codes, index: NDArray[np.integer], styles: Sequence[Style]) -> list[Line]:
    """Merge the cells of each row, u4[rows, columns] code points and as many style numbers, into runs."""
    rows, columns = codes.shape
    if not columns:
        return [[] for _ in range(rows)]
    text = text_of(codes)
    result: list[Line] = []
    changes = index[:, 1:] != index[:, :-1]
    for y, change in enumerate(changes.any(axis=1).tolist()):
        row = text[y * columns : (y + 1) * columns]
        if change:
            of = index[y].tolist()
            cuts = (np.flatnonzero(changes[y]) + 1).tolist()
            result.append([(row[a:b], styles[of[a]]) for a, b in pairwise([0, *cuts, columns])])
        else:
            result.append([(row, styles[int(index[y, 0])])])
    return result


def area(values: ArrayLike, rows: int, *, glyphs: str = "braille") -> Codes:
    """Return a filled area u4[rows, columns], top row first, from heights 0..1 (nan: nothing).

    With ``glyphs="braille"`` two values make a column (4 dots a row), else one value a column (8 or so steps a row).
    """
    heights = np.nan_to_num(np.clip(np.asarray(values, float), 0, 1))
    if glyphs != "braille":
        return bars(heights, rows, glyphs=glyphs)
    heights = heights[: len(heights) // 2 * 2]
    dots = np.ceil(heights * rows * 4 - 1e-9).astype(int)
    floor = np.arange(rows)[::-1, None] * 4
    fill = np.clip(dots[None, :] - floor, 0, 4)
    pattern = _LEFT[fill[:, 0::2]] | _RIGHT[fill[:, 1::2]]
    return np.where(pattern == 0, _SPACE, pattern + 0x2800).astype(np.uint32)


def trace(values: ArrayLike, rows: int) -> Codes:
    """Return a thin braille line u4[rows, columns] through heights 0..1, two values a column; 0 where it is not."""
    heights = np.asarray(values, float)
    heights = heights[: len(heights) // 2 * 2]
    finite = np.isfinite(heights)
    height = np.clip(np.nan_to_num(heights) * rows * 4, 0, rows * 4 - 1).astype(int)
    codes = np.zeros((rows, len(heights) // 2), np.uint32)
    column = np.arange(len(heights)) // 2
    row = rows - 1 - height // 4
    dot = np.where(np.arange(len(heights)) % 2 == 0, _LEFT_DOT[height % 4], _RIGHT_DOT[height % 4])
    np.bitwise_or.at(codes, (row[finite], column[finite]), dot[finite])
    return np.where(codes == 0, 0, codes + 0x2800).astype(np.uint32)


def bars(values: ArrayLike, rows: int, *, glyphs: str = VERTICAL) -> Codes:
    """Return vertical bars u4[rows, columns] from heights 0..1. A height above zero always leaves a trace."""
    steps = len(glyphs) - 1
    heights = np.nan_to_num(np.clip(np.asarray(values, float), 0, 1))
    eighths = np.round(heights * rows * steps).astype(int)
    eighths = np.where((heights > 0) & (eighths == 0), 1, eighths)
    fill = np.clip(eighths[None, :] - np.arange(rows)[::-1, None] * steps, 0, steps)
    table = np.array([ord(c) for c in glyphs], np.uint32)
    return table[fill]


def gauge(fraction: float, width: int, *, ascii_only: bool = False) -> str:
    """Return a horizontal bar of exactly ``width`` cells."""
    fraction = min(1.0, max(0.0, fraction if fraction == fraction else 0.0))
    if ascii_only:
        return ("#" * round(fraction * width)).ljust(width)
    eighths = round(fraction * width * 8)
    bar = "█" * (eighths // 8) + (HORIZONTAL[eighths % 8] if eighths % 8 else "")
    return bar.ljust(width)


def spark(levels: Sequence[int], width: int, *, ascii_only: bool = False) -> str:
    """Return a small trend of exactly ``width`` cells from levels 0..8, newest at the right."""
    # The full block is not used: rows of a table would melt together.
    glyphs = ASCII_VERTICAL if ascii_only else " ▁▂▃▄▄▅▆▇"
    return "".join(glyphs[min(8, max(0, int(v)))] for v in levels[-width:]).rjust(width)


def quantise(share: ArrayLike) -> Levels:
    """Convert shares 0..1 to levels: 0 nothing touched, 1..9 warmer and warmer, ``NOTHING`` for nan.

    The square root keeps sparse touches visible: a single page in a row of hundreds is the interesting one.
    """
    values = np.asarray(share, float)
    level = np.ceil(np.sqrt(np.clip(np.nan_to_num(values), 0, 1)) * LEVELS - 1e-9)
    return np.where(np.isfinite(values), level, NOTHING).astype(np.uint8)


def bin_samples(
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    values: NDArray[np.float64],
    first: int,
    width: float,
    count: int,
) -> NDArray[np.float64]:
    """Return values of windows ``(start, end]`` on a grid of time bins: the largest of each bin, nan in an empty one.

    A bin narrower than a window takes the window it lies in, so a slow sampler draws steps and not a comb, while a
    real gap stays open. Times are relative to the grid's origin.

    Args:
        start: f8[n], rising.
        end: f8[n], rising.
        values: f8[series, n], nan where nothing is known.
        first: number of the first bin.
        width: of a bin, in the unit of the times.
        count: of bins.

    Returns:
        f8[series, count].
    """
    out = np.full((len(values), count), np.nan)
    finite = np.isfinite(values)
    if not finite.all():
        for row, there, series in zip(out, finite, values, strict=True):
            if there.any():
                row[:] = bin_samples(start[there], end[there], series[None, there], first, width, count)[0]
        return out
    if not len(end):
        return out
    centre = (first + np.arange(count) + 0.5) * width
    inside = np.searchsorted(end, centre, side="left")
    inside_ok = inside < len(end)
    window = np.where(inside_ok, inside, 0)
    # What lies between two windows is the pause of the target, not a gap: allow for a quarter of a window.
    slack = 0.25 * median(end - start)
    covered = inside_ok & (start[window] - slack <= centre)
    out[:, covered] = values[:, window[covered]]
    bins = np.ceil(end / width - 1e-9).astype(np.int64) - 1 - first
    low, high = np.searchsorted(bins, (0, count)).tolist()
    if low < high:
        bins = bins[low:high]
        starts = np.flatnonzero(np.diff(bins, prepend=-1))
        out[:, bins[starts]] = np.maximum.reduceat(values[:, low:high], starts, axis=1)
    return out


def half_blocks(levels: Levels, pairs: PairStyles) -> list[Line]:
    """Pixel rows two to a cell: ``▀`` with the upper level in front of the lower one. An odd last row is doubled."""
    if len(levels) % 2:
        levels = np.vstack([levels, levels[-1:]])
    upper, lower = levels[0::2].astype(np.int64), levels[1::2].astype(np.int64)
    pair = upper * 256 + lower
    lines: list[Line] = []
    changes = pair[:, 1:] != pair[:, :-1]
    for row, change in zip(pair, changes, strict=True):
        cuts = (np.flatnonzero(change) + 1).tolist()
        of = row.tolist()
        # Equal halves are a space: one byte where ▀ is three.
        lines.append(
            [
                ((" " if of[a] // 256 == of[a] % 256 else "▀") * (b - a), pairs[of[a]])
                for a, b in pairwise([0, *cuts, len(of)])
                if b > a
            ]
        )
    return lines


def shade_cells(levels: Levels, glyphs: str, style: Style) -> list[Line]:
    """Return the same picture without colour: one glyph a cell, darker for more.

    The hotter of the two pixels counts.
    """
    if len(levels) % 2:
        levels = np.vstack([levels, levels[-1:]])
    warmth = np.where(levels == NOTHING, 0, levels).astype(int)
    cell = np.maximum(warmth[0::2], warmth[1::2])
    table = np.array([ord(c) for c in glyphs], np.uint32)
    step = np.ceil(cell * (len(glyphs) - 1) / LEVELS).astype(int)
    return [[(text_of(row), style)] for row in table[step]]


class PairStyles(dict[int, Style]):
    """Style of a half-block cell by ``256 * upper + lower``, created on first use."""

    def __init__(self, colors: dict[int, int]) -> None:
        super().__init__()
        self._colors = colors

    def __missing__(self, pair: int) -> Style:
        upper, lower = self._colors[pair // 256], self._colors[pair % 256]
        style = Style(color=f"color({upper})", bgcolor=f"color({lower})")
        self[pair] = style
        return style


def nice_ceiling(value: float, *, headroom: float = 1.0) -> float:
    """Return a round number of bytes at or above a value: 1, 1.5, 2, 3, 4, 6 or 8 times a power of two, or a step."""
    value = max(value * headroom, 1.0)
    power = 2.0 ** np.floor(np.log2(value))
    for factor in (1.0, 1.25, 1.5, 1.75, 2.0):
        if power * factor >= value:
            return float(power * factor)
    return float(power * 2)
