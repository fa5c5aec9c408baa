"""``memtui replay``: a saved session, a placement profile, or a file of another tool, on the screen."""

from __future__ import annotations

import argparse

from memtui.core import argtypes
from memtui.core.argtypes import Parser
from memtui.core.command import Command
from memtui.core.console import Console
from memtui.core.invoking_user import drop_root
from memtui.tui.arguments import add_screen, prepare_screen

_FILE = "session, placement profile, or a file of another tool"


def _add_arguments(parser: Parser) -> None:
    add_screen(parser)
    parser.add_argument("file", metavar="FILE", type=argtypes.path, help=_FILE)


def _run(args: argparse.Namespace, console: Console) -> int:
    from memtui.placement.file_header import is_profile
    from memtui.session.file_format import SessionError, check_file
    from memtui.tui.app import run_viewer
    from memtui.tui.terminal import require_terminal

    drop_root()
    if is_profile(args.file):
        from memtui.placement.command import show
        from memtui.placement.store import ProfileFile

        return show(args, ProfileFile(args.file))
    try:
        check_file(args.file)
    except SessionError:
        from memtui.cli.import_files import show_file
        from memtui.formats.catalogue import may_be_imported

        if not console.interactive:
            raise
        with console.progress("looking for lines of other tools"):
            importable = may_be_imported(args.file)
        if not importable:
            raise
        return show_file(args, args.file, console)
    use = "use `memtui report`, which prints its numbers, or `memtui record` to measure without a screen"
    require_terminal(instead=use)
    prepare_screen(args)
    return run_viewer(args.file, live=False)


REPLAY = Command(
    "replay",
    "watch a saved session, or one that is still recorded; or a placement profile, or a file of another tool",
    _add_arguments,
    _run,
)
