"""Errors that are answers to the user: one line each, and the exit code of the contract."""

from __future__ import annotations

import os
import sys
from typing import TextIO

BAD_INPUT, FAILURE = 2, 1
INTERRUPTED = 130  # by ^C, or by leaving a screen before what it shows has ended


class UserError(Exception):
    """Something the user can put right: what, why, what to do. ``code`` is the exit code."""

    def __init__(self, text: str, code: int = BAD_INPUT) -> None:
        super().__init__(text)
        self.code = code


def complain(line: str) -> None:
    """Print a line on standard error. Where that takes none (a full disk), the work goes on and ends as it would."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr)


def output_failed(error: OSError) -> int:
    """Say that standard output takes no more, unless its reader left (``memtui --help | true``); the exit code."""
    silence(sys.stdout)
    if isinstance(error, BrokenPipeError):
        return 0
    complain(f"memtui: standard output: cannot be written: {error.strerror}")
    return FAILURE


def open_standard_streams() -> None:
    """Let those that are closed (``>&-``) lead to nothing: a file that is opened next would take the place of one."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free
            os.set_inheritable(number, True)
    sys.stdin = sys.stdin or open(0, closefd=False)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)
    sys.stderr = sys.stderr or open(2, "w", errors="backslashreplace", closefd=False)


def silence(stream: TextIO) -> None:
    """Let a stream whose other end is gone swallow what it still holds; Python would complain of it at exit."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, stream.fileno())
    os.close(sink)
