"""One page of PDF with the interface of the SVG writer; matplotlib writes it, with its own font inside."""

from __future__ import annotations

import io
from typing import Any

from memtui.core.text import printable
from memtui.reports.figures.svg import COLORS, TEXT_PT, Drawing

FONT = "DejaVu Sans"  # comes with matplotlib, so that the page is the same on every machine
POINTS_PER_INCH = 72


class PdfDrawing(Drawing):
    """Draws ``rect``, ``line`` and ``text``, in points from the upper left corner."""

    def __init__(self, width: float, height: float, title: str, description: str) -> None:
        from matplotlib.figure import Figure
        from matplotlib.transforms import Affine2D

        super().__init__(width, height, title, description)
        self._figure: Any = Figure(figsize=(width / POINTS_PER_INCH, height / POINTS_PER_INCH))
        inches = Affine2D().scale(1 / POINTS_PER_INCH, -1 / POINTS_PER_INCH).translate(0, height / POINTS_PER_INCH)
        self._points = inches + self._figure.dpi_scale_trans

    def rect(self, x: float, y: float, width: float, height: float, fill: str, opacity: float = 1.0) -> None:
        from matplotlib.patches import Rectangle

        corner, size = (x, y), (max(width, 0.0), max(height, 0.0))
        self._figure.add_artist(
            Rectangle(corner, *size, facecolor=COLORS[fill], alpha=opacity, linewidth=0, transform=self._points)
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, stroke: str = "ink", width: float = 0.5, dash: str = ""
    ) -> None:
        from matplotlib.lines import Line2D

        style: Any = (0, tuple(float(part) for part in dash.split())) if dash else "-"
        self._figure.add_artist(
            Line2D((x1, x2), (y1, y2), color=COLORS[stroke], linewidth=width, linestyle=style, transform=self._points)
        )

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
        self._figure.text(
            x,
            y,
            _in_font(printable(text)),
            transform=self._points,
            fontfamily=FONT,
            fontsize=size,
            color=COLORS[fill],
            ha={"start": "left", "middle": "center", "end": "right"}[anchor],
            va="baseline",
            rotation=90 if upright else 0,
            parse_math=False,  # a name with a dollar sign is a name
        )

    def pdf(self) -> bytes:
        """Return the whole file, the same bytes for the same drawing."""
        import matplotlib

        # The title is text in the file, so control characters in it are escaped there, too.
        metadata = {"Title": printable(self.title), "Subject": printable(self.description)}
        out = io.BytesIO()
        with matplotlib.rc_context({"pdf.fonttype": 42}):  # letters that can be searched and copied
            self._figure.savefig(out, format="pdf", metadata=metadata | {"Creator": None, "CreationDate": None})
        return out.getvalue()


def _in_font(text: str) -> str:
    """Return a text with ``?`` for each character that the font lacks."""
    from matplotlib.font_manager import findfont, get_font

    font = get_font(findfont(FONT))
    return "".join(char if font.get_char_index(ord(char)) else "?" for char in text)
