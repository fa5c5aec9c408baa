"""Kinds of tensors on the screen: their order, colours and letters, the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence

from rich.style import Style

from memtui.analysis.step_trace import CATEGORIES
from memtui.widgets import text
from memtui.widgets.look import Look
from memtui.widgets.panel import line_width
from memtui.widgets.raster import Line

# From the bottom up: what lasts, then what comes and goes. Letters where there are no colours to tell them apart.
ORDER = ("weights", "buffers", "optimiser state", "inputs", "gradients", "activations", "temporaries", "unknown")
LETTERS = dict(zip(ORDER, "WBOIGATU", strict=True))
INDEX = [CATEGORIES.index(name) for name in ORDER]


def by_letter(look: Look) -> bool:
    """Whether colours cannot tell them apart."""
    return look.ascii_only or look.color == "none"


def styles(look: Look) -> list[Style]:
    """In ``ORDER``: cool what lasts, warm what comes and goes."""
    cool = [look["rss"], look["faint"], look["focus"], look["key"]]
    return [*cool, look["live"], look.heat[6], look.heat[3], look["dim"]]


def legend(held_bytes: Sequence[int], look: Look, room: int) -> Line:
    """What is held of each kind, by ``CATEGORIES``; where room is short without sizes, then without the small ones."""
    held = [int(held_bytes[place]) for place in INDEX]
    colours = styles(look)
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
