"""``memtui report``: the numbers of a session, as text, JSON or a page."""

from __future__ import annotations

import argparse
from pathlib import Path

from memtui.core import argtypes
from memtui.core.argtypes import Parser, add_json
from memtui.core.command import Command
from memtui.core.console import Console
from memtui.core.errors import UserError
from memtui.core.invoking_user import drop_root
from memtui.reports.arguments import add_gco2, add_redact

STANDARD_OUTPUT = Path("-")


def _add_arguments(parser: Parser) -> None:
    add_redact(parser)
    parser.add_argument("file", metavar="FILE", type=argtypes.path, nargs="?", help="session, or placement profile")
    form = parser.add_mutually_exclusive_group()
    add_json(form)
    form.add_argument(
        "--html",
        type=argtypes.path,
        nargs="?",
        const=STANDARD_OUTPUT,
        metavar="PAGE",
        help="as a page with figures, in a file, or on standard output: report FILE --html > page.html",
    )
    add_gco2(parser)
    parser.add_argument("--force", action="store_true", help="overwrite a page that is there")


def _run(args: argparse.Namespace, console: Console) -> int:
    from memtui.placement.file_header import is_profile

    drop_root()
    if args.file is None and args.html not in (None, STANDARD_OUTPUT):  # report --html FILE: that is the session
        args.file, args.html = args.html, STANDARD_OUTPUT
    if args.file is None:
        raise UserError("name a session: memtui report FILE")
    if is_profile(args.file):
        _report_placement(args, console)
    elif args.html is None:
        print_report(console, args.file, as_json=args.json, redact=args.redact, gco2_per_kwh=args.gco2_per_kwh)
    else:
        _draw(args, console)
    return 0


def _report_placement(args: argparse.Namespace, console: Console) -> None:
    from memtui.placement.report import print_report

    for option, given in (("--html", args.html is not None), ("--gco2-per-kwh", args.gco2_per_kwh is not None)):
        if given:
            raise UserError(f"{args.file}: is a placement profile, and {option} is for sessions; leave it out")
    print_report(args.file, console, as_json=args.json, redact=args.redact)


def _draw(args: argparse.Namespace, console: Console) -> None:
    from contextlib import closing

    from memtui.core.files import ANOTHER_FILE, check_place, write_safely
    from memtui.reports.export.page import page
    from memtui.reports.redact import open_source

    if args.html != STANDARD_OUTPUT:
        check_place(args.html, force=args.force)
    with console.progress(f"drawing {args.file}"), closing(open_source(args.file, redact=args.redact)) as source:
        text = page(source, args.gco2_per_kwh)
    if args.html == STANDARD_OUTPUT:
        print(text, end="")
    else:
        write_safely(args.html, text, ANOTHER_FILE)
        console.print(str(args.html))


def print_report(
    console: Console, path: Path, *, as_json: bool, redact: bool = False, gco2_per_kwh: float | None = None
) -> None:
    """Print the numbers of a session. Raises UserError."""
    from memtui.reports.report import build_report
    from memtui.reports.text import TEXT_COLUMN, format_report

    with console.progress(f"adding up {path}"):
        report = build_report(path, redact=redact, gco2_per_kwh=gco2_per_kwh)
    if as_json:
        console.print_json(report.to_dict())
    else:
        console.print_page(format_report(report), TEXT_COLUMN)


REPORT = Command("report", "the numbers of a session, or of a placement profile", _add_arguments, _run)
