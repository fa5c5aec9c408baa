"""How far the reading of a file is, for the progress line, and for a screen that another process draws.

While nobody watches, the parsers count nothing: they are asked a few times a second for what they have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memtui.core import progress_line

MATCHING = "matching frees to allocations"
EVERY_S = 0.2
_ROWS = 1 << 15  # between two reports of progress
MOST_POINTS = 512  # of the curve of a device


@dataclass(frozen=True, slots=True)
class FileSummary:
    """What is known of a file, as far as it was read.

    Attributes:
        format: of the file.
        allocations: their number.
        frees: their number.
        peak_bytes: the most that was in use on one device, as far as its events tell; None: not known.
        usage_bytes: the most in use in each of equally many events of that device.
    """

    format: str
    allocations: int = 0
    frees: int = 0
    peak_bytes: int | None = None
    usage_bytes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadingProgress:
    """A message about the file.

    Attributes:
        doing: what is done with it.
        share: of that, from 0 to 1, that is done; None: not known.
        read_bytes: of it as it is stored.
        total_bytes: of it as it is stored; 0: not known.
        summary: None: its format is not known yet, or does not tell.
    """

    doing: str
    share: float | None
    read_bytes: int
    total_bytes: int
    summary: FileSummary | None


class Parser(Protocol):
    """What takes in a file."""

    def so_far(self) -> FileSummary:
        """Return what the file tells of so far."""


_watch: _Watch | None = None  # of this process


class _Watch:
    def __init__(self, send: Callable[[ReadingProgress], object]) -> None:
        self._send = send
        self._doing, self._read_bytes, self._total_bytes = "", 0, 0
        self._share: float | None = None
        self._parser: Parser | None = None
        self._summary: FileSummary | None = None  # by a parser that is done
        self._due_s = 0.0

    def set_parser(self, parser: Parser | None) -> None:
        self._parser = parser

    def read(self, read_bytes: int, total_bytes: int) -> None:
        self._read_bytes, self._total_bytes = read_bytes, total_bytes
        self.advance(read_bytes / total_bytes if total_bytes else None)

    def advance(self, share: float | None) -> None:
        self._share = share
        if time.monotonic() >= self._due_s:
            self.report()

    def start(self, doing: str) -> None:
        if self._parser is not None:
            self._summary, self._parser = self._parser.so_far(), None
        self._doing, self._share = doing, None
        self.report()

    def report(self) -> None:
        summary = self._summary if self._parser is None else self._parser.so_far()
        self._send(ReadingProgress(self._doing, self._share, self._read_bytes, self._total_bytes, summary))
        self._due_s = time.monotonic() + EVERY_S


@contextmanager
def watched(send: Callable[[ReadingProgress], object]) -> Iterator[None]:
    """Send the progress of what this process reads, while the context is entered."""
    global _watch
    _watch = _Watch(send)
    try:
        yield
    finally:
        _watch = None


def parsed_by(parser: Parser | None) -> None:
    """Set what takes in the file from now on."""
    if _watch is not None:
        _watch.set_parser(parser)


def read(read_bytes: int, total_bytes: int) -> None:
    """Set how many bytes of a file were read, of so many; 0: it is not known of how many."""
    if total_bytes:
        progress_line.advance(read_bytes / total_bytes)
    if _watch is not None:
        _watch.read(read_bytes, total_bytes)


def start(doing: str) -> None:
    """Set what is done with the file from now on."""
    progress_line.start(doing)
    if _watch is not None:
        _watch.start(doing)


def advance(share: float) -> None:
    """Set the share, from 0 to 1, that is done of it."""
    progress_line.advance(share)
    if _watch is not None:
        _watch.advance(share)


def rows(*columns: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the rows of some columns, and tell from time to time how far they were taken."""
    count = len(columns[0])
    for first in range(0, count, _ROWS):
        advance(first / count)
        yield from zip(*(column[first : first + _ROWS] for column in columns), strict=True)


class Usage:
    """Adds up the bytes in use on a device.

    Attributes:
        seen: how many events were added.
    """

    def __init__(self) -> None:
        self.seen = self.allocations = self.frees = 0
        self._in_use = self._low = 0  # without what was there before, which only its frees tell of
        self._points: list[int] = []
        self._events_of_point = 1

    def add(self, delta_bytes: NDArray[np.int64]) -> None:
        """Add events in order: their changes in bytes."""
        if not len(delta_bytes):
            return
        self.allocations += int(np.count_nonzero(delta_bytes > 0))
        self.frees += int(np.count_nonzero(delta_bytes < 0))
        in_use = self._in_use + np.cumsum(delta_bytes)
        self._in_use, self._low = int(in_use[-1]), min(self._low, int(in_use.min()))
        point = (self.seen + np.arange(len(in_use))) // self._events_of_point
        starts = np.flatnonzero(np.diff(point, prepend=-1))
        most = np.maximum.reduceat(in_use, starts).tolist()
        if point[0] < len(self._points):
            self._points[-1] = max(self._points[-1], most.pop(0))
        self._points += most
        self.seen += len(in_use)
        while len(self._points) > MOST_POINTS:
            self._points = [max(self._points[index : index + 2]) for index in range(0, len(self._points), 2)]
            self._events_of_point *= 2

    @property
    def usage_bytes(self) -> tuple[int, ...]:
        """Return the most in use in each of equally many events; what was freed without being allocated was there."""
        return tuple(max(0, point - self._low) for point in self._points)


def summarize(form: str, devices: list[Usage]) -> FileSummary:
    """Return what a file tells of some devices."""
    curves = [device.usage_bytes for device in devices if device.seen]
    fullest = max(curves, key=max, default=())
    return FileSummary(
        form,
        sum(device.allocations for device in devices),
        sum(device.frees for device in devices),
        max(fullest, default=None),
        fullest,
    )
