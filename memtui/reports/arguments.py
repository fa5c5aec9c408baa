"""Options of the commands that report the content of a session."""

from __future__ import annotations

import argparse

from memtui.core.argtypes import Parser


def add_redact(parser: Parser) -> None:
    """Add ``--redact``."""
    parser.add_argument(
        "--redact",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="take out host, user, paths, command lines and addresses",
    )
