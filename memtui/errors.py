"""Errors that are answers to the user: one line each, and the exit code of the contract."""

from __future__ import annotations

import os
from typing import TextIO

BAD_INPUT, FAILURE = 2, 1
INTERRUPTED = 130  # by ^C, or by leaving a screen before what it shows has ended


class UserError(Exception):
    """Something the user can put right: what, why, what to do. ``code`` is the exit code."""

    def __init__(self, text: str, code: int = BAD_INPUT) -> None:
        super().__init__(text)
        self.code = code


def silence(stream: TextIO) -> None:
    """Let a stream whose other end is gone swallow what it still holds; Python would complain of it at exit."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, stream.fileno())
    os.close(sink)
