"""Numbers as blobs: 64-bit integers, zlib level 1; with names as JSON, where they have any.

Blobs may come from anybody: everything that is decoded is checked.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.access_counts import CHUNK_SHIFT, GROUP, MAX_GROUPS, TouchSum
from memtui.analysis.reuse_burst import PartReuse
from memtui.analysis.reuse_distance import ReuseSample
from memtui.core.compression import inflate
from memtui.core.page_set import ADDRESS_BITS
from memtui.core.page_sizes import GIANT_SHIFT, PAGE_SHIFT
from memtui.core.units import size
from memtui.session.validation import parse_json

UNKNOWN_BYTES = -1  # of a VMA whose accessed bytes the tracker cannot measure
MAX_PAIRS = 1 << 20  # VMAs of one process
MAX_DISTANCES = 1 << 21  # distinct reuse distances of one window
NAMELESS_BYTES = 16  # of names in a blob that has none
_COUNTS = struct.Struct("<qq")
# Before the head of reuse distances with parts, since format 13:
_WITH_PARTS = struct.Struct("<q")
_PARTS_MARK = -(1 << 63)
_PART_COUNT, _PART = struct.Struct("<q"), struct.Struct("<qqqddq")  # of a burst, and the head of each
MAX_PART_NS = 10**12
_MAX_WINDOWS = 1 << 12  # of one stored sum: its counts of accesses fit in 32 bits
_MAX_BYTES, _MAX_TOUCHES = 1 << 62, 1 << 40  # sums of such numbers stay in 64 bits


class Packed(NamedTuple):
    """The arguments of ``pack``: counts, names as in JSON, and i8[n], all numbers one after another."""

    counts: tuple[int, ...]
    names: Any
    numbers: NDArray[np.int64]


def pack(
    counts: Sequence[int], names: Any, *numbers: NDArray[np.int64], most_names_bytes: int = NAMELESS_BYTES
) -> bytes:
    """Pack counts, names and arrays: counts and length of the names, the names as JSON, then all numbers; zlib.

    Raises ValueError for longer names: ``unpack`` would refuse the blob.
    """
    text = json.dumps(names).encode()
    if len(text) > most_names_bytes:
        raise ValueError(f"its names have more than {size(most_names_bytes)}")
    head = struct.pack(f"<{len(counts) + 1}q", *counts, len(text))
    return zlib.compress(head + text + b"".join(array.astype("<i8").tobytes() for array in numbers), 1)


def unpack(data: bytes, counts: int, length: Callable[..., int], *, most_names_bytes: int, most_numbers: int) -> Packed:
    """Undo ``pack``.

    Args:
        data: the blob.
        counts: how many counts the blob begins with.
        length: takes them and returns how many numbers there are; raises ValueError for impossible counts.
        most_names_bytes: of the names as JSON.
        most_numbers: that the blob may contain.

    Raises:
        ValueError: the blob is damaged, or contains more.
    """
    head_bytes = 8 * (counts + 1)
    raw = inflate(data, head_bytes + most_names_bytes + 8 * most_numbers)
    if len(raw) < head_bytes:
        raise ValueError("is too short")
    *stored_counts, names_bytes = struct.unpack_from(f"<{counts + 1}q", raw)
    if not 0 <= names_bytes <= most_names_bytes or min(stored_counts) < 0:
        raise ValueError("has a damaged head")
    expected, body = length(*stored_counts), head_bytes + names_bytes
    if not expected <= most_numbers:
        raise ValueError("has a damaged head")
    if len(raw) != body + 8 * expected:
        raise ValueError("has another length than it says")
    names = parse_json(raw[head_bytes:body].decode())
    return Packed(tuple(stored_counts), names, np.frombuffer(raw, "<i8", expected, body).astype(np.int64))


def list_of(names: Any) -> list[Any]:
    """Return names if they are a list. Raises ValueError."""
    if not isinstance(names, list):
        raise ValueError("names is not a list")
    return names


def encode_pairs(ids: NDArray[np.int64], values: NDArray[np.int64]) -> bytes:
    """Return two i8[n] arrays, the ids rising, as one blob."""
    return zlib.compress(np.stack((np.diff(ids, prepend=0), values)).astype("<i8").tobytes(), 1)


def decode_pairs(data: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Undo ``encode_pairs``. Raises ValueError on damaged data."""
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
    """Return the exact reuse distances of one window, with the parts between their bounds where these are known."""
    head = _COUNTS.pack(reuse.first_touches, reuse.first_touch_bytes)
    arrays = [reuse.upper_bytes, reuse.lower_bytes, reuse.counts]
    if reuse.earlier_bytes is not None and reuse.later_bytes is not None:
        head = _WITH_PARTS.pack(_PARTS_MARK) + head
        arrays += [reuse.earlier_bytes, reuse.later_bytes]
    return zlib.compress(head + np.stack(arrays).astype("<i8").tobytes(), 1)


