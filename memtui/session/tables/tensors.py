"""Where tensors lie, as records: everything in one blob; and the classes of layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memtui.analysis.tensor_pages import TensorMap
from memtui.core.text import utf8_safe
from memtui.core.tracer_messages import TensorRanges
from memtui.session.blobs import pack, unpack

MAX_TENSORS = 1 << 20
MAX_NAMES_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class LayerTypesRecord:
    """The classes of a process's layers by name, as JSON."""

    pid: int
    types: str


@dataclass(frozen=True, slots=True)
class TensorRangesRecord:
    """Where the lasting tensors of a process lie from a moment on."""

    id: int
    pid: int
    t_ns: int
    data: bytes


def ranges_record(number: int, message: TensorRanges) -> TensorRangesRecord:
    """Return the record of a message. Raises ValueError for values that are impossible."""
    if len(message.names) > MAX_TENSORS:
        raise ValueError(f"more than {MAX_TENSORS} tensors")
    data = encode_map(TensorMap.of(message.columns, message.names, message.parts))
    return TensorRangesRecord(number, message.pid, message.t_ns, data)


def encode_map(tensors: TensorMap) -> bytes:
    """Return the blob of a map, addresses as differences, which are small."""
    columns = tensors.columns
    columns[0] = np.diff(columns[0], prepend=0)
    names = {"layers": list(map(utf8_safe, tensors.names)), "parts": list(map(utf8_safe, tensors.parts))}
    return pack((len(tensors.names),), names, columns, most_names_bytes=MAX_NAMES_BYTES)


def decode_map(data: bytes) -> TensorMap:
    """Undo ``encode_map``. Raises ValueError on damaged data."""
    most = 3 * MAX_TENSORS
    packed = unpack(data, 1, lambda count: 3 * count, most_names_bytes=MAX_NAMES_BYTES, most_numbers=most)
    names = packed.names
    layers, parts = (names, []) if isinstance(names, list) else _lists(names)  # formats before 9 know layers only
    columns = packed.numbers.reshape(3, packed.counts[0])
    columns[0] = np.cumsum(columns[0])
    return TensorMap.of(columns, layers, parts)


def _lists(names: object) -> tuple[list[str], list[str]]:
    layers, parts = (names.get(key) for key in ("layers", "parts")) if isinstance(names, dict) else (None, None)
    if not isinstance(layers, list) or not isinstance(parts, list):
        raise ValueError("names is not two lists")
    return layers, parts
