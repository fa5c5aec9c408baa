"""Colours and glyphs of the screen, made for 256 colours first: over SSH there is usually no more than that.

Every colour is an index of the xterm palette (16..255, which terminals leave alone), so the picture is the same with
24-bit colour and costs fewer bytes. Hot is warm everywhere; everything that is not data is grey.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from rich.style import Style

from memtui.widgets import raster

GROUND = 233
_HEAT = (235, 52, 88, 124, 130, 166, 208, 214, 221, 229)  # embers: dark red to pale yellow, rising in brightness
_ROLES_256: dict[str, tuple[int, int, str]] = {
    # role: (foreground, background, attributes)
    "frame": (239, GROUND, ""),
    "title": (252, GROUND, ""),
    "text": (250, GROUND, ""),
    "dim": (243, GROUND, ""),
    "faint": (238, GROUND, ""),
    "bright": (255, GROUND, "bold"),
    "key": (180, GROUND, ""),
    "live": (114, GROUND, ""),
    "paused": (110, GROUND, ""),
    "ended": (247, GROUND, ""),
    "warning": (215, GROUND, ""),
    "rss": (67, GROUND, ""),
    "cool": (67, GROUND, ""),
    "cursor": (255, GROUND, ""),
    "focus": (117, GROUND, ""),
    "bar": (173, GROUND, ""),
    "selected": (255, 237, ""),
    "selected_dim": (247, 237, ""),
    "gap": (240, GROUND, ""),
}
_ROLES_16: dict[str, str] = {
    "frame": "bright_black", "title": "default", "text": "default", "dim": "bright_black", "faint": "bright_black",
    "bright": "bold", "key": "yellow", "live": "green", "paused": "cyan", "ended": "default", "warning": "yellow",
    "rss": "blue", "cool": "blue", "cursor": "bold", "focus": "cyan", "bar": "yellow", "selected": "reverse",
    "selected_dim": "reverse", "gap": "bright_black",
}  # fmt: skip
_ROLES_NONE = {"bright": "bold", "selected": "reverse", "selected_dim": "reverse", "live": "bold", "paused": "bold"}


@dataclass(frozen=True)
class Look:
    """How to draw. ``color`` is "256", "16" or "none"."""

    color: str = "256"
    ascii_only: bool = False
    styles: dict[str, Style] = field(init=False, repr=False, compare=False)
    pairs: raster.PairStyles = field(init=False, repr=False, compare=False)
    heat: tuple[Style, ...] = field(init=False, repr=False, compare=False)
    focus_on_heat: tuple[Style, ...] = field(init=False, repr=False, compare=False)  # a line over a filled area

    def __post_init__(self) -> None:
        styles = {role: self._style(role) for role in _ROLES_256}
        levels = dict(enumerate(_HEAT)) | {raster.NOTHING: GROUND}
        object.__setattr__(self, "styles", styles)
        object.__setattr__(self, "pairs", raster.PairStyles(levels))
        if self.color == "256":
            heat = tuple(Style(color=f"color({c})", bgcolor=f"color({GROUND})") for c in _HEAT)
        elif self.color == "16":
            names = ("bright_black", *("red",) * 4, *("yellow",) * 5)
            heat = tuple(Style(color=name) for name in names)
        else:
            heat = (Style(),) * len(_HEAT)
        object.__setattr__(self, "heat", heat)
        line = styles["focus"]
        if self.half_blocks:
            line_on = tuple(line + Style(bgcolor=style.color) for style in heat)
        else:
            line_on = (line,) * len(heat)
        object.__setattr__(self, "focus_on_heat", line_on)

    def _style(self, role: str) -> Style:
        if self.color == "256":
            front, back, attributes = _ROLES_256[role]
            return Style(color=f"color({front})", bgcolor=f"color({back})", bold="bold" in attributes or None)
        if self.color == "16":
            return Style.parse(_ROLES_16[role])
        return Style.parse(_ROLES_NONE.get(role, ""))

    def __getitem__(self, role: str) -> Style:
        return self.styles[role]

    @property
    def half_blocks(self) -> bool:
        """Whether a cell can carry two colours."""
        return self.color == "256" and not self.ascii_only

    def plain(self, text: str) -> str:
        """The text in glyphs this terminal has (one cell for one cell)."""
        return text.translate(_ASCII) if self.ascii_only else text


_ASCII = str.maketrans(
    {
        "─": "-", "│": "|", "┌": "+", "┐": "+", "└": "+", "┘": "+", "┈": ".", "┄": ".", "·": ",", "…": "~", "●": "*",
        "❚": "|", "■": "#", "▶": ">", "▼": "v", "▲": "^", "━": "=", "╸": "=", "┃": "|", "╵": "'", "┊": ":", "├": "+",
        "┤": "+", "▮": "#", "⏎": ">", "–": "-", "×": "x", "→": ">", "←": "<", "↑": "^", "↓": "v", "║": "|", "▏": "|",
        "▸": ">",
    }
)  # fmt: skip


@cache
def look(color: str = "256", ascii_only: bool = False) -> Look:
    """The one ``Look`` of its kind (its styles are cached)."""
    return Look(color, ascii_only)
