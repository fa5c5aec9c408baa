"""What a viewer of traces draws: counters, slices and instants on tracks. Two formats write it, from a stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Value = int | float | str
MICROSECOND_NS = 1000


class Group(NamedTuple):
    """Tracks that are shown together: of a process, or of something that is not a process.

    Attributes:
        name: what is shown.
        pid: the process; None: not a process.
        command: its command line.
    """

    name: str
    pid: int | None = None
    command: str = ""


class Track(NamedTuple):
    """A row of the picture.

    Attributes:
        group: where it is shown.
        name: unique within the group.
        unit: of a counter: "bytes", "W", "J", "%"; "" on tracks of slices and instants.
        series: the names of a counter's values, where it has several.
    """

    group: Group
    name: str
    unit: str = ""
    series: tuple[str, ...] = ()


class Counter(NamedTuple):
    """Values from a moment until the next one of the track, a value per series."""

    track: Track
    t_ns: int
    values: tuple[int | float, ...]


class Slice(NamedTuple):
    """A stretch of time. Slices of one track are in order of time and do not overlap."""

    track: Track
    start_ns: int
    end_ns: int
    name: str
    args: Mapping[str, Value]


class Instant(NamedTuple):
    """A moment.

    Attributes:
        everywhere: whether it concerns all tracks.
    """

    track: Track
    t_ns: int
    name: str
    args: Mapping[str, Value]
    everywhere: bool = False


Item = Counter | Slice | Instant
