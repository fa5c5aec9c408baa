"""Options of the commands that report the content of a session."""

from __future__ import annotations

import argparse

from memtui.core import argtypes
from memtui.core.argtypes import Parser


def add_redact(parser: Parser) -> None:
    """Add ``--redact``."""
    parser.add_argument(
        "--redact",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="take out host, user, paths, command lines and addresses",
    )


def add_gco2(parser: Parser) -> None:
    """Add ``--gco2-per-kwh``."""
    parser.add_argument(
        "--gco2-per-kwh",
        type=argtypes.grams_a_kwh,
        metavar="G",
        help="also say grams of CO2, at G of them for a kWh of your grid; there is no figure of memtui's own",
    )
