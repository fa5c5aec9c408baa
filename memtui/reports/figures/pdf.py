"""A small PDF writer with the interface of the SVG writer: one page, bars, lines and Helvetica, which PDF has itself.

Characters that Windows-1252 lacks become ``?``: the fonts every reader has know no more.
"""

from __future__ import annotations

import unicodedata

from memtui.core.text import visible
from memtui.reports.figures.svg import COLORS, TEXT_PT, Drawing, number

# Of the characters from space to tilde, in thousandths of the size: Helvetica.afm of Adobe's core fonts.
_WIDTHS = (
    *(278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278),
    *([556] * 10),
    *(278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778),
    *(667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556),
    *(333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556),
    *(556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584),
)


class PdfDrawing(Drawing):
    """Draws what a breakdown needs: ``rect``, ``line`` and ``text``."""

    def rect(self, x: float, y: float, width: float, height: float, fill: str, opacity: float = 1.0) -> None:
        box = (x, self.height - y - height, max(width, 0.0), max(height, 0.0))
        self._parts.append(f"{_color(fill)} rg {_numbers(*box)} re f")

    def line(
        self, x1: float, y1: float, x2: float, y2: float, stroke: str = "ink", width: float = 0.5, dash: str = ""
    ) -> None:
        ends = f"{_numbers(x1, self.height - y1)} m {_numbers(x2, self.height - y2)} l"
        self._parts.append(f"{_color(stroke)} RG {number(width)} w {ends} S")

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = TEXT_PT,
        anchor: str = "start",
        fill: str = "ink",
        upright: bool = False,
    ) -> None:
        raw = _encoded(words)
        x -= {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor] * _width(raw) * size / 1000
        place = _numbers(x, self.height - y)
        self._parts.append(f"BT {_color(fill)} rg /F {number(size)} Tf {place} Td {_literal(raw)} Tj ET")

    def pdf(self) -> bytes:
        """Return the whole file."""
        stream = "\n".join(self._parts).encode("latin-1")
        objects = [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {_numbers(self.width, self.height)}] /Contents 4 0 R "
            "/Resources << /Font << /F 5 0 R >> >> >>".encode(),
            b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
            f"<< /Title {_literal(_encoded(self.title))} /Subject {_literal(_encoded(self.description))} >>".encode(
                "latin-1"
            ),
        ]
        out = bytearray(b"%PDF-1.4\n")
        places = []
        for at, body in enumerate(objects, 1):
            places.append(len(out))
            out += b"%d 0 obj\n%s\nendobj\n" % (at, body)
        table = len(out)
        out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
        out += b"".join(b"%010d 00000 n \n" % place for place in places)
        out += b"trailer\n<< /Size %d /Root 1 0 R /Info 6 0 R >>\n" % (len(objects) + 1)
        out += b"startxref\n%d\n%%%%EOF\n" % table
        return bytes(out)


def _encoded(words: str) -> bytes:
    return unicodedata.normalize("NFC", visible(words)).encode("cp1252", "replace")


def _width(raw: bytes) -> int:
    return sum(_WIDTHS[byte - 32] if 32 <= byte < 127 else 1000 if byte == 0x85 else 556 for byte in raw)


def _literal(raw: bytes) -> str:
    r"""Return a PDF string: brackets and backslashes escaped, bytes beyond ASCII as ``\ooo``."""
    return "(" + "".join(chr(b) if 32 <= b < 127 and b not in b"()\\" else f"\\{b:03o}" for b in raw) + ")"


def _color(role: str) -> str:
    text = COLORS[role]
    return " ".join(number(int(text[at : at + 2], 16) / 255) for at in (1, 3, 5))


def _numbers(*values: float) -> str:
    return " ".join(map(number, values))
