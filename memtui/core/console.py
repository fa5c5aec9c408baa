"""Output of commands: results on standard output, notices and progress on standard error."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from memtui.core.errors import complain
from memtui.core.progress_line import ProgressLine, above_line
from memtui.core.text import printable, wrapped

JSON_VERSION = 1  # of the documents that other programs read: it rises when a key changes its meaning or is removed


def output_columns() -> int | None:
    """Return the columns of standard output; None where it is not a terminal, and nothing has to be cut."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else None
    except (OSError, ValueError):
        return None


def as_json(document: Mapping[str, Any]) -> str:
    """Return a document of ``--json`` as text, with ``schema_version``; docs/reference/schemas describe them."""
    return json.dumps({"schema_version": JSON_VERSION, **document}, indent=2)


class Console:
    """The standard streams of one command.

    Attributes:
        verb: the command, as in ``memtui export``; it begins every line on standard error.
    """

    def __init__(self, verb: str) -> None:
        self.verb = verb

    @property
    def interactive(self) -> bool:
        """Whether standard input and standard output are a terminal."""
        return sys.stdin.isatty() and sys.stdout.isatty()

    def wants_screen(self, args: argparse.Namespace) -> bool:
        """Whether a command that has ``--tui`` and ``--json`` is to draw a screen."""
        return bool(args.tui and not args.json and self.interactive)

    def print(self, text: str) -> None:
        """Print a result above a progress line. Line breaks stay, other characters are made printable."""
        with above_line():
            print("\n".join(map(printable, text.split("\n"))), flush=True)

    def print_line(self, text: str) -> None:
        """Print a result of one line, which line breaks in what it quotes do not end."""
        self.print(printable(text))

    def print_page(self, text: str, indent: int) -> None:
        """Print a result whose lines begin with a name; on a terminal what is too wide goes on under its text.

        Args:
            text: lines, each of which begins with a name or with blanks.
            indent: the column in which the text of a line begins.
        """
        columns = output_columns()
        lines = text.split("\n")
        self.print(
            "\n".join(lines if columns is None else (part for line in lines for part in wrapped(line, columns, indent)))
        )

    def print_json(self, document: Mapping[str, Any]) -> None:
        """Print the one JSON document of ``--json``."""
        with above_line():
            print(as_json(document), flush=True)

    def notify(self, text: str) -> None:
        """Print one line on standard error that is not a result; nothing for an empty text."""
        if text:
            with above_line():
                complain(printable(f"memtui {self.verb}: {text}"))

    def progress(self, doing: str, *, wanted: bool = True, silent_since_s: float | None = None) -> ProgressLine:
        """Return a line that shows what the command does while it is entered, see ``ProgressLine``."""
        return ProgressLine(self.verb, doing, wanted=wanted, silent_since_s=silent_since_s)
