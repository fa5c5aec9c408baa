"""Runs ``memtui compare``: several sessions over each other, on screen, as text, as JSON or as a page."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from memtui.core.console import Console
from memtui.core.errors import UserError
from memtui.core.options import LETTERS
from memtui.core.text import printable
from memtui.reports.comparison.common_windows import differ, in_same_windows
from memtui.reports.comparison.model import CommonWindows, ComparedSession
from memtui.reports.comparison.text import read, same_windows, text, to_dict
from memtui.reports.redact import open_source
from memtui.reports.source import ReportSource


def compare(args: argparse.Namespace, console: Console) -> int:
    """Compare sessions and return the exit code.

    Raises:
        UserError: a file is not a session, has nothing to compare, or there are too many files.
    """
    if len(args.files) < 2:
        raise UserError("one session is held against nothing; name another one, or see it alone: memtui report FILE")
    if len(args.files) > len(LETTERS):
        raise UserError(f"at most {len(LETTERS)} sessions can be told apart, not {len(args.files)}")
    if args.html is not None:
        _check_page(args.html, force=args.force)
    with ExitStack() as stack:
        with console.progress(f"reading {len(args.files)} sessions"):
            readers = [stack.enter_context(closing(open_source(path, redact=args.redact))) for path in args.files]
            sessions = read(readers, args.files, redact=args.redact)
        if args.html is not None:
            with console.progress(f"drawing {args.html}"):
                _write_page(args.html, sessions, readers)
            console.print(str(args.html))
        elif args.json:
            with console.progress("reading page sets"):
                same = same_windows(sessions, readers)
            titles = [reader.title if args.redact else str(reader.path) for reader in readers]
            console.print_json(to_dict(sessions, same, titles))
        elif args.tui and console.interactive:
            from memtui.tui.app import run_comparison
            from memtui.tui.arguments import prepare_screen

            prepare_screen(args)
            return run_comparison(sessions, _later(sessions, args.files, redact=args.redact))
        else:
            with console.progress("reading page sets"):
                same = same_windows(sessions, readers)
            console.print("\n".join(map(printable, text(sessions, same))))
    return 0


def _later(
    sessions: Sequence[ComparedSession], paths: Sequence[Path], *, redact: bool
) -> Callable[[], CommonWindows] | None:
    """Return ``same_windows`` for a thread of its own; None where there is nothing to do."""
    memories = [session.memory for session in sessions]
    if not differ(memories):
        return None

    def derive() -> CommonWindows:
        with ExitStack() as stack:
            readers = [stack.enter_context(closing(open_source(path, redact=redact))) for path in paths]
            return in_same_windows(readers, memories)

    return derive


def _check_page(path: Path, *, force: bool) -> None:
    """Raise UserError, before anything is read, where a page could not be drawn or written."""
    from memtui.core.files import check_place
    from memtui.reports.charts import matplotlib_svg

    check_place(path, force=force)  # first: the drawing library creates a folder of its own in the user's home
    matplotlib_svg.load()


def _write_page(path: Path, sessions: Sequence[ComparedSession], readers: Sequence[ReportSource]) -> None:
    from memtui.analysis.page_raster import picture_of
    from memtui.core.files import ANOTHER_FILE, write_safely
    from memtui.reports.charts import matplotlib_svg
    from memtui.reports.comparison.page import page
    from memtui.session.page_windows import PageWindows, busiest

    pictures = []
    for reader in readers:
        process = busiest(reader)
        pictures.append(None if process is None else picture_of(PageWindows(reader, process.key)))
    html = page(sessions, same_windows(sessions, readers), pictures, matplotlib_svg.svg)
    write_safely(path, html, ANOTHER_FILE)
