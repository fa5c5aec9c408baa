"""A small SVG writer: only elements for figures, and no element that can carry foreign markup.

Colours are roles. Each is written as a plain attribute, which every program reads, and as a class, so that a page with
a dark ground can give the same figure other colours.
"""

from __future__ import annotations

import base64
import html
import unicodedata
from collections.abc import Iterable, Sequence

from memtui.core.text import printable

COLORS = {
    "ground": "#ffffff",
    "ink": "#1a1a1a",
    "dim": "#5c5c5c",
    "grid": "#dcdcdc",
    "wss": "#b8400e",
    "wss-area": "#f6d3bd",
    "rss": "#2b6291",
    "rss-area": "#cfdfec",
    "bound": "#7a5195",
    "bound-area": "#ddd0e6",
    "estimate": "#1f6f78",
    "mark": "#3d7a4a",
}
COLUMN_PT = 252.0
"""Width of one column of a paper of two: 3.5 inches."""
FONT = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
TEXT_PT, SMALL_PT = 7.0, 5.5
MOST_CHARACTERS = 300  # from each end of a text
# Widths in em of DejaVu Sans, the widest of the fonts named: what fits there fits in Helvetica.
_ODD = dict.fromkeys("iljI.,:;|'", 0.34) | dict.fromkeys("tfr!()[]/ -", 0.4) | dict.fromkeys("mwMW%@…", 0.98)


def escape(text: str) -> str:
    """Return foreign text for markup: visible, and harmless between tags and in quotes."""
    return html.escape(printable(_short(text)), quote=True)


def text_width(text: str, size: float) -> float:
    """Return the approximate width of a text in points, rather too wide than too narrow."""
    return size * sum(_em(char) for char in text)


def _em(char: str) -> float:
    if char in _ODD:
        return _ODD[char]
    if unicodedata.east_asian_width(char) in "WF":
        return 1.0
    return 0.72 if char.isupper() else 0.62


def fit(text: str, width: float, size: float) -> str:
    """Return the text, or its two ends with an ellipsis between them, in ``width`` points."""
    text = printable(_short(text))
    if text_width(text, size) <= width:
        return text
    for length in range(len(text) - 1, 1, -1):
        cut = text[: length // 2] + "…" + text[len(text) - (length - length // 2) :]
        if text_width(cut, size) <= width:
            return cut
    return "…"


def wrap(text: str, width: float, size: float, lines: int) -> list[str]:
    """Return the text in at most ``lines`` lines of ``width`` points; what is left over ends in an ellipsis."""
    out: list[str] = []
    line = ""
    pieces = printable(_short(text)).split(" ")
    for number, word in enumerate(pieces):
        longer = f"{line} {word}" if line else word
        if text_width(longer, size) <= width:
            line = longer
            continue
        if len(out) == lines - 1:
            return [*out, fit(" ".join((longer, *pieces[number + 1 :])), width, size)]
        if line:
            out.append(line)
        line = fit(word, width, size)
    return [*out, line] if line else out


def whole_lines(text: str, width: float, size: float) -> list[str]:
    """Return a text in as many lines of ``width`` points as it takes; a word that is wider is divided, not cut.

    Only of a text that no figure has room for the middle is left out.
    """
    lines: list[str] = []
    line = ""
    for word in printable(_short(text)).split():
        if line and text_width(f"{line} {word}", size) <= width:
            line = f"{line} {word}"
            continue
        if line:
            lines.append(line)
        line = ""
        for char in word:
            if line and text_width(line + char, size) > width:
                lines.append(line)
                line = ""
            line += char
    return [*lines, line] if line else lines


def _short(text: str) -> str:
    """Return both ends of a text that no figure has room for: a foreign text may have megabytes."""
    return text if len(text) <= 2 * MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…{text[-MOST_CHARACTERS:]}"


def number(value: float) -> str:
    """Return a coordinate: hundredths of a point are finer than any printer."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value else "0"


class Drawing:
    """A picture of ``width`` x ``height`` points, drawn from the back to the front."""

    def __init__(self, width: float, height: float, title: str, description: str) -> None:
        self.width, self.height = width, height
        self.title, self.description = title, description
        self._parts: list[str] = []

    def rect(self, x: float, y: float, width: float, height: float, fill: str, opacity: float = 1.0) -> None:
        """Draw a filled rectangle."""
        box = _attributes(x=x, y=y, width=max(width, 0.0), height=max(height, 0.0))
        faint = f' fill-opacity="{number(opacity)}"' if opacity < 1 else ""
        self._parts.append(f"<rect {box} {_role('fill', fill)}{faint}/>")

    def line(
        self, x1: float, y1: float, x2: float, y2: float, stroke: str = "ink", width: float = 0.5, dash: str = ""
    ) -> None:
        """Draw a straight line."""
        ends = _attributes(x1=x1, y1=y1, x2=x2, y2=y2)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(f'<line {ends} {_role("stroke", stroke)} stroke-width="{number(width)}"{dashes}/>')

    def polyline(self, points: Iterable[Sequence[float]], stroke: str, width: float = 0.8, dash: str = "") -> None:
        """Draw an open line through points."""
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<path d="{_path(points)}" fill="none" {_role("stroke", stroke)} stroke-width="{number(width)}"'
            f' stroke-linejoin="round"{dashes}/>'
        )

    def polygon(self, points: Iterable[Sequence[float]], fill: str) -> None:
        """Draw a filled area without an edge."""
        self._parts.append(f'<path d="{_path(points)}Z" {_role("fill", fill)}/>')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = TEXT_PT,
        anchor: str = "start",
        fill: str = "ink",
        upright: bool = False,
    ) -> None:
        """Write one line of foreign or own text; ``upright`` is read from the bottom to the top."""
        turn = f' transform="rotate(-90 {number(x)} {number(y)})"' if upright else ""
        position = f'{_attributes(x=x, y=y)} font-size="{number(size)}" text-anchor="{anchor}"'
        self._parts.append(f"<text {position} {_role('fill', fill)}{turn}>{escape(text)}</text>")

    def image(self, x: float, y: float, width: float, height: float, png: bytes) -> None:
        """Place a PNG inside the file, stretched without smoothing."""
        data = base64.b64encode(png).decode()
        self._parts.append(
            f"<image {_attributes(x=x, y=y, width=width, height=height)} "
            f'preserveAspectRatio="none" image-rendering="pixelated" class="map" '
            f'xlink:href="data:image/png;base64,{data}"/>'
        )

    def markup(self) -> str:
        """Return the ``svg`` element."""
        size = f'width="{number(self.width)}pt" height="{number(self.height)}pt"'
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" version="1.1" '
            f'{size} viewBox="0 0 {number(self.width)} {number(self.height)}" font-family="{FONT}" role="img">\n'
            f"<title>{escape(self.title)}</title>\n<desc>{escape(self.description)}</desc>\n"
            f'<rect width="100%" height="100%" {_role("fill", "ground")}/>\n' + "\n".join(self._parts) + "\n</svg>\n"
        )

    def document(self) -> str:
        """Return a file of its own."""
        return '<?xml version="1.0" encoding="UTF-8"?>\n' + self.markup()


def _role(attribute: str, role: str) -> str:
    return f'{attribute}="{COLORS[role]}" class="{attribute}-{role}"'


def _attributes(**values: float) -> str:
    return " ".join(f'{name}="{number(value)}"' for name, value in values.items())


def _path(points: Iterable[Sequence[float]]) -> str:
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
