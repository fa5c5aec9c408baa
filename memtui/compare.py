"""``memtui compare``: several trainings over each other, on screen, as text or as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from memtui.errors import UserError
from memtui.foreign import visible
from memtui.present.comparison import run_of, told_apart
from memtui.session.reader import SessionReader
from memtui.units import duration, size
from memtui.views_comparison import LETTERS, MOST, Run, change_words


def compare(args: argparse.Namespace, prepare: Callable[[], object]) -> int:
    """The command; returns the exit code. ``prepare`` makes the terminal ready for a screen.

    Raises:
        UserError: a file is no session, tells of no training, or there are too many.
    """
    runs = read(args.files)
    if args.json:
        print(json.dumps([plain(run, path) for run, path in zip(runs, args.files, strict=True)], indent=2))
    elif args.tui and sys.stdin.isatty() and sys.stdout.isatty():
        from memtui.app import run_comparison

        prepare()
        return run_comparison(runs)
    else:
        print("\n".join(map(visible, table(runs))))
    return 0


def read(paths: Sequence[Path]) -> list[Run]:
    """The trainings of sessions. Raises UserError."""
    if len(paths) > MOST:
        raise UserError(f"at most {MOST} trainings can be told apart, not {len(paths)}")
    runs = []
    for path in paths:
        reader = SessionReader(path)
        try:
            run = run_of(reader)
        finally:
            reader.close()
        if run is None:
            raise UserError(f"{path}: tells of no training; memtui train NETWORK -o FILE records one")
        runs.append(run)
    return told_apart(runs, paths)


def plain(run: Run, path: Path) -> dict[str, Any]:
    """An entry of the JSON document: figures, and the curves as pairs."""
    names = ("loss", "accuracy", "memory", "loss_s", "accuracy_s", "memory_s", "step")
    curves = {name: [getattr(run, name).x.tolist(), getattr(run, name).y.tolist()] for name in names}
    figures = {name: getattr(run, name) for name in Run.__dataclass_fields__ if name not in names}
    return {"session": str(path), **figures, "curves": curves}


def table(runs: Sequence[Run]) -> list[str]:
    """Lines of text: a head and one line for each training."""
    head = ("", "training", "iterations", "accuracy", "loss", "iteration", "peak above start", "against A", "in")
    rows = [head]
    for letter, run in zip(LETTERS, runs, strict=False):
        above = run.peak_above_start_bytes
        rows.append(
            (
                letter,
                run.title,
                f"{run.iterations:,}",
                f"{run.last_accuracy:.2f} %" if run.last_accuracy is not None else "n/a",
                f"{run.last_loss:.4g}" if run.last_loss is not None else "n/a",
                duration(run.step_ms / 1e3) if run.step_ms is not None else "n/a",
                size(above) if above is not None else "n/a",
                change_words(run, runs[0]) or "-",
                run.segment + (" alone" if run.one_segment and run.segment else ""),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
