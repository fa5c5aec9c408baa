"""Small numpy arrays as blobs: 64-bit integers, zlib level 1. What is decoded may be anybody's: nothing is believed."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.reuse_distance import ReuseSample
from memtui.inflate import inflate

UNKNOWN_BYTES = -1  # of a VMA whose touched bytes the tracker cannot know
MAX_PAIRS = 1 << 20  # VMAs of one process
MAX_DISTANCES = 1 << 21  # distinct reuse distances of one window
_COUNTS = struct.Struct("<qq")
_MAX_BYTES, _MAX_TOUCHES = 1 << 62, 1 << 40  # sums of such numbers stay in 64 bits


def encode_pairs(ids: NDArray[np.int64], values: NDArray[np.int64]) -> bytes:
    """Two i8[n] arrays, the ids rising, as one blob."""
    return zlib.compress(np.stack((np.diff(ids, prepend=0), values)).astype("<i8").tobytes(), 1)


def decode_pairs(data: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Inverse of ``encode_pairs``. Raises ValueError on damaged data."""
    numbers = _rows(inflate(data, MAX_PAIRS * 16), 2)
    steps, values = numbers
    ids = np.cumsum(steps)
    # Steps above 0 whose sum wrapped around would end below 0 somewhere.
    if len(ids) and (
        steps.min() <= 0 or ids.min() <= 0 or ids.max() >= _MAX_BYTES or not _within(values, _MAX_BYTES, UNKNOWN_BYTES)
    ):
        raise ValueError("holds numbers out of range")
    return ids, values


def encode_reuse(reuse: ReuseSample) -> bytes:
    """The exact reuse distances of one window."""
    arrays = np.stack((reuse.upper_bytes, reuse.lower_bytes, reuse.counts)).astype("<i8")
    return zlib.compress(_COUNTS.pack(reuse.first_touches, reuse.first_touch_bytes) + arrays.tobytes(), 1)


def decode_reuse(data: bytes, limit: int = MAX_DISTANCES) -> ReuseSample:
    """Inverse of ``encode_reuse``, of at most ``limit`` distances. Raises ValueError on damaged data."""
    raw = inflate(data, _COUNTS.size + 24 * min(limit, MAX_DISTANCES))
    if len(raw) < _COUNTS.size:
        raise ValueError("is too short")
    first_touches, first_touch_bytes = _COUNTS.unpack_from(raw)
    upper, lower, counts = _rows(raw[_COUNTS.size :], 3)
    if not (
        0 <= first_touches < _MAX_TOUCHES
        and 0 <= first_touch_bytes < _MAX_BYTES
        and _within(upper, _MAX_BYTES)
        and _within(lower, _MAX_BYTES)
        and _within(counts, _MAX_TOUCHES)
        and bool((lower <= upper).all())
    ):
        raise ValueError("holds numbers out of range")
    return ReuseSample(first_touches, first_touch_bytes, upper, lower, counts)


def _rows(raw: bytes, rows: int) -> NDArray[np.int64]:
    if len(raw) % (8 * rows):
        raise ValueError(f"{len(raw)} bytes are not {rows} rows of numbers")
    return np.frombuffer(raw, "<i8").reshape(rows, -1)


def _within(values: NDArray[np.int64], limit: int, least: int = 0) -> bool:
    return not len(values) or bool(values.min() >= least and values.max() < limit)
