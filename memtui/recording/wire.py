"""Messages on a pipe: versioned, self-delimiting, no pickle.

A message is a 16-byte head (magic, protocol, kind, JSON length, array length), a JSON object, and the raw bytes of the
arrays that the object describes (little endian, in order). A pipe carries it, and so does ``ssh host sudo ...``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, get_args

import numpy as np

from memtui.core.page_set import PageSet
from memtui.core.readings import GpuMemory, GpuUse, MemoryLimit, MemoryUse, NumaUse, Power, PowerReading
from memtui.core.samples import End, Event, Hello, Process, ProcessWindow, Vma, VmaTable, Window
from memtui.core.tracer_messages import AllocationStep, LearningProgress, TensorRanges, TracerMessage, TrainingProgress

Message = Hello | Process | VmaTable | Window | Power | Event | End | TracerMessage

MAGIC = b"MTUI"
PROTOCOL = 18
MAX_JSON_BYTES = 64 << 20
MAX_ARRAY_BYTES = 1 << 30
_HEAD = struct.Struct("<4sHHII")
_DTYPES = {"u8": np.dtype("<u8"), "i8": np.dtype("<i8"), "f8": np.dtype("<f8")}
_ARRAYS = {"i": "i8", "f": "f8"}  # by kind of numpy
_SETS = ("pages", "resident")
_VMA_SIZES = ("vma_wss_bytes", "vma_rss_bytes", "vma_shared_bytes", "vma_private_bytes")


class DecodeError(ValueError):
    """The stream does not consist of memtui's messages, is damaged, or speaks another protocol version."""


def _table_to_dict(table: VmaTable) -> dict[str, Any]:
    vmas = [[v.start, v.end, v.perms, v.name] for v in table.vmas]
    return {"process": table.process, "sample": table.sample, "vmas": vmas}


def _window_to_dict(window: Window, arrays: list[np.ndarray]) -> dict[str, Any]:
    def append_set(pages: PageSet | None) -> bool:
        if pages is not None:
            arrays.extend((pages.blocks, pages.bits, pages.huge, pages.giant))
        return pages is not None

    def process_to_dict(process: ProcessWindow) -> dict[str, Any]:
        names = (name for name in ProcessWindow.__dataclass_fields__ if name not in (*_SETS, "parts"))
        fields = {name: getattr(process, name) for name in names}
        sets = {name: append_set(getattr(process, name)) for name in _SETS}
        return fields | sets | {"parts": sum(map(append_set, process.parts))}

    fields = {name: getattr(window, name) for name in Window.__dataclass_fields__ if name != "processes"}
    return fields | {"processes": [process_to_dict(p) for p in window.processes]}


def _read_window(window: dict[str, Any], arrays: Iterator[np.ndarray]) -> Window:
    def read_process(fields: dict[str, Any]) -> ProcessWindow:
        sets = {name: PageSet(*(next(arrays) for _ in range(4))) if fields[name] else None for name in _SETS}
        parts = tuple(PageSet(*(next(arrays) for _ in range(4))) for _ in range(fields["parts"]))
        sizes = {name: None if fields[name] is None else tuple(map(tuple, fields[name])) for name in _VMA_SIZES}
        lengths_ns = tuple(fields["part_lengths_ns"])
        return ProcessWindow(**(fields | sets | sizes | {"parts": parts, "part_lengths_ns": lengths_ns}))

    return Window(**(window | {"processes": tuple(read_process(p) for p in window["processes"])}))


_KINDS: tuple[type, ...] = (
    Hello,
    Process,
    VmaTable,
    Window,
    Power,
    Event,
    End,
    *get_args(TracerMessage),
)
_READ: dict[type, Callable[[dict[str, Any], Iterator[np.ndarray]], Message]] = {
    Hello: lambda d, _: Hello.from_dict(d),
    Process: lambda d, _: Process(**d),
    VmaTable: lambda d, _: VmaTable(d["process"], d["sample"], tuple(Vma(*v) for v in d["vmas"])),
    Window: _read_window,
    Power: lambda d, _: Power(
        tuple(PowerReading(**r) for r in d["readings"]),
        tuple(GpuMemory(**m) for m in d["gpu_memory"]),
        tuple(GpuUse(**u) for u in d["gpu_use"]),
        tuple(MemoryLimit(**limit) for limit in d["limits"]),
        tuple(MemoryUse(**use) for use in d["memory_use"]),
        tuple(NumaUse(**use) for use in d["numa_use"]),
    ),
    Event: lambda d, _: Event(**d),
    End: lambda d, _: End(**d),
    AllocationStep: lambda d, arrays: AllocationStep(**(d | {"names": tuple(d["names"]), "columns": next(arrays)})),
    TensorRanges: lambda d, arrays: TensorRanges(
        **(d | {"names": tuple(d["names"]), "parts": tuple(d["parts"]), "columns": next(arrays)})
    ),
    TrainingProgress: lambda d, arrays: TrainingProgress(
        **(d | {"names": tuple(d["names"]), "ends_ns": next(arrays), "usage": next(arrays)})
    ),
    LearningProgress: lambda d, arrays: LearningProgress(**(d | {"places": next(arrays), "values": next(arrays)})),
}


