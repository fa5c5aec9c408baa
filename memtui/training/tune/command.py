"""``memtui tune``: parse the request, run the grid, and print rows as they finish."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from memtui.core.console import Console
from memtui.core.errors import FAILURE, INTERRUPTED, UserError
from memtui.core.processes import BackgroundTask, Send, WorkStarted
from memtui.core.progress_line import ProgressLine
from memtui.core.text import printable
from memtui.core.units import span
from memtui.training.preflight import check, check_event_files, check_torch
from memtui.training.settings import networks_from_file, parse_changes
from memtui.training.tune import grid as grids
from memtui.training.tune import text
from memtui.training.tune.grid import Grid
from memtui.training.tune.results import Results, TuneRow, create_results, is_results, newest, reopen
from memtui.training.tune.runner import Interrupted, Report, TuneProgress, Tuning
from memtui.tui.arguments import prepare_screen
from memtui.tui.terminal import problem

_NO_GRID = "which runs? name a grid: memtui tune GRID.toml, or memtui tune fcReLu --grid batch_size=50,100"


def tune(args: argparse.Namespace, console: Console) -> int:
    """Run a grid, or show the results of one; return the exit code. Raises UserError."""
    screen = console.wants_screen(args) and not problem()
    if (existing := _existing_results(args)) is not None:
        return _show_results(args, existing, screen, console)
    results, resumed = _folder(args)
    before = len(results.rows())
    if screen:
        return _run_with_screen(args, results)
    if resumed:
        console.notify(f"goes on in {results.path}: {before} of {len(results.names)} runs have ended")
    with console.progress("training") as line:
        shown = _Printer(results.grid, args.json, line)
        try:
            rows = _tuning(args, results, shown.report).run()
        except Interrupted as error:
            console.notify(f"ended by {error}; {_how_far(results)}")
            return 128 + error.number
    if args.json:
        console.print_json(document(results, rows))
    else:
        console.print(str(results.summary))
    if failed := _failed(rows):
        console.notify(_failures(failed, rows, results))
    return FAILURE if failed == len(rows) else 0


def _existing_results(args: argparse.Namespace) -> Results | None:
    """Return the results that are only to be shown; None where runs are requested. Raises UserError."""
    if args.what == "":
        raise UserError(f"an empty name is not a grid; {_NO_GRID}")
    if args.what is None or not Path(args.what).is_dir() or args.grid:
        return None
    if given := _given(args):  # --tensorboard may be of the config file, as --jobs and --retry
        raise UserError(f"{args.what}: a folder is looked at, so {given} has no meaning; --resume DIR goes on with it")
    if not is_results(Path(args.what)):
        raise UserError(f"{args.what}: is not a folder of memtui tune; they lie one level below, named by their time")
    return reopen(Path(args.what))


def _given(args: argparse.Namespace) -> str:
    """Return an option that requests runs; "" without such an option."""
    given = {"NETWORK": args.network, "--grid": args.grid, "--set": args.set, "--config": args.config}
    more = {"--again": args.again, "--resume": args.resume if args.what else None}
    return next((name for name, value in (given | more).items() if value), "")


def _folder(args: argparse.Namespace) -> tuple[Results, bool]:
    """Return the results to add to, and whether they existed before. Everything is checked before a folder is made."""
    if args.resume is not None:
        if args.what or (given := _given(args)):
            raise UserError(f"--resume goes on with the grid of its folder: no {args.what or given} beside it")
        results = reopen(args.resume)
        _check_runs(results.grid, args.tensorboard)
        return results, True
    grid = _grid(args)
    _check_runs(grid, args.tensorboard)
    existing = None if args.again else newest(args.output, grid)
    return (create_results(args.output, grid, datetime.now(UTC)), False) if existing is None else (existing, True)


def _check_runs(grid: Grid, events: Path | None) -> None:
    """Raise UserError for the first run that could not train: before the first run starts, and not after a weekend.

    ``events``: folder for event files, which is made; None: there are none.
    """
    check_torch()
    seen = set()
    for point in grid.points:
        settings = grid.settings_at(point)
        saved = settings.save_model_path if settings.save_model else None
        what = repr(settings.sequence), settings.dataset_name, settings.data, settings.batch_size, saved
        if what in seen:
            continue
        seen.add(what)
        try:
            check(settings)
        except UserError as error:
            raise UserError(f"{grid.label(point)}: {error}") from None
    if events is not None:
        check_event_files(events)


def _tuning(args: argparse.Namespace, results: Results, report: Report) -> Tuning:
    return Tuning(results, report, jobs=args.jobs, retry=args.retry, events=args.tensorboard)


def _grid(args: argparse.Namespace) -> Grid:
    """Return the grid of the arguments and options. Raises UserError."""
    settings, networks = parse_changes(args.set), networks_from_file(args.config) if args.config else {}
    what, network = args.what or "", args.network or ""
    if args.grid:
        if network or _is_file(what):
            raise UserError(f"{what} and --grid each say which runs: one of them")
        return grids.from_options(args.grid, what, settings, networks)
    if not _is_file(what):
        raise UserError(_NO_GRID)
    return grids.from_file(Path(what), network, settings, networks)


def _is_file(word: str) -> bool:
    """Whether an argument names a file, which need not exist, and not a network."""
    return word.endswith(".toml") or "/" in word or Path(word).is_file()


def _show_results(args: argparse.Namespace, results: Results, screen: bool, console: Console) -> int:
    """Show the rows so far, also those of a grid that still runs."""
    if screen:
        return _show(args, results, None)
    rows = results.rows()
    if args.json:
        console.print_json(document(results, rows))
        return 0
    print(text.head())
    for run in sorted(rows):
        print(printable(text.line(results.grid.label(results.grid.points[run]), rows[run])))
    print(printable(_how_far(results)))
    return 0


def _show(args: argparse.Namespace, results: Results, over: Callable[[], bool] | None) -> int:
    """Show a grid until the screen is left. ``over``: whether this process's runs have ended; None: it has no runs."""
    from memtui.tui.app import run_app

    prepare_screen(args)

    def load() -> Callable[..., Any]:
        from memtui.training.tune.presenter import GridLog
        from memtui.training.tune.screen import GridApp

        return partial(GridApp, GridLog(results, over))

    return run_app(load)


