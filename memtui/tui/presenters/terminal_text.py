"""The output of a program on a terminal as lines of text: the last lines, as a terminal would show them.

Progress bars write over themselves: a carriage return, an erased line and a cursor that moves up act as on a terminal,
colours and other sequences are left out. Other control characters stay in the text, for ``visible``.
"""

from __future__ import annotations

import re
from collections import deque

LINES, CHARACTERS = 2000, 1 << 18  # in memory
LINE_CHARACTERS = 4096  # of one line; the rest is in the file only
REACH_ROWS, REACH_COLUMNS = 100, 512  # how far a cursor moves: as on a large terminal
TAB = 8
_SEQUENCE = re.compile(
    r"\x1b\[(?P<numbers>[0-?]*)[ -/]*(?P<final>[@-~])"  # CSI
    r"|\x1b[\]PX^_][^\x07\x1b\n\r]{0,4096}(?:\x07|\x1b\\)"  # OSC and other strings: titles, links, clipboards
    r"|\x1b[()*+][0-9A-Za-z]|\x1b[78=>cDEHMNOZ]"  # character sets, and modes without any text
    r"|(?P<control>[\n\r\b\t\x0b\x0c])"
    r"|(?P<text>[^\x1b\n\r\b\t\x0b\x0c]+|\x1b)"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n\r]{0,4096}\x1b?|[()*+])?\Z")


class TerminalText:
    """Lines that grow. ``first`` is the number of the oldest line in memory."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque([""])
        self.first = 0
        self._row, self._column = 0, 0
        self._rest = ""

    def feed(self, text: str) -> None:
        """Add text; an incomplete sequence waits for its rest."""
        text = self._rest + text
        cut = _UNFINISHED.search(text, max(0, len(text) - 4200))
        self._rest = text[cut.start() :] if cut else ""
        for match in _SEQUENCE.finditer(text, 0, cut.start() if cut else len(text)):
            if match["text"] is not None:
                self._write(match["text"])
            elif match["control"] is not None:
                self._control(match["control"])
            elif match["final"] is not None:
                self._do(match["final"], match["numbers"])
        self._trim()

    def _write(self, text: str) -> None:
        line, column = self.lines[self._row], self._column
        text = text[: max(0, LINE_CHARACTERS - column)]
        if text:
            self.lines[self._row] = line[:column].ljust(column) + text + line[column + len(text) :]
            self._column += len(text)

    def _control(self, char: str) -> None:
        if char == "\r":
            self._column = 0
        elif char == "\b":
            self._column = max(0, self._column - 1)
        elif char == "\t":
            self._column = min(LINE_CHARACTERS, (self._column // TAB + 1) * TAB)
        else:
            self._row, self._column = self._row + 1, 0
            if self._row == len(self.lines):
                self.lines.append("")
                if len(self.lines) > 2 * LINES:
                    self._trim()

    def _do(self, final: str, numbers: str) -> None:
        first = numbers.split(";")[0]
        number = int(first) if first.isascii() and first.isdigit() and len(first) < 6 else 0
        rows, columns = min(max(1, number), REACH_ROWS), min(max(1, number), REACH_COLUMNS)
        line = self.lines[self._row]
        match final:
            case "A" | "F":
                self._row = max(0, len(self.lines) - REACH_ROWS, self._row - rows)
            case "B" | "E":
                self._row = min(len(self.lines) - 1, self._row + rows)
            case "C":
                self._column = max(self._column, min(REACH_COLUMNS, self._column + columns))
            case "D":
                self._column = max(0, self._column - columns)
            case "G":
                self._column = columns - 1
            case "K":
                before = line[: self._column] if number == 0 else ""
                after = line[self._column :] if number == 1 else ""
                self.lines[self._row] = before + (after and " " * self._column + after)
            case "J" if number == 0:
                self.lines[self._row] = line[: self._column]
                while len(self.lines) > self._row + 1:
                    self.lines.pop()
        if final in "EF":
            self._column = 0

    def _trim(self) -> None:
        """Drop the oldest lines."""
        characters = sum(map(len, self.lines))
        while len(self.lines) > 1 and (len(self.lines) > LINES or characters > CHARACTERS):
            characters -= len(self.lines.popleft())
            self.first += 1
            self._row = max(0, self._row - 1)
