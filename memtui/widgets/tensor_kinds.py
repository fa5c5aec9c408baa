"""How kinds of tensors are told apart: an order, a letter and a colour for each, the same wherever they are drawn."""

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

# From the bottom up: what lasts, then what comes and goes. Letters where there are no colours to tell them apart.
ORDER = ("weights", "buffers", "optimiser state", "inputs", "gradients", "activations", "temporaries", "unknown")
LETTERS = dict(zip(ORDER, "WBOIGATU", strict=True))
INDEX = [CATEGORIES.index(name) for name in ORDER]
_DARK = 110  # of 255: what was hardly touched has no brighter part
SHIFT = raster.LEVELS + 1  # a level of the kind with number n is n + 1 times this further


def by_letter(look: DrawStyle) -> bool:
    """Return whether colours cannot tell kinds apart."""
    return look.ascii_only or look.color == "none"


def kind_styles(look: DrawStyle) -> list[Style]:
    """Of the kinds in their ``ORDER``: cool what lasts, warm what comes and goes."""
    cool = [look["rss"], look["faint"], look["focus"], look["key"]]
    return [*cool, look["live"], look.heat[6], look.heat[3], look["dim"]]


@cache
def number_styles(look: DrawStyle) -> tuple[Style, ...]:
    """Return the same by number of the category, for thin marks and letters: none of them as faint as the ground."""
    styles = dict(zip(ORDER, kind_styles(look), strict=True)) | {"buffers": look["text"]}
    return tuple(styles[name] for name in CATEGORIES)


@cache
def pairs(look: DrawStyle) -> raster.PairStyles:
    """Styles of half blocks by shifted level: the hue of a kind, brighter where more was touched."""
    theme = THEMES[look.theme]
    colors = dict(enumerate(theme.heat)) | {raster.NOTHING: theme.ground}
    for number, style in enumerate(number_styles(look)):
        hue = style.color.number if style.color is not None and style.color.number is not None else theme.heat[-1]
        colors[(number + 1) * SHIFT] = theme.heat[0]  # not touched is not touched, whatever it is
        for level, color in enumerate(_ramp(hue, theme.ground), 1):
            colors[(number + 1) * SHIFT + level] = color
    return raster.PairStyles(colors)


def _ramp(hue: int, ground: int) -> list[int]:
    """Colours of the levels above 0: a pale or dark shade of a hue, the hue itself, and a last one beyond it."""
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


def _mixed(one: ColorTriplet, other: ColorTriplet, share: float) -> ColorTriplet:
    return ColorTriplet(*(round(a + (b - a) * share) for a, b in zip(one, other, strict=True)))


def _nearest(color: ColorTriplet) -> int:
    return Color.from_triplet(color).downgrade(ColorSystem.EIGHT_BIT).number or 0


def legend(held_bytes: Sequence[int], look: DrawStyle, room: int) -> Line:
    """Return what is held of each kind, by ``CATEGORIES``.

    Where room is short sizes are left out, then the small ones.
    """
    held = [int(held_bytes[place]) for place in INDEX]
    colours = kind_styles(look)
    there = [(place, name) for place, name in enumerate(ORDER) if held[place]]
    sizes = True
    while there:
        line: Line = []
        for place, name in there:
            mark = LETTERS[name] if by_letter(look) else "■"
            line += [(f"  {mark} ", colours[place]), (name, look["dim"])]
            line += [(" " + text.size(held[place]), look["text"])] * sizes
        if line_width(line) <= room:
            return line
        if sizes:
            sizes = False
        else:
            there.remove(min(there, key=lambda part: held[part[0]]))
    return []
