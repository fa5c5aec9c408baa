"""``memtui compare``: its arguments; ``compare_sessions`` runs it."""

from __future__ import annotations

import argparse

from memtui.core import argtypes
from memtui.core.argtypes import Parser, add_json
from memtui.core.command import Command
from memtui.core.console import Console
from memtui.core.invoking_user import drop_root
from memtui.reports.arguments import add_redact
from memtui.tui.arguments import add_screen


def _add_arguments(parser: Parser) -> None:
    add_redact(parser)
    add_screen(parser)
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        type=argtypes.path,
        help="sessions, at most 8; others are held against the first",
    )
    form = parser.add_mutually_exclusive_group()
    add_json(form, "as one JSON document, with figures and curves")
    form.add_argument(
        "--html", type=argtypes.path, metavar="FILE", help="as one page with figures (needs memtui[study])"
    )
    parser.add_argument("--force", action="store_true", help="overwrite a page that is there")
    parser.add_argument("--no-tui", dest="tui", action="store_false", help="as text, also on a terminal")


def _run(args: argparse.Namespace, console: Console) -> int:
    from memtui.cli.compare_sessions import compare

    drop_root()
    return compare(args, console)


COMPARE = Command(
    "compare",
    "sessions over each other on one axis: working set, RSS, VM, reuse; of trainings loss, accuracy, tensor memory",
    _add_arguments,
    _run,
)
