"""Decompression of data that may come from anybody: a small blob must not fill much memory."""

from __future__ import annotations

import zlib


def inflate(data: bytes, limit_bytes: int) -> bytes:
    """Return a whole zlib stream.

    Raises ValueError when it is damaged, cut short, followed by more, or above the limit.
    """
    stream = zlib.decompressobj()
    try:
        raw = stream.decompress(data, limit_bytes + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(raw) > limit_bytes:
        raise ValueError(f"unpacks to more than {limit_bytes} bytes")
    if not stream.eof or stream.unused_data:
        raise ValueError("is cut short or followed by something else")
    return raw


def inflate_start(data: bytes, count: int) -> bytes:
    """Return the first ``count`` bytes of a zlib stream, or fewer. Raises ValueError when it is damaged."""
    try:
        return zlib.decompressobj().decompress(data, count)
    except zlib.error as error:
        raise ValueError(str(error)) from error
