"""``memtui completion``: its arguments; ``completion_scripts`` writes the script."""

from __future__ import annotations

import argparse

from memtui.core.argtypes import Parser
from memtui.core.command import Command
from memtui.core.console import Console

SHELLS = ("bash", "zsh", "fish")


def _add_arguments(parser: Parser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


def _run(args: argparse.Namespace, _: Console) -> int:
    from memtui.cli.completion_scripts import script
    from memtui.cli.parser import build_parser

    print(script(build_parser(), args.shell), end="")
    return 0


COMPLETION = Command("completion", "a script that lets your shell complete memtui's words", _add_arguments, _run)
