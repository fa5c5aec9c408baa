"""How kinds of tensors are shown: an order, a letter and a colour for each, the same in every widget."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from rich.color import Color, ColorSystem
from rich.color_triplet import ColorTriplet
from rich.style import Style

from memtui.analysis.allocation_trace import CATEGORIES
from memtui.widgets import raster, text
from memtui.widgets.panel import line_width
from memtui.widgets.raster import Line
from memtui.widgets.style import DrawStyle
from memtui.widgets.themes import THEMES

# From the bottom up: long-lived kinds, then short-lived ones. Letters stand for them where there are no colours.
ORDER = ("weights", "buffers", "optimiser state", "inputs", "gradients", "activations", "temporaries", "unknown")
LETTERS = dict(zip(ORDER, "WBOIGATU", strict=True))
INDEX = [CATEGORIES.index(name) for name in ORDER]
_DARK = 110  # of 255: what was hardly touched has no brighter part
SHIFT = raster.LEVELS + 1  # a level of the kind with number n is n + 1 times this further


def by_letter(draw_style: DrawStyle) -> bool:
    """Return whether kinds are shown by letters, for lack of colours."""
    return draw_style.ascii_only or draw_style.color == "none"


def kind_styles(draw_style: DrawStyle) -> list[Style]:
    """Return styles of the kinds in their ``ORDER``: cool for long-lived kinds, warm for short-lived ones."""
    cool = [draw_style["rss"], draw_style["faint"], draw_style["focus"], draw_style["key"]]
    return [*cool, draw_style["live"], draw_style.heat[6], draw_style.heat[3], draw_style["dim"]]


@cache
def number_styles(draw_style: DrawStyle) -> tuple[Style, ...]:
    """Return the styles by number of the category, for letters and thin lines: none as faint as the ground."""
    styles = dict(zip(ORDER, kind_styles(draw_style), strict=True)) | {"buffers": draw_style["text"]}
    return tuple(styles[name] for name in CATEGORIES)


@cache
def pairs(draw_style: DrawStyle) -> raster.PairStyles:
    """Return styles of half blocks by shifted level: the hue of a kind, brighter where more was accessed."""
    theme = THEMES[draw_style.theme]
    colors = dict(enumerate(theme.heat)) | {raster.NOTHING: theme.ground}
    for number, style in enumerate(number_styles(draw_style)):
        hue = style.color.number if style.color is not None and style.color.number is not None else theme.heat[-1]
        colors[(number + 1) * SHIFT] = theme.heat[0]  # memory without accesses looks the same for all kinds
        for level, color in enumerate(_ramp(hue, theme.ground), 1):
            colors[(number + 1) * SHIFT + level] = color
    return raster.PairStyles(colors)


def _ramp(hue: int, ground: int) -> list[int]:
    """Return colours of the levels above 0: a pale or dark shade of a hue, the hue itself, and one beyond it."""
    under, high = (Color.from_ansi(number).get_truecolor() for number in (ground, hue))
    if sum(under) < 384:
        # Darker by its weakest part: mixed with the ground all hues are the same grey in a palette of few dark ones.
        pure = ColorTriplet(*(part - round(0.8 * min(high)) for part in high))
        low = _mixed(ColorTriplet(0, 0, 0), pure, min(1.0, _DARK / max(*pure, 1)))
        end = ColorTriplet(255, 255, 255)
    else:
        low, end = _mixed(under, high, 0.3), ColorTriplet(0, 0, 0)
    steps = [_mixed(low, high, n / (raster.LEVELS - 2)) for n in range(raster.LEVELS - 1)]
    return [*map(_nearest, steps), _nearest(_mixed(high, end, 0.3))]


def _mixed(start: ColorTriplet, end: ColorTriplet, share: float) -> ColorTriplet:
    return ColorTriplet(*(round(a + (b - a) * share) for a, b in zip(start, end, strict=True)))


def _nearest(color: ColorTriplet) -> int:
    return Color.from_triplet(color).downgrade(ColorSystem.EIGHT_BIT).number or 0


def legend(usage_bytes: Sequence[int], draw_style: DrawStyle, room: int) -> Line:
    """Return the bytes of each kind, by ``CATEGORIES``, as a legend.

    Where room is short sizes are left out, then the small kinds.
    """
    usage = [int(usage_bytes[index]) for index in INDEX]
    colours = kind_styles(draw_style)
    there = [(index, name) for index, name in enumerate(ORDER) if usage[index]]
    sizes = True
    while there:
        line: Line = []
        for index, name in there:
            symbol = LETTERS[name] if by_letter(draw_style) else "■"
            line += [(f"  {symbol} ", colours[index]), (name, draw_style["dim"])]
            line += [(" " + text.size(usage[index]), draw_style["text"])] * sizes
        if line_width(line) <= room:
            return line
        if sizes:
            sizes = False
        else:
            there.remove(min(there, key=lambda part: usage[part[0]]))
    return []
