"""A picture of few colours as a PNG (RFC 2083): the one raster image in a figure needs no imaging library."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Color = tuple[int, int, int]


def encode(pixels: NDArray[np.uint8], palette: Sequence[Color]) -> bytes:
    """Return a palette PNG of u1[height, width]; colour 0 is transparent. Raises ValueError for an empty picture."""
    height, width = pixels.shape
    if not height or not width:
        raise ValueError("a picture needs at least one pixel")
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    rows = np.zeros((height, width + 1), np.uint8)  # every row begins with its filter: none
    rows[:, 1:] = pixels
    parts = (
        (b"IHDR", head),
        (b"PLTE", bytes(value for color in palette for value in color)),
        (b"tRNS", b"\0"),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def ramp(anchors: Sequence[Color], count: int) -> list[Color]:
    """Return ``count`` colours from the first anchor to the last."""
    positions = np.linspace(0, len(anchors) - 1, count)
    channels = [np.interp(positions, np.arange(len(anchors)), [a[i] for a in anchors]) for i in range(3)]
    return [(round(r), round(g), round(b)) for r, g, b in zip(*channels, strict=True)]