def _run_with_screen(args: argparse.Namespace, results: Results) -> int:
    """Run a grid with a screen, which reads the folder; the runs are those of a child, which ends with the screen."""

    def work(report: Send) -> list[str]:
        try:
            _tuning(args, results, lambda progress: report(WorkStarted())).run()
        except Interrupted:
            raise KeyboardInterrupt from None
        return []

    process, code = BackgroundTask(work, WorkStarted), 0

    def over() -> bool:
        process.receive_messages(0.0)
        return process.over or process.error is not None

    try:
        if process.wait_for_start():
            code = _show(args, results, over)
    finally:
        process.end()
    if process.error is not None:
        raise process.error
    rows = results.rows()
    print(printable(_how_far(results)))
    if failed := _failed(rows):
        print(printable(_failures(failed, rows, results)))
    if len(rows) < len(results.names):
        return code or INTERRUPTED
    return code or (FAILURE if failed == len(rows) else 0)


class _Printer:
    """Print rows on standard output as they finish, and the progress in one line."""

    def __init__(self, grid: Grid, as_json: bool, line: ProgressLine) -> None:
        self._grid, self._json, self._line = grid, as_json, line
        self._head = False

    def report(self, progress: TuneProgress) -> None:
        if progress.row is not None and not self._json:
            run, row = progress.row
            with self._line.above():
                if not self._head:
                    print(text.head())
                    self._head = True
                print(printable(text.line(self._grid.label(self._grid.points[run]), row)), flush=True)
        if progress.label:
            left = "" if progress.left_s is None else f", {span(progress.left_s)} left"
            message = f"{progress.message} · " if progress.message else ""
            self._line.update(f"{progress.ended} of {progress.of}{left}: {message}{progress.label}")


def _failed(rows: Mapping[int, TuneRow]) -> int:
    return sum(bool(row.error) for row in rows.values())


def _failures(failed: int, rows: Mapping[int, TuneRow], results: Results) -> str:
    return f"{failed} of {len(rows)} runs failed, and why is in {results.summary.name}; --retry runs them once more"


def _how_far(results: Results) -> str:
    ended, of = len(results.rows()), len(results.names)
    if ended == of:
        return f"all {of} runs have ended: {results.path}"
    return f"{ended} of {of} runs have ended; memtui tune --resume {results.path} goes on"


def document(results: Results, rows: Mapping[int, TuneRow]) -> dict[str, Any]:
    """Return the document that ``--json`` prints, without its version."""
    return {
        "folder": str(results.path),
        "summary": str(results.summary),
        "runs": len(results.names),
        "failed": _failed(rows),
        "rows": results.to_dict(rows),
    }
