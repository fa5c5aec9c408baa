"""The output of the program: the end of the log beside the session, for a pane of a size.

Only the part that the pane may show is read, from the end of the file, and only when the file has changed.
"""

from __future__ import annotations

import codecs
import os
from bisect import bisect_left
from pathlib import Path

from rich.cells import chop_cells

from memtui.core.program_log import open_log
from memtui.core.text import printable
from memtui.tui.presenters.terminal_text import CHARACTERS, TerminalText
from memtui.widgets.views.memory import OutputView

TAIL_BYTES = 4 << 20  # read at once, at most
NO_LOG = (
    "there is no {name} beside the session: memtui run and memtui demo keep there what their program prints; any other "
    "program prints where it always did"
)
BARS = 4  # states of a progress bar that are read: all but the last are written over


class OutputLog:
    """One log. ``shown``: the pane is in sight; a hidden log costs nothing."""

    def __init__(self, path: Path, missing: str = NO_LOG) -> None:
        """Take a path; ``missing`` is shown where there is no such file; ``{name}`` in it is the name of the file."""
        self.shown = False
        self._path, self._missing = path, missing
        self._columns, self._height = 0, 0
        self._note = ""
        self._size_bytes = 0
        self._top: tuple[int, int] | None = None  # (line, part of it) of the first row in sight; None: at the end
        self._forget((0, 0))
        self._laid_out: tuple[int, int] | None = None  # of which end of the file, for how many columns
        self._rows: list[str] = []
        self._keys: list[tuple[int, int]] = []  # (line, part of it) of each row

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of the pane, in cells."""
        self._columns, self._height = columns, rows

    # Moving about

    def move(self, by: int) -> None:
        """Scroll by rows; at the end the pane follows new output."""
        self._scroll_to(self._first + by)

    def page(self, by: int) -> None:
        """Scroll by the height of the pane, less a row."""
        self.move(by * max(1, self._height - 1))

    def home(self) -> None:
        """Scroll to the oldest row in memory."""
        self._top = 0, 0

    def end(self) -> None:
        """Scroll to the newest row."""
        self._top = None

    def _scroll_to(self, row: int) -> None:
        self._top = self._keys[max(0, row)] if row < self._most else None

    @property
    def _most(self) -> int:
        """Return the first row in sight of a pane at the end."""
        return max(0, len(self._rows) - self._height)

    @property
    def _first(self) -> int:
        return self._most if self._top is None else min(self._most, bisect_left(self._keys, self._top))

    def view(self) -> OutputView:
        """Return the rows in sight now."""
        if not self.shown:
            return OutputView()
        self._read()
        if self._note:
            return OutputView(note=self._note)
        self._lay_out()
        if not self._most:
            self._top = None
        first = self._first
        return OutputView(
            rows=tuple(self._rows[first : first + self._height]),
            first=first,
            total=len(self._rows),
            follows=self._top is None,
            older=self._skipped or self._text.first > 0,
            size_bytes=self._size_bytes,
            path=str(self._path),
        )

    # The file

    def _forget(self, identity: tuple[int, int]) -> None:
        self._identity = identity
        self._offset, self._skipped = 0, False
        self._text, self._decoder = TerminalText(), codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._laid_out = None
        if self._top is not None:
            self._top = 0, 0

    def _read(self) -> None:
        """Read new output."""
        try:
            file = os.fdopen(open_log(self._path), "rb", buffering=0)
        except FileNotFoundError:
            self._note = self._missing.format(name=self._path.name)
            return
        except OSError as error:
            self._note = f"{self._path.name} is not opened: {error.strerror}"
            return
        try:
            status = os.fstat(file.fileno())
            identity = status.st_dev, status.st_ino
            if identity != self._identity or status.st_size < self._offset:
                self._forget(identity)
            self._note, self._size_bytes = "", status.st_size
            if status.st_size == self._offset:
                return
            start = max(self._offset, status.st_size - TAIL_BYTES)
            file.seek(start)
            data = file.read(status.st_size - start)
        except OSError as error:
            self._note = f"{self._path.name} cannot be read: {error.strerror}"
            return
        finally:
            file.close()
        end = start + len(data)
        data, cut = _last_states(data)
        if start > self._offset or cut:
            self._forget(identity)
            self._skipped = True
            data = data[data.find(b"\n") + 1 :]
        self._offset = end
        self._text.feed(self._decoder.decode(data))

    def _lay_out(self) -> None:
        if self._laid_out == (self._offset, self._columns):
            return
        self._laid_out = self._offset, self._columns
        self._rows, self._keys = [], []
        for number, line in enumerate(self._text.lines, self._text.first):
            parts = _wrapped(printable(line.rstrip()), max(1, self._columns))
            self._rows += parts
            self._keys += [(number, part) for part in range(len(parts))]
        if self._rows and not self._rows[-1]:  # the line after the last newline
            self._rows.pop()
            self._keys.pop()


def _last_states(data: bytes) -> tuple[bytes, bool]:
    """Return the last states of the output, about ``CHARACTERS`` at most, and whether its beginning is missing.

    An hour of a progress bar is megabytes, all written over by later output.
    """
    lines = data.split(b"\n")
    if data.count(b"\r") > BARS:
        lines = [_last_of(line) if line.count(b"\r") > BARS else line for line in lines]
    data = b"\n".join(lines)
    return data[-CHARACTERS:], len(data) > CHARACTERS


def _last_of(line: bytes) -> bytes:
    return b"\r" + b"\r".join(line.rsplit(b"\r", BARS)[1:])


def _wrapped(line: str, columns: int) -> list[str]:
    if line.isascii():
        return [line[start : start + columns] for start in range(0, len(line), columns)] or [""]
    return chop_cells(line, columns) or [""]
