"""Arguments of ``memtui import``; ``command`` runs it."""

from __future__ import annotations

import argparse
import os

from memtui.core import argtypes
from memtui.core.argtypes import Parser
from memtui.core.command import Command
from memtui.core.console import Console
from memtui.core.errors import BAD_INPUT
from memtui.core.invoking_user import drop_root
from memtui.core.options import IMPORT_FORMATS


def _add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "logs",
        metavar="LOG|DIR",
        nargs="+",
        type=argtypes.path,
        help="its kind is recognised by its content: an MXNet log with [mem] lines, its *_ANALYSIS, the text of "
        "ZPP-MEM, a Chrome trace or memory timeline of PyTorch's profiler, a CUDA memory snapshot; packed, too "
        "(gzip, xz, bzip2); - is standard input",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE|DIR",
        type=argtypes.path,
        required=True,
        help="session; of several a folder of them",
    )
    parser.add_argument("--format", choices=IMPORT_FORMATS, help="what they are, where their content does not say it")
    parser.add_argument(
        "--from",
        dest="first",
        type=argtypes.moment,
        metavar="S",
        help="only what is S seconds after its beginning or later (a log without times: lines)",
    )
    parser.add_argument("--until", dest="last", type=argtypes.moment, metavar="S", help="and only what is before that")
    parser.add_argument("--force", action="store_true", help="overwrite sessions that are there")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def _run(args: argparse.Namespace, console: Console) -> int:
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # numpy would start threads for products that an import never computes
    from memtui.formats.command import describe, import_all, to_dict

    drop_root()
    wanted = args.first, args.last
    with console.progress("reading"):
        outcomes = import_all(
            args.logs, args.output, console.notify, wanted=wanted, form=args.format or "", force=args.force
        )
    if args.json:
        console.print_json(to_dict(outcomes))
    else:
        for outcome in outcomes:
            if outcome.session is not None:
                console.print(describe(outcome))
    return 0 if all(outcome.session is not None for outcome in outcomes) else BAD_INPUT


IMPORT = Command("import", "make sessions of memory logs and traces of other tools", _add_arguments, _run)