def decode_reuse(data: bytes, limit: int = MAX_DISTANCES) -> ReuseSample:
    """Undo ``encode_reuse``, for at most ``limit`` distances. Raises ValueError on damaged data."""
    raw = inflate(data, _WITH_PARTS.size + _COUNTS.size + 40 * min(limit, MAX_DISTANCES))
    has_parts = len(raw) >= _WITH_PARTS.size and _WITH_PARTS.unpack_from(raw)[0] == _PARTS_MARK
    raw = raw[_WITH_PARTS.size :] if has_parts else raw
    if len(raw) < _COUNTS.size:
        raise ValueError("is too short")
    first_touches, first_touch_bytes = _COUNTS.unpack_from(raw)
    upper, lower, counts, *parts = _rows(raw[_COUNTS.size :], 5 if has_parts else 3)
    if len(counts) > limit:
        raise ValueError(f"unpacks to {len(counts)} distances")
    left = upper - lower
    if not (
        0 <= first_touches < _MAX_TOUCHES
        and 0 <= first_touch_bytes < _MAX_BYTES
        and _within(upper, _MAX_BYTES)
        and _within(lower, _MAX_BYTES)
        and _within(counts, _MAX_TOUCHES)
        and bool((left >= 0).all())
        and all(_within(part, _MAX_BYTES) and bool((part <= left).all()) for part in parts)
        and (not parts or bool((parts[0] <= left - parts[1]).all()))
    ):
        raise ValueError("holds numbers out of range")
    return ReuseSample(first_touches, first_touch_bytes, upper, lower, counts, *parts)


def encode_burst(parts: Sequence[PartReuse]) -> bytes:
    """Return the distances of the parts of a window: the count of parts, a head for each, then their distances."""
    blobs = [encode_reuse(part.distances) for part in parts]
    heads = [
        _PART.pack(
            *(part.length_ns, part.touched_bytes, part.seen_bytes, part.same_order, part.reverse_order, len(blob))
        )
        for part, blob in zip(parts, blobs, strict=True)
    ]
    return _PART_COUNT.pack(len(parts)) + b"".join(heads + blobs)


def decode_burst(data: bytes, most_parts: int) -> tuple[PartReuse, ...]:
    """Undo ``encode_burst``, for at most this many parts. Raises ValueError on damaged data."""
    count = _PART_COUNT.unpack_from(data)[0] if len(data) >= _PART_COUNT.size else 0
    position = _PART_COUNT.size + count * _PART.size
    if not 0 < count <= most_parts or len(data) < position:
        raise ValueError("has a damaged head")
    parts = []
    for number, head in enumerate(_PART.iter_unpack(data[_PART_COUNT.size : position])):
        length_ns, touched_bytes, seen_bytes, same_order, reverse_order, size = head
        if not (
            0 < length_ns < MAX_PART_NS
            and 0 <= touched_bytes < _MAX_BYTES
            and 0 <= seen_bytes < _MAX_BYTES
            and 0 <= same_order <= 1
            and 0 <= reverse_order <= 1
            and 0 <= size <= len(data) - position
        ):
            raise ValueError("holds numbers out of range")
        # One distance for each window before and page size: the window before the parts, the first part, and these.
        distances = decode_reuse(data[position : position + size], 3 * (most_parts - count + number + 1))
        parts.append(PartReuse(length_ns, touched_bytes, seen_bytes, same_order, reverse_order, distances))
        position += size
    if position < len(data):
        raise ValueError("has another length than it says")
    return tuple(parts)


def encode_touch_sum(touched: TouchSum) -> bytes:
    """Return the accesses of many windows as a blob: steps of groups, then counts by byte planes, which packs best."""
    head = _COUNTS.pack(touched.windows, touched.shift)
    steps = np.diff(touched.groups, prepend=np.uint64(0)).astype("<u8").tobytes()
    planes = touched.touches.astype("<u4").view(np.uint8).reshape(-1, 4).T
    return zlib.compress(head + steps + planes.tobytes(), 1)


def decode_touch_sum(data: bytes) -> TouchSum:
    """Undo ``encode_touch_sum``. Raises ValueError on damaged data."""
    group_bytes = 8 + 4 * GROUP
    raw = inflate(data, _COUNTS.size + group_bytes * MAX_GROUPS)
    count, rest = divmod(len(raw) - _COUNTS.size, group_bytes)
    if count < 0 or rest:
        raise ValueError(f"{len(raw)} bytes are not whole groups")
    windows, shift = _COUNTS.unpack_from(raw)
    if not (0 < windows <= _MAX_WINDOWS and CHUNK_SHIFT <= shift <= GIANT_SHIFT):
        raise ValueError("holds numbers out of range")
    groups = np.cumsum(np.frombuffer(raw, "<u8", count, _COUNTS.size).astype(np.uint64))
    planes = np.frombuffer(raw, np.uint8, offset=_COUNTS.size + 8 * count).reshape(4, -1)
    touches = np.ascontiguousarray(planes.T).view("<u4").reshape(-1, GROUP).astype(np.int64)
    top = np.uint64(1 << ADDRESS_BITS - shift) // np.uint64(GROUP)
    if count and (groups[-1] >= top or not (groups[1:] > groups[:-1]).all()):
        raise ValueError("holds addresses that do not rise")
    if not _within(touches, (windows << shift - PAGE_SHIFT) + 1):
        raise ValueError("holds numbers out of range")
    return TouchSum(windows, shift, groups, touches)


def _rows(raw: bytes, rows: int) -> NDArray[np.int64]:
    if len(raw) % (8 * rows):
        raise ValueError(f"{len(raw)} bytes are not {rows} rows of numbers")
    return np.frombuffer(raw, "<i8").reshape(rows, -1)


def _within(values: NDArray[np.int64], limit: int, least: int = 0) -> bool:
    return not len(values) or bool(values.min() >= least and values.max() < limit)
