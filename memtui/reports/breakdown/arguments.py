"""The arguments of ``memtui breakdown``; ``command`` runs it."""

from __future__ import annotations

import argparse

from memtui.core import argtypes
from memtui.core.argtypes import Parser
from memtui.core.command import Command
from memtui.core.console import Console
from memtui.core.errors import BAD_INPUT
from memtui.core.invoking_user import drop_root
from memtui.core.options import IMPORT_FORMATS, RULES
from memtui.core.progress_line import above_line

FIGURES = ("svg", "pdf")


def _add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "files",
        metavar="FILE|LOG|DIR",
        nargs="+",
        type=argtypes.path,
        help="a session, or anything that memtui import takes; - is standard input",
    )
    parser.add_argument("--format", choices=IMPORT_FORMATS, help="what they are, where their content does not say it")
    parser.add_argument(
        "--rules",
        type=argtypes.path,
        metavar="NAME|FILE.toml",
        default=RULES[0],
        help="what is a category: memtui goes by the kind of tensor and drops nothing; layers by the type of layer; "
        "compat does what the scripts of MXNet's memory profiler do, with what they get wrong; FILE.toml has rules of "
        "yours (memtui)",
    )
    parser.add_argument(
        "--fraction", type=argtypes.percent, default=0.0, metavar="PCT", help="leave out bars of that share or less"
    )
    parser.add_argument("--title", default="", metavar="T", help="above everything")
    parser.add_argument(
        "--all", action="store_true", help="all files on one scale, with the same categories; of figures, in one"
    )
    parser.add_argument(
        "--subtract-padding", action="store_true", help="without the 32 bytes that MXNet's pool adds to an allocation"
    )
    parser.add_argument("--to", choices=FIGURES, help="figures in place of text")
    parser.add_argument("-o", "--output", metavar="DIR", type=argtypes.path, help="folder to write them into")
    parser.add_argument("--force", action="store_true", help="overwrite figures that are there")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def _run(args: argparse.Namespace, console: Console) -> int:
    from memtui.reports.breakdown.command import BreakdownOptions, breakdown, rules_of

    drop_root()
    options = BreakdownOptions(
        rules_of(args.rules),
        args.fraction,
        args.title,
        args.all,
        args.subtract_padding,
        args.to or "",
        args.output,
        args.force,
        args.json,
        args.format or "",
    )
    with console.progress("reading"):
        return 0 if breakdown(args.files, options, console.notify, _print) else BAD_INPUT


def _print(text: str) -> None:
    """Print a result whose lines are escaped already."""
    with above_line():
        print(text, flush=True)


BREAKDOWN = Command(
    "breakdown", "what memory is made of: bars by category, of sessions, logs and traces", _add_arguments, _run
)
