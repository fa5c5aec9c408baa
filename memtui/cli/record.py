"""``memtui record``: a recording without a screen, and its result, which is printed at the end."""

from __future__ import annotations

import argparse
from pathlib import Path

from memtui.core.argtypes import Parser, add_json
from memtui.core.command import Command
from memtui.core.console import Console
from memtui.core.errors import UserError
from memtui.core.options import DEFAULT_OVERHEAD_PPM
from memtui.recording.arguments import (
    TRACE_HELP,
    add_keeping,
    add_observation,
    add_stop_when,
    add_target,
    add_tracing,
    find_pid,
    observe,
)


def _add_arguments(parser: Parser) -> None:
    add_target(parser)
    add_observation(parser)
    add_keeping(parser)
    add_tracing(parser)
    parser.add_argument("--trace", action="store_true", help=TRACE_HELP)
    add_json(parser, "print the report at the end")
    add_stop_when(parser)


def _run(args: argparse.Namespace, console: Console) -> int:
    from memtui.recording.supervisor.foreground import record
    from memtui.recording.supervisor.program import Launch

    if (args.pid is not None or args.rank is not None) == bool(args.command):
        raise UserError("name either a PID or a program: memtui record 4242, memtui record -- python train.py")
    if args.trace and not args.command:
        raise UserError(
            "a process that runs already cannot be traced from inside; memtui record --trace -- CMD starts one"
        )
    if args.command:
        what: int | Launch = Launch(tuple(args.command), trace_every=args.every if args.trace else None)
    else:
        what = find_pid(args, console)

    def print_result(path: Path, shown: bool) -> None:
        if args.json:
            from memtui.cli.report import print_report

            print_report(console, path, as_json=True)
        elif not shown or not args.output:
            console.print(str(path))
        if args.max_overhead not in (None, DEFAULT_OVERHEAD_PPM):  # what is not printed is not imported
            from memtui.reports.report import budget_line

            console.notify(budget_line(path))
        if args.trace:
            from memtui.reports.report import untraced

            console.notify(untraced(path))
        if _ended_badly(path):
            from memtui.reports.post_mortem import last_line

            console.notify(last_line(path))

    return record(lambda: observe(args, what), console, print_result, program=bool(args.command))


def _ended_badly(path: Path) -> bool:
    from memtui.session.ending import stored_end
    from memtui.session.file_format import SessionError

    try:
        end = stored_end(path)
    except SessionError:  # who opens it gets the reason
        return False
    return end is not None and end.is_bad


RECORD = Command(
    "record",
    "watch without a screen: record PID | record -- CMD... (exits as CMD does)",
    _add_arguments,
    _run,
)
