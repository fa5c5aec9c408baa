"""Errors for the user: one line each, with an exit code."""

from __future__ import annotations

import os
import sys
from typing import TextIO

BAD_INPUT, FAILURE = 2, 1
INTERRUPTED = 130  # by ^C, or by leaving a screen before what it shows has ended


class UserError(Exception):
    """An error that the user can correct: what, why, what to do. ``code`` is the exit code."""

    def __init__(self, text: str, code: int = BAD_INPUT) -> None:
        super().__init__(text)
        self.code = code


def complain(line: str) -> None:
    """Print a line on standard error. Where that fails (a full disk), the work goes on."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr)


def output_failed(error: OSError) -> int:
    """Report that writing to standard output failed, unless its reader left (``| true``); return the exit code."""
    silence(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return 0
    complain(f"memtui: standard output: cannot be written: {error.strerror}")
    return FAILURE


def open_standard_streams() -> None:
    """Open /dev/null for closed standard streams (``>&-``): the next opened file would get their descriptor."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
            os.set_inheritable(number, True)
    sys.stdin = sys.stdin or open(0, closefd=False)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)
    sys.stderr = sys.stderr or open(2, "w", errors="backslashreplace", closefd=False)


def silence(stream: TextIO) -> None:
    """Redirect a stream whose reader is gone to /dev/null: Python would report buffered output at exit."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, stream.fileno())
    os.close(sink)
