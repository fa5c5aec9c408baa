"""Small numpy arrays as blobs: 64-bit integers, zlib level 1."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.reuse_distance import ReuseSample

_COUNTS = struct.Struct("<qq")


def encode_pairs(ids: NDArray[np.int64], values: NDArray[np.int64]) -> bytes:
    """Two i8[n] arrays, the ids rising, as one blob."""
    return zlib.compress(np.stack((np.diff(ids, prepend=0), values)).astype("<i8").tobytes(), 1)


def decode_pairs(data: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Inverse of ``encode_pairs``."""
    steps, values = np.frombuffer(zlib.decompress(data), "<i8").reshape(2, -1)
    return np.cumsum(steps), values


def encode_reuse(reuse: ReuseSample) -> bytes:
    """The exact reuse distances of one window."""
    arrays = np.stack((reuse.upper_bytes, reuse.lower_bytes, reuse.counts)).astype("<i8")
    return zlib.compress(_COUNTS.pack(reuse.first_touches, reuse.first_touch_bytes) + arrays.tobytes(), 1)


def decode_reuse(data: bytes) -> ReuseSample:
    """Inverse of ``encode_reuse``."""
    raw = zlib.decompress(data)
    first_touches, first_touch_bytes = _COUNTS.unpack_from(raw)
    upper, lower, counts = np.frombuffer(raw, "<i8", offset=_COUNTS.size).reshape(3, -1)
    return ReuseSample(first_touches, first_touch_bytes, upper, lower, counts)