def encode(message: Message) -> bytes:
    """Return the bytes of a message."""
    arrays: list[np.ndarray] = []
    if isinstance(message, Window):
        values = _window_to_dict(message, arrays)
    elif isinstance(message, VmaTable):
        values = _table_to_dict(message)
    elif isinstance(message, TracerMessage):
        fields = {name: getattr(message, name) for name in message.__dataclass_fields__}
        values = {name: value for name, value in fields.items() if not isinstance(value, np.ndarray)}
        arrays += [value for value in fields.values() if isinstance(value, np.ndarray)]
    else:
        values = asdict(message)
    kinds = [_ARRAYS.get(a.dtype.kind, "u8") for a in arrays]
    values["arrays"] = [[kind, list(a.shape)] for kind, a in zip(kinds, arrays, strict=True)]
    text = json.dumps(values, separators=(",", ":")).encode()
    raw = b"".join(np.ascontiguousarray(a, _DTYPES[k]).tobytes() for k, a in zip(kinds, arrays, strict=True))
    return _HEAD.pack(MAGIC, PROTOCOL, _KINDS.index(type(message)), len(text), len(raw)) + text + raw


class Decoder:
    """Turns chunks of a byte stream back into messages.

    Args:
        preface_bytes: how much may stand before the first message: what the ``sitecustomize`` of a Python prints when
            it starts lands in the same pipe.
    """

    def __init__(self, preface_bytes: int = 0) -> None:
        self._buffer = bytearray()
        self._preface_bytes = preface_bytes

    @property
    def pending_bytes(self) -> int:
        """Bytes of a message that has not arrived whole."""
        return len(self._buffer)

    def feed(self, chunk: bytes) -> Iterator[Message]:
        """Yield every message that is now complete. Raises DecodeError."""
        self._buffer += chunk
        if self._preface_bytes:
            start = self._buffer.find(MAGIC)
            if start < 0 and len(self._buffer) <= self._preface_bytes:
                return
            del self._buffer[: max(start, 0)]
            self._preface_bytes = 0
        while len(self._buffer) >= _HEAD.size:
            magic, protocol, kind, text_bytes, raw_bytes = _HEAD.unpack_from(self._buffer)
            if magic != MAGIC:
                raise DecodeError("not a memtui stream")
            if protocol != PROTOCOL:
                raise DecodeError(f"stream speaks protocol {protocol}, this memtui speaks {PROTOCOL}")
            if kind >= len(_KINDS) or text_bytes > MAX_JSON_BYTES or raw_bytes > MAX_ARRAY_BYTES:
                raise DecodeError("damaged frame head")
            end = _HEAD.size + text_bytes + raw_bytes
            if len(self._buffer) < end:
                return
            text = bytes(self._buffer[_HEAD.size : _HEAD.size + text_bytes])
            raw = bytes(self._buffer[_HEAD.size + text_bytes : end])
            del self._buffer[:end]
            yield _decode(_KINDS[kind], text, raw)


def _decode(kind: type, text: bytes, raw: bytes) -> Message:
    try:
        fields = json.loads(text)
        return _READ[kind](fields, iter(_split(raw, fields.pop("arrays"))))
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise DecodeError(f"damaged {kind.__name__} frame: {error}") from error


def _split(raw: bytes, described: list[tuple[str, list[int]]]) -> list[np.ndarray]:
    arrays, offset = [], 0
    for dtype, shape in described:
        count = int(np.prod(shape, dtype=np.int64))
        arrays.append(np.frombuffer(raw, _DTYPES[dtype], count, offset).reshape(shape))
        offset += arrays[-1].nbytes
    return arrays
