"""A line of the screen that creates segments of Textual and Rich only on request.

A heat map that moves on by a column changes thousands of cells a second. Creating a segment for each cell, and escape
codes for each segment, was a third of the CPU time of the whole screen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from memtui.widgets.raster import Line

_tuple = tuple.__new__  # creates a segment in a third of the time that its own constructor takes
_LATER = frozenset(Strip.__slots__)
_codes: dict[ColorSystem, dict[Style, tuple[str, bool]]] = {}


class FastStrip(Strip):
    """A strip that is rarely cut: its segments are created when the strip is cut.

    Args:
        line: text and style of each run, ``width`` cells together.
        width: in cells.
    """

    __slots__ = ("_drawn", "_line")

    def __init__(self, line: Line, width: int) -> None:
        self._line, self._drawn = line, ""
        self._cell_length = width

    def __getattr__(self, name: str) -> Any:
        """Initialise the attributes of a strip on first access."""
        if name not in _LATER:
            raise AttributeError(name)
        super().__init__([_tuple(Segment, (run, style, None)) for run, style in self._line], self._cell_length)
        return getattr(self, name)

    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        """Divide as every strip is divided; the compositor divides all of them, and nearly always at their end."""
        cuts = list(cuts)
        return [self] if cuts == [self._cell_length] else super().divide(cuts)

    def render(self, console: Console) -> str:
        """Return text and escape codes. Codes are reset only where the next ones would leave something of the last."""
        if not self._drawn:
            system = console._color_system or ColorSystem.TRUECOLOR
            codes = _codes.setdefault(system, {})
            out: list[str] = []
            last, last_whole = "", True
            for run, style in self._line:
                if not run:
                    continue
                cached = codes.get(style)
                if cached is None:
                    cached = codes[style] = _code(style, system)
                code, whole = cached
                if code != last:
                    out.append(code if (whole and last_whole) or not last else "\x1b[0m" + code)
                    last, last_whole = code, whole
                out.append(run)
            if last:
                out.append("\x1b[0m")
            self._drawn = "".join(out)
        return self._drawn


def _code(style: Style, system: ColorSystem) -> tuple[str, bool]:
    """Return the escape code of a style, and whether it is nothing but both colours: these replace one another."""
    codes = Strip.render_ansi(style, system)
    whole = style.color is not None and style.bgcolor is not None and not style._attributes
    return f"\x1b[{codes}m" if codes else "", whole
