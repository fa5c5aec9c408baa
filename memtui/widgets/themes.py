"""Themes: the same roles in other colours. Every one is made for 256 colours, for 16, and for none.

Colours are indices of the xterm palette (16..255, which terminals leave alone). Hot is what stands out most from the
ground, and the ten heat levels rise evenly away from it.
"""

from __future__ import annotations

from dataclasses import dataclass

Role = tuple[int, int | None, str]  # foreground, background (None: the ground), attributes


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours by role. ``heat``: level 0 is mapped but untouched memory, 9 the hottest."""

    name: str
    ground: int
    heat: tuple[int, ...]
    roles: dict[str, Role]
    heat_16: tuple[str, ...]
    roles_16: dict[str, str]


_DARK_16 = {
    "border": "bright_black", "title": "default", "text": "default", "dim": "bright_black", "faint": "bright_black",
    "bright": "bold", "key": "yellow", "live": "green", "paused": "cyan", "ended": "default", "warning": "yellow",
    "rss": "blue", "cool": "blue", "cursor": "bold", "focus": "cyan", "bar": "yellow", "selected": "reverse",
    "selected_dim": "reverse", "gap": "bright_black",
}  # fmt: skip

DARK = Theme(
    "dark",
    233,
    (235, 52, 88, 124, 130, 166, 208, 214, 221, 229),  # embers: dark red to pale yellow
    {
        "border": (239, None, ""), "title": (252, None, ""), "text": (250, None, ""), "dim": (243, None, ""),
        "faint": (238, None, ""), "bright": (255, None, "bold"), "key": (180, None, ""), "live": (114, None, ""),
        "paused": (110, None, ""), "ended": (247, None, ""), "warning": (215, None, ""), "rss": (67, None, ""),
        "cool": (67, None, ""), "cursor": (255, None, ""), "focus": (117, None, ""), "bar": (173, None, ""),
        "selected": (255, 237, ""), "selected_dim": (247, 237, ""), "gap": (240, None, ""),
    },
    ("bright_black", *("red",) * 4, *("yellow",) * 5),
    _DARK_16,
)  # fmt: skip

LIGHT = Theme(
    "light",
    255,
    (254, 223, 216, 215, 209, 202, 166, 160, 124, 88),  # sand to dark red
    {
        "border": (248, None, ""), "title": (235, None, ""), "text": (238, None, ""), "dim": (243, None, ""),
        "faint": (250, None, ""), "bright": (16, None, "bold"), "key": (94, None, ""), "live": (22, None, ""),
        "paused": (25, None, ""), "ended": (240, None, ""), "warning": (124, None, ""), "rss": (31, None, ""),
        "cool": (31, None, ""), "cursor": (16, None, ""), "focus": (20, None, ""), "bar": (130, None, ""),
        "selected": (16, 251, ""), "selected_dim": (239, 251, ""), "gap": (246, None, ""),
    },
    ("bright_black", *("magenta",) * 4, *("red",) * 5),
    _DARK_16 | {"key": "blue", "live": "green", "paused": "blue", "warning": "red", "focus": "blue", "bar": "red"},
)  # fmt: skip

CONTRAST = Theme(
    "high-contrast",
    16,
    (234, 52, 88, 124, 160, 202, 214, 220, 227, 231),
    {
        "border": (252, None, ""), "title": (231, None, "bold"), "text": (231, None, ""), "dim": (252, None, ""),
        "faint": (246, None, ""), "bright": (231, None, "bold"), "key": (226, None, "bold"), "live": (46, None, "bold"),
        "paused": (51, None, "bold"), "ended": (231, None, ""), "warning": (214, None, "bold"), "rss": (51, None, ""),
        "cool": (51, None, ""), "cursor": (231, None, "bold"), "focus": (51, None, "bold"), "bar": (226, None, ""),
        "selected": (16, 231, "bold"), "selected_dim": (16, 231, ""), "gap": (250, None, ""),
    },
    ("default", *("red",) * 4, *("bright_yellow",) * 5),
    {
        "border": "default", "title": "bold", "text": "default", "dim": "default", "faint": "default", "bright": "bold",
        "key": "bold bright_yellow", "live": "bold bright_green", "paused": "bold bright_cyan", "ended": "bold",
        "warning": "bold bright_yellow", "rss": "bright_cyan", "cool": "bright_cyan", "cursor": "bold",
        "focus": "bold bright_cyan", "bar": "bright_yellow", "selected": "bold reverse", "selected_dim": "reverse",
        "gap": "default",
    },
)  # fmt: skip

# A new one needs its name in core/options.py, and a rule in tui/memtui.tcss.
THEMES = {theme.name: theme for theme in (DARK, LIGHT, CONTRAST)}
WITHOUT_COLOUR = {"bright": "bold", "selected": "reverse", "selected_dim": "reverse", "live": "bold", "paused": "bold",
                  "focus": "bold"}  # fmt: skip
