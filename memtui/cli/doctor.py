"""``memtui doctor``: what this machine can measure; ``doctor_findings`` tests it."""

from __future__ import annotations

import argparse
from pathlib import Path

from memtui.core import argtypes
from memtui.core.argtypes import Parser, add_json
from memtui.core.command import Command
from memtui.core.console import Console


def _arguments(parser: Parser) -> None:
    add_json(parser)
    parser.add_argument(
        "--measure",
        metavar="FOLDER",
        type=argtypes.path,
        nargs="?",
        const=Path(),
        help="measure first how long a page takes to come back from swap, and from a file of 64 MiB in FOLDER (here); "
        "the screen then says how much slower a smaller memory would be",
    )


def _run(args: argparse.Namespace, console: Console) -> int:
    from memtui.cli.doctor_findings import examine, format_findings, measure_major_faults

    if args.measure is not None:
        with console.progress("reading pages back from swap and from a file"):
            measure_major_faults(args.measure)
    with console.progress("trying what this machine can measure"):
        findings = examine()
    if args.json:
        console.print_json(findings.to_dict())
    else:
        print(format_findings(findings))
    return 0


DOCTOR = Command(
    "doctor", "what this machine can measure, what it cannot, and what would change that", _arguments, _run
)
