"""Where tensors lie, as rows: everything in one blob."""

from __future__ import annotations

import json
import struct
import zlib

import numpy as np

from memtui.analysis.tensor_pages import TensorMap
from memtui.core.compression import inflate
from memtui.core.samples import TensorRanges
from memtui.core.text import storable
from memtui.session.validation import parse_json

MAX_TENSORS = 1 << 20
MAX_NAMES_BYTES = 64 << 20
_HEAD = struct.Struct("<qq")  # tensors, bytes of the names


def ranges_row(number: int, message: TensorRanges) -> tuple[object, ...]:
    """A row of the table. Raises ValueError: what was told cannot be."""
    if len(message.names) > MAX_TENSORS:
        raise ValueError(f"more than {MAX_TENSORS} tensors")
    return number, message.pid, message.t_ns, encode_map(TensorMap.of(message.columns, message.names, message.parts))


def encode_map(tensors: TensorMap) -> bytes:
    """Addresses as differences, which are small; zlib."""
    columns = tensors.columns
    columns[0] = np.diff(columns[0], prepend=0)
    told = {"layers": list(map(storable, tensors.names)), "parts": list(map(storable, tensors.parts))}
    names = json.dumps(told).encode()
    return zlib.compress(_HEAD.pack(len(tensors.names), len(names)) + names + columns.astype("<i8").tobytes(), 1)


def decode_map(data: bytes) -> TensorMap:
    """Inverse of ``encode_map``. Raises ValueError on damaged data."""
    raw = inflate(data, _HEAD.size + MAX_NAMES_BYTES + 24 * MAX_TENSORS)
    if len(raw) < _HEAD.size:
        raise ValueError("is too short")
    count, names_bytes = _HEAD.unpack_from(raw)
    if not 0 <= count <= MAX_TENSORS or not 0 <= names_bytes <= MAX_NAMES_BYTES:
        raise ValueError("has a damaged head")
    if len(raw) != _HEAD.size + names_bytes + 24 * count:
        raise ValueError("has another length than it says")
    names = parse_json(raw[_HEAD.size : _HEAD.size + names_bytes].decode())
    layers, parts = (names, []) if isinstance(names, list) else _lists(names)  # formats before 9 know layers only
    columns = np.frombuffer(raw, "<i8", 3 * count, _HEAD.size + names_bytes).astype(np.int64).reshape(3, count)
    columns[0] = np.cumsum(columns[0])
    return TensorMap.of(columns, layers, parts)


def _lists(names: object) -> tuple[list[str], list[str]]:
    layers, parts = (names.get(key) for key in ("layers", "parts")) if isinstance(names, dict) else (None, None)
    if not isinstance(layers, list) or not isinstance(parts, list):
        raise ValueError("its names are no lists")
    return layers, parts
