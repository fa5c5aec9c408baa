"""Puts the text of /proc/PID/maps together from what a walk met, where nothing but the allocator's memory has changed.

That is what changes while a process computes: the heap, and large blocks that are mapped and given back. The kernel
takes more than a microsecond to write a line, most of it for the names of files, and the process would wait for it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

START, END, FLAGS, NAME = range(4)  # columns of ``Walk.mappings``
_HEAP = 1  # a name; 0 is none, and all others are read
_NAME_COLUMN = 73  # where fs/proc/task_mmu.c puts it, with pointers of 64 bits
_READ, _WRITE, _EXEC, _MAYSHARE = 1, 2, 4, 0x80  # include/linux/mm.h
GONE = b"[unmapped before its name was read]"
_WITHOUT_MAPPING = b"[vsyscall]"  # the kernel's page, the last line, of which no walk tells


class MappingTable:
    """The lines of one process, each beside the mapping that it is about."""

    def __init__(self) -> None:
        self._mappings = np.empty((0, 4), np.uint64)
        self._lines: list[bytes] = []
        self._rest = self._text = b""  # lines of no mapping; all of them

    def knows(self, mappings: NDArray[np.uint64]) -> bool:
        """Whether ``text`` can tell them: those that are new are the heap, or have no name."""
        return len(self._lines) > 0 and not (mappings[self._places(mappings) < 0, NAME] > _HEAP).any()

    def text(self, mappings: NDArray[np.uint64]) -> bytes:
        """Put it together, of mappings that it ``knows``.

        Args:
            mappings: u8[n, 4], rising; start, end, flags and name of each, as ``Walk.mappings``.
        """
        if np.array_equal(mappings, self._mappings):
            return self._text
        lines, places = self._lines, self._places(mappings).tolist()
        self._lines = [
            lines[place] if place >= 0 else _line(*row) for place, row in zip(places, mappings.tolist(), strict=True)
        ]
        self._mappings, self._text = mappings, b"".join(self._lines) + self._rest
        return self._text

    def learn(self, mappings: NDArray[np.uint64], text: bytes) -> bytes:
        """Take in what was read, of mappings that were met at the same moment. Returns it."""
        lines = [line + b"\n" for line in text.split(b"\n")[:-1]]  # a name may hold a carriage return
        there = len(lines) - 1 if lines and lines[-1].rstrip().endswith(_WITHOUT_MAPPING) else len(lines)
        if there != len(mappings):
            mappings, lines, there = mappings[:0], [], 0
        self._mappings, self._text = mappings, text
        self._lines, self._rest = lines[:there], b"".join(lines[there:])
        return text

    def learn_later(self, mappings: NDArray[np.uint64], text: bytes) -> bytes:
        """Take in what was read after mappings were met, while the process ran. Returns the table of that moment.

        A mapping that is not there any more, and had the name of a file, is called ``GONE``.
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
        """Return where each of them lies among the known ones, of which there are some; -1: it is new."""
        mapped = self._mappings
        place = np.minimum(np.searchsorted(mapped[:, START], mappings[:, START]), len(mapped) - 1)
        return np.where((mapped[place] == mappings).all(axis=1), place, -1)


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
