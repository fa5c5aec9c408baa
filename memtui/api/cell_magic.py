"""``%%memtui`` in a notebook: the memory, time and energy of a cell."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

from memtui.api.recording import record
from memtui.api.sessions import open_tables
from memtui.core.errors import UserError
from memtui.core.units import duration
from memtui.recording.tracer.context import EVERY, tracing
from memtui.reports.report import build_report
from memtui.reports.text import format_report

# Of the report: what is about the cell, and not about the process or the recording.
_HEADS = ("working set", "resident", "sum of RSS", "energy", "training", "allocations", "at the peak", "verdict")


def load(shell: Any) -> None:
    """Add the magic to an IPython shell."""
    shell.register_magic_function(partial(measure_cell, shell), "cell", "memtui")


def measure_cell(shell: Any, line: str, cell: str) -> None:
    """Run a cell while this process is recorded, then print what it needed and draw its working set.

    Args:
        shell: the IPython shell.
        line: what stands behind ``%%memtui``: seconds between windows, or nothing.
        cell: the cell.
    """
    try:
        recording = record(None, _interval_s(line), None)
    except (UserError, ValueError) as error:
        print(f"memtui: the cell was not run: {error}", file=sys.stderr)
        return
    # A program that has torch may train with it: then its tensors are recorded, too.
    with recording, tracing(None, None, EVERY, None) if "torch" in sys.modules else nullcontext():
        began_s = time.monotonic()
        shell.run_cell(cell)
        took_s = time.monotonic() - began_s
    report = build_report(recording.path)
    print(f"time         {duration(took_s)}, recorded in {recording.path}")
    print("\n".join(each for each in format_report(report).splitlines() if each.startswith(_HEADS)))
    if report.samples > 1:
        with open_tables(recording.path) as session, suppress(UserError):  # matplotlib is not installed
            session.plot.show_working_set()


def _interval_s(line: str) -> float | None:
    try:
        return float(line) if line.strip() else None
    except ValueError:
        raise ValueError(f"%%memtui takes seconds between windows, and not {line!r}") from None
