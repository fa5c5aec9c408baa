"""Composes the text of /proc/PID/maps from a walk, where only memory of the allocator has changed since it was read.

While a process computes, only the heap changes, and large blocks that are mapped and unmapped. The kernel takes more
than a microsecond to write a line, most of it for the names of files, and the paused process would wait for that.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

START, END, FLAGS, NAME = range(4)  # columns of ``Walk.mappings``
_HEAP = 1  # a name; 0 is no name, and all others are read from /proc
_NAME_COLUMN = 73  # where fs/proc/task_mmu.c puts the name, with pointers of 64 bits
_READ, _WRITE, _EXEC, _MAYSHARE = 1, 2, 4, 0x80  # include/linux/mm.h
GONE = b"[unmapped before its name was read]"
_WITHOUT_MAPPING = b"[vsyscall]"  # the kernel's page on the last line, which no walk visits


class MappingTable:
    """The lines of one process with the mapping of each."""

    def __init__(self) -> None:
        self._mappings = np.empty((0, 4), np.uint64)
        self._lines: list[bytes] = []
        self._rest = self._text = b""  # lines without a mapping; all lines

    def knows(self, mappings: NDArray[np.uint64]) -> bool:
        """Whether ``text`` can compose these mappings: the new ones are the heap, or have no name."""
        return len(self._lines) > 0 and not (mappings[self._places(mappings) < 0, NAME] > _HEAP).any()

    def text(self, mappings: NDArray[np.uint64]) -> bytes:
        """Return the text for mappings of which ``knows`` is True.

        Args:
            mappings: u8[n, 4], rising; start, end, flags and name of each, as ``Walk.mappings``.
        """
        if np.array_equal(mappings, self._mappings):
            return self._text
        lines, indices = self._lines, self._places(mappings).tolist()
        self._lines = [
            lines[index] if index >= 0 else _line(*row) for index, row in zip(indices, mappings.tolist(), strict=True)
        ]
        self._mappings, self._text = mappings, b"".join(self._lines) + self._rest
        return self._text

    def store(self, mappings: NDArray[np.uint64], text: bytes) -> bytes:
        """Store the text that was read at the same moment as the mappings, and return it."""
        lines = [line + b"\n" for line in text.split(b"\n")[:-1]]  # a name may hold a carriage return
        there = len(lines) - 1 if lines and lines[-1].rstrip().endswith(_WITHOUT_MAPPING) else len(lines)
        if there != len(mappings):
            mappings, lines, there = mappings[:0], [], 0
        self._mappings, self._text = mappings, text
        self._lines, self._rest = lines[:there], b"".join(lines[there:])
        return text

    def store_later(self, mappings: NDArray[np.uint64], text: bytes) -> bytes:
        """Store a text that was read later than the mappings, while the process ran; return that of the mappings.

        A mapping of a file that was unmapped in between is named ``GONE``.
        """
        *lines, last = text.split(b"\n")
        rest = b""
        if lines and lines[-1].rstrip().endswith(_WITHOUT_MAPPING):
            rest = lines.pop() + b"\n"
        assert not last, "a table ends with a line end"
        by_place = {line[: line.index(b" ", line.index(b" ") + 1)]: line + b"\n" for line in lines}
        new_lines = []
        for row in mappings.tolist():
            placeholder = _line(*row)
            line = by_place.get(placeholder[: placeholder.index(b" ", placeholder.index(b" ") + 1)])
            new_lines.append(line or (placeholder if row[NAME] <= _HEAP else _named(placeholder, GONE)))
        self._mappings, self._lines, self._rest = mappings, new_lines, rest
        self._text = b"".join(new_lines) + rest
        return self._text

    def _places(self, mappings: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return the index of each among the stored mappings, of which there is at least one; -1: it is new."""
        mapped = self._mappings
        index = np.minimum(np.searchsorted(mapped[:, START], mappings[:, START]), len(mapped) - 1)
        return np.where((mapped[index] == mappings).all(axis=1), index, -1)


def _line(start: int, end: int, flags: int, name: int) -> bytes:
    """Return the line of the heap or of memory without a name, as fs/proc/task_mmu.c writes it."""
    rights = "".join(
        letter if flags & bit else other
        for bit, letter, other in ((_READ, "r", "-"), (_WRITE, "w", "-"), (_EXEC, "x", "-"), (_MAYSHARE, "s", "p"))
    )
    line = f"{start:08x}-{end:08x} {rights} 00000000 00:00 0 "
    encoded = f"{line}\n".encode()
    return _named(encoded, b"[heap]") if name == _HEAP else encoded


def _named(line: bytes, name: bytes) -> bytes:
    return line[:-1].ljust(_NAME_COLUMN) + name + b"\n"
