"""``memtui import``: files of other tools as sessions, or on the screen while they are read."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memtui.core import argtypes
from memtui.core.argtypes import Parser
from memtui.core.command import Command
from memtui.core.console import Console
from memtui.core.errors import BAD_INPUT, INTERRUPTED, UserError
from memtui.core.invoking_user import drop_root
from memtui.core.options import IMPORT_FORMATS
from memtui.tui.arguments import add_screen, prepare_screen

if TYPE_CHECKING:
    from memtui.core.processes import BackgroundTask, Send
    from memtui.formats.reading import ReadingProgress

_AT_ONCE_S = 0.5  # a file that is read within that time needs no picture of it
_NO_OUTPUT = "where to? -o FILE, or -o DIR; without it one file is shown on the screen, and nothing is kept"


def _add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "logs",
        metavar="LOG|DIR",
        nargs="+",
        type=argtypes.path,
        help="its kind is recognised by its content: an MXNet log with [mem] lines, its *_ANALYSIS, the text of "
        "ZPP-MEM, a Chrome trace or memory timeline of PyTorch's profiler, a CUDA memory snapshot, a capture "
        "or report of memray; packed, too (gzip, xz, bzip2); - is standard input",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE|DIR",
        type=argtypes.path,
        help="session; of several a folder of them. Without it the file is shown on the screen, and nothing is kept",
    )
    parser.add_argument(
        "--tui", action="store_true", help="show the file on the screen while it is read, and then its session"
    )
    add_screen(parser)
    parser.add_argument("--format", choices=IMPORT_FORMATS, help="what they are, where their content does not say it")
    parser.add_argument(
        "--from",
        dest="first",
        type=argtypes.moment,
        metavar="S",
        help="only what is S seconds after its beginning or later (a log without times: lines)",
    )
    parser.add_argument("--until", dest="last", type=argtypes.moment, metavar="S", help="and only what is before that")
    parser.add_argument(
        "--join",
        type=argtypes.path,
        metavar="SESSION",
        help="a recording of the same process: the new session is a copy of it that knows which call stacks its pages "
        "are of; of a capture of memray",
    )
    parser.add_argument("--force", action="store_true", help="overwrite sessions that are there")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def _run(args: argparse.Namespace, console: Console) -> int:
    # numpy would start threads for products that an import never computes.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    drop_root()
    if args.tui or args.output is None:
        return _on_screen(args, console)
    from memtui.formats.command import describe, import_all, to_dict

    with console.progress("reading"):
        outcomes = import_all(args.logs, args.output, console.notify, **_how(args))
    if args.json:
        console.print_json(to_dict(outcomes))
    else:
        for outcome in outcomes:
            if outcome.session is not None:
                console.print(describe(outcome))
    return 0 if all(outcome.session is not None for outcome in outcomes) else BAD_INPUT


def _how(args: argparse.Namespace) -> dict[str, Any]:
    return {"wanted": (args.first, args.last), "form": args.format or "", "force": args.force, "join": args.join}


def _on_screen(args: argparse.Namespace, console: Console) -> int:
    """Show a file while it is read, and then its session, which is kept where an output is named."""
    (path, *others), output = args.logs, args.output
    if others or path.is_dir() or args.json or not console.interactive:
        message = "--tui shows one file, on a terminal and without --json" if output is not None else _NO_OUTPUT
        raise UserError(message)
    from memtui.formats.input_file import IS_TERMINAL, STANDARD_INPUT, name_of

    if path == STANDARD_INPUT:
        raise UserError(f"{name_of(path)}: {IS_TERMINAL}")
    if output is None:
        return show_file(args, path, console, **_how(args))
    return _read_and_show(args, path, output, console, **_how(args))


def show_file(args: argparse.Namespace, path: Path, console: Console, **how: Any) -> int:
    """Show a file while it is read, and then its session, of which nothing is kept. Raises UserError.

    Args:
        args: how the screen is drawn.
        path: the file.
        console: of the command.
        how: arguments of ``import_all``.
    """
    with tempfile.TemporaryDirectory(prefix="memtui-import-") as folder:
        return _read_and_show(args, path, Path(folder), console, **how)


def _read_and_show(args: argparse.Namespace, path: Path, output: Path, console: Console, **how: Any) -> int:
    """Read a file in a child process, which ends with the screen, and show its session.

    ``output``: the session, or a folder for it.
    """
    prepare_screen(args)
    from memtui.core.processes import BackgroundTask
    from memtui.formats.reading import ReadingProgress, watched

    def work(send: Send) -> list[str]:
        from memtui.formats.command import import_all

        notes: list[str] = []
        with watched(send):
            import_all([path], output, notes.append, **how)
        return notes

    task, code = BackgroundTask(work, ReadingProgress), 0
    try:
        task.receive_all(_AT_ONCE_S)
        if not task.over:
            code = _show_progress(task, path.name)
    finally:
        task.end()
    if task.error is not None:
        raise task.error
    for note in task.conclusion:
        console.notify(note)
    if not task.finished:
        console.notify(f"{path}: ended before it was read whole; nothing was written")
        return code or INTERRUPTED
    if code:
        return code
    from memtui.formats.command import session_path
    from memtui.tui.app import run_viewer

    return run_viewer(session_path(path, output), live=False)


def _show_progress(task: BackgroundTask[ReadingProgress], name: str) -> int:
    from memtui.tui.app import run_app

    def load() -> Callable[..., Any]:
        from memtui.tui.screens.importing import ImportApp

        return partial(ImportApp, task, name)

    return run_app(load)


IMPORT = Command("import", "make sessions of memory logs and traces of other tools", _add_arguments, _run)
