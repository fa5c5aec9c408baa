"""How the screen is drawn: the styles of a theme in as many colours as there are, and the glyphs a terminal has.

The styles are designed for 256 colours: a terminal over SSH usually has no more, and more would only cost bytes.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from functools import cache, lru_cache

from rich.cells import cell_len
from rich.style import Style

from memtui.widgets import raster
from memtui.widgets.themes import THEMES, WITHOUT_COLOUR, Theme


@dataclass(frozen=True)
class DrawStyle:
    """Styles by role, and glyphs. ``color`` is "256", "16" or "none", ``theme`` a name of ``THEMES``."""

    color: str = "256"
    ascii_only: bool = False
    theme: str = "dark"
    styles: dict[str, Style] = field(init=False, repr=False, compare=False)
    pairs: raster.PairStyles = field(init=False, repr=False, compare=False)
    heat: tuple[Style, ...] = field(init=False, repr=False, compare=False)
    focus_on_heat: tuple[Style, ...] = field(init=False, repr=False, compare=False)  # a line over a filled area

    def __post_init__(self) -> None:
        theme = THEMES[self.theme]
        styles = {role: self._style(theme, role) for role in theme.roles}
        levels = dict(enumerate(theme.heat)) | {raster.NOTHING: theme.ground}
        object.__setattr__(self, "styles", styles)
        object.__setattr__(self, "pairs", raster.PairStyles(levels))
        if self.color == "256":
            heat = tuple(Style(color=f"color({c})", bgcolor=f"color({theme.ground})") for c in theme.heat)
        elif self.color == "16":
            heat = tuple(Style(color=name) for name in theme.heat_16)
        else:
            heat = (Style(),) * len(theme.heat)
        object.__setattr__(self, "heat", heat)
        line = styles["focus"]
        if self.half_blocks:
            line_on = tuple(line + Style(bgcolor=style.color) for style in heat)
        else:
            line_on = (line,) * len(heat)
        object.__setattr__(self, "focus_on_heat", line_on)

    def _style(self, theme: Theme, role: str) -> Style:
        if self.color == "256":
            front, back, attributes = theme.roles[role]
            ground = f"color({theme.ground if back is None else back})"
            return Style(color=f"color({front})", bgcolor=ground, bold="bold" in attributes or None)
        if self.color == "16":
            return Style.parse(theme.roles_16[role])
        return Style.parse(WITHOUT_COLOUR.get(role, ""))

    def __getitem__(self, role: str) -> Style:
        return self.styles[role]

    @property
    def half_blocks(self) -> bool:
        """Return whether a cell can carry two colours."""
        return self.color == "256" and not self.ascii_only

    def displayable(self, text: str) -> str:
        """Return a text in glyphs that this terminal has, one cell for one cell; the text may come from a program."""
        if not self.ascii_only or text.isascii():
            return text
        text = text.replace(" · ", " | ").translate(_ASCII)
        return text if text.isascii() else "".join(map(_ascii, text))


_ASCII = str.maketrans(
    {
        "─": "-", "│": "|", "┌": "+", "┐": "+", "└": "+", "┘": "+", "┈": ".", "┄": ".", "·": ".", "…": "~", "●": "*",
        "❚": "|", "■": "#", "▶": ">", "▼": "v", "▲": "^", "━": "=", "╸": "=", "┃": "|", "╵": "'", "┊": ":", "├": "+",
        "┤": "+", "▮": "#", "⏎": ">", "–": "-", "×": "x", "→": ">", "←": "<", "↑": "^", "↓": "v", "║": "|", "▏": "|",
        "▸": ">", "█": "#", "−": "-", "≈": "=", "≥": ">",
    }
)  # fmt: skip


@lru_cache(4096)
def _ascii(char: str) -> str:
    """Return a letter without its accent, or a question mark per cell of a character that has no such letter."""
    base = unicodedata.normalize("NFD", char)[0]
    return base if base.isascii() else "?" * cell_len(char)


@cache
def draw_style(color: str = "256", ascii_only: bool = False, theme: str = "dark") -> DrawStyle:
    """Return the shared ``DrawStyle`` of these options (its styles are cached)."""
    return DrawStyle(color, ascii_only, theme)
