"""A trace as Perfetto reads it (``Trace`` of perfetto_trace.proto): protobuf messages, written as a stream.

https://perfetto.dev/docs/reference/trace-packet-proto has the messages. Only those that a timeline needs are written,
without a library of protobuf: a message is its fields one after another, and a field is a key and a value
(https://protobuf.dev/programming-guides/encoding). The test of this module parses the result with Perfetto's schema.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Iterator, Mapping
from functools import cache

from memtui.core.text import utf8_safe
from memtui.formats.timeline import Counter, Group, Instant, Item, Slice, Track, Value

SUFFIX = ".pftrace"
_SEQUENCE = 1  # of packets: one writer
_REALTIME, _MONOTONIC = 1, 3  # BuiltinClock
_STATE_CLEARED = 1  # SequenceFlags: the packet depends on none before it
_SLICE_BEGIN, _SLICE_END, _INSTANT, _COUNTER = 1, 2, 3, 4  # TrackEvent.Type
_COUNT, _BYTES = 2, 3  # CounterDescriptor.Unit
_VARINT, _FIXED64, _LENGTH = 0, 1, 2  # wire types
_WORD = 1 << 64


def varint(number: int) -> bytes:
    """Return a number of 64 bits in groups of 7, the lowest first; a negative one as its two's complement."""
    number %= _WORD
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


@cache
def _key(field: int, wire_type: int) -> bytes:
    return varint(field << 3 | wire_type)


def integer(field: int, value: int) -> bytes:
    """Return a field of a message that is an integer, an enumerator or a boolean."""
    return _key(field, _VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    """Return a field that is a double."""
    return _key(field, _FIXED64) + struct.pack("<d", value)


def message(field: int, *parts: bytes) -> bytes:
    """Return a field that is a message or bytes."""
    content = b"".join(parts)
    return _key(field, _LENGTH) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Return a field that is a text."""
    return message(field, utf8_safe(value).encode())


def trace(attributes: Mapping[str, int | str], clock: tuple[int, int | None], items: Iterable[Item]) -> Iterator[bytes]:
    """Yield a trace in parts.

    Args:
        attributes: what Perfetto shows about the trace as a whole.
        clock: one moment on CLOCK_MONOTONIC, and in nanoseconds since 1970 where that is known.
        items: by track in order of time; the tracks in any order.
    """
    monotonic_ns, wall_ns = clock
    moments = {_MONOTONIC: monotonic_ns} | ({} if wall_ns is None else {_REALTIME: wall_ns})
    clocks = [message(1, integer(1, name), integer(2, t_ns)) for name, t_ns in moments.items()]
    defaults = message(59, integer(58, _MONOTONIC))
    yield _packet(integer(13, _STATE_CLEARED), integer(87, 1), defaults)
    yield _packet(message(6, *clocks, integer(2, _MONOTONIC)))
    yield _packet(message(126, *(_attribute(name, value) for name, value in attributes.items())))
    tracks = _Tracks()
    for item in items:
        yield from tracks.packets(item)


def _packet(*fields: bytes) -> bytes:
    return message(1, *fields, integer(10, _SEQUENCE))


def _attribute(name: str, value: int | str) -> bytes:
    return message(1, text(1, name), integer(2, value) if isinstance(value, int) else text(3, value))


class _Tracks:
    """The tracks described so far, by their numbers, and the values of counters with several series."""

    def __init__(self) -> None:
        self._numbers: dict[Group | tuple[Track, str], int] = {}
        self._values: dict[Track, tuple[int | float, ...]] = {}

    def packets(self, item: Item) -> Iterator[bytes]:
        """Yield the packets of an item, and before them those that describe a new track."""
        match item:
            case Counter(track, t_ns, values):
                yield from self._counter(track, t_ns, values)
            case Slice(track, start_ns, end_ns, name, args):
                number = yield from self._number(track)
                yield _event(start_ns, number, _SLICE_BEGIN, text(23, name), *_annotations(args))
                yield _event(max(end_ns, start_ns), number, _SLICE_END)
            case Instant(track, t_ns, name, args):
                number = yield from self._number(track)
                yield _event(t_ns, number, _INSTANT, text(23, name), *_annotations(args))

    def _counter(self, track: Track, t_ns: int, values: tuple[int | float, ...]) -> Iterator[bytes]:
        """Yield a packet per series; of several series, those whose value is another one than before."""
        before = self._values.get(track, ())
        if track.series:
            self._values[track] = values
        for index, value in enumerate(values):
            if before and before[index] == value:
                continue
            number = yield from self._number(track, track.series[index] if track.series else "")
            is_whole = isinstance(value, int)
            yield _event(t_ns, number, _COUNTER, integer(30, int(value)) if is_whole else double(44, value))

    def _number(self, track: Track, series: str = "") -> Generator[bytes, None, int]:
        """Return the number of a track, after yielding its description where it is new."""
        key = track, series
        if key not in self._numbers:
            if track.group not in self._numbers:
                number = self._numbers[track.group] = len(self._numbers) + 1
                yield _packet(message(60, integer(1, number), *_group(track.group)))
            number = self._numbers[key] = len(self._numbers) + 1
            name = f"{track.name}: {series}" if series else track.name
            fields = (integer(1, number), integer(5, self._numbers[track.group]), text(2, name))
            yield _packet(message(60, *fields, *_unit(track.unit)))
        return self._numbers[key]


def _group(group: Group) -> list[bytes]:
    if group.pid is None:
        return [text(2, group.name)]
    return [message(3, integer(1, group.pid), text(2, group.command), text(6, group.name))]


def _unit(unit: str) -> list[bytes]:
    """Return the description of a counter; nothing for other tracks."""
    if not unit:
        return []
    return [message(8, integer(3, _BYTES) if unit == "bytes" else text(6, unit))]


def _event(t_ns: int, track: int, kind: int, *fields: bytes) -> bytes:
    return _packet(integer(8, max(t_ns, 0)), message(11, integer(9, kind), integer(11, track), *fields))


def _annotations(args: Mapping[str, Value]) -> Iterator[bytes]:
    for name, value in args.items():
        match value:
            case int():
                field = integer(4, value)
            case float():
                field = double(5, value)
            case _:
                field = text(6, value)
        yield message(4, text(10, name), field)
