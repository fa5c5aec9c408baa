"""A comparison of sessions: read, as text, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memtui.analysis.lines import Line
from memtui.core.errors import UserError
from memtui.core.json_fields import to_json
from memtui.core.options import LETTERS
from memtui.core.text import short_command
from memtui.core.units import duration, size
from memtui.reports.comparison.common_windows import differ, in_same_windows
from memtui.reports.comparison.differences import (
    FIGURES,
    Difference,
    condition_rows,
    figure_rows,
    figure_rows_of,
    notes,
    sentences,
)
from memtui.reports.comparison.load import names, recorded
from memtui.reports.comparison.model import (
    CommonWindows,
    ComparedSession,
    ComparedTraining,
    RecordedMemory,
    change_text,
)
from memtui.reports.comparison.training import with_distinct_titles
from memtui.reports.source import ReportSource


def read(readers: Sequence[ReportSource], paths: Sequence[Path], *, redact: bool = False) -> list[ComparedSession]:
    """Return the sessions. Raises UserError."""
    sessions = [recorded(reader, name) for reader, name in zip(readers, names(paths, redact=redact), strict=True)]
    for path, session in zip(paths, sessions, strict=True):
        if session.training is None and session.memory is None:
            raise UserError(
                f"{path}: holds no window and no training, so there is nothing to compare (of the file of another tool "
                "memtui breakdown shows what memory is made of)"
            )
    return with_distinct_titles(sessions)


def same_windows(sessions: Sequence[ComparedSession], readers: Sequence[ReportSource]) -> CommonWindows | None:
    """Return all sessions in windows of one length; None where they have one length already. Raises SessionError."""
    memories = [session.memory for session in sessions]
    return in_same_windows(readers, memories) if differ(memories) else None


def to_dict(sessions: Sequence[ComparedSession], same: CommonWindows | None, titles: Sequence[str]) -> dict[str, Any]:
    """Return the document of ``--json``: figures, curves as pairs, and changes to the first session."""
    memories = [session.memory for session in sessions]
    rows = [*figure_rows(memories), *condition_rows(sessions)]
    return {
        "sessions": [
            {
                "session": title,
                "name": session.name,
                "program": session.program,
                "conditions": dict(session.conditions),
                "training": None if session.training is None else _training(session.training),
                "memory": None if session.memory is None else _memory(session.memory),
            }
            for title, session in zip(titles, sessions, strict=True)
        ],
        "differences": [{"name": row.name, "values": list(row.values), "against_first": _shares(row)} for row in rows],
        "sentences": sentences(sessions, same),
        "notes": notes(sessions, same),
        "same_windows": None
        if same is None
        else {
            "interval_s": same.interval_s or None,
            "selected_s": same.selected_s,
            "reason": same.reason,
            "sessions": [None if memory is None else _memory(memory) for memory in same.memories],
        },
    }


def _shares(row: Difference) -> list[float | None]:
    """Return the relative change of each value to the first, 0.1: a tenth more; None where it is meaningless."""
    first = row.values[0]
    return [
        value / first - 1 if change and isinstance(value, float | int) and isinstance(first, float | int) else None
        for value, change in zip(row.values, row.changes, strict=True)
    ]


def _training(run: ComparedTraining) -> dict[str, Any]:
    lines = ("loss", "accuracy", "memory", "loss_s", "accuracy_s", "memory_s", "step")
    figures = {name: getattr(run, name) for name in ComparedTraining.__dataclass_fields__ if name not in lines}
    return {**figures, "curves": {name: _pairs(getattr(run, name)) for name in lines}}


def _memory(memory: RecordedMemory) -> dict[str, Any]:
    return {
        "interval_s": list(memory.interval_s),
        **memory.figures,
        "reasons": dict(memory.reasons),
        "power": to_json(memory.power),
        "curves": {name: _pairs(getattr(memory, name)) for name in ("wss", "rss", "mapped", "reuse")},
    }


def _pairs(line: Line) -> list[list[float | None]]:
    return [line.x.tolist(), [None if np.isnan(value) else value for value in line.y.tolist()]]


def text(sessions: Sequence[ComparedSession], same: CommonWindows | None) -> list[str]:
    """Return the lines: trainings, figures, different conditions, and notes."""
    memories = [session.memory for session in sessions]
    lettered = list(zip(LETTERS, sessions, strict=False))
    parts = [[f"{letter}  {session.name}: {short_command(session.program, 100)}" for letter, session in lettered]]
    runs = [(letter, session.training) for letter, session in lettered if session.training is not None]
    if runs:
        parts.append(table(runs))
    if rows := figure_rows(memories):
        parts.append(_aligned(rows, len(sessions)))
    if same is not None and not same.reason:
        lines = _aligned(figure_rows_of(same), len(sessions))
        parts.append([f"in {same.windows}:", *lines])
    if rows := condition_rows(sessions):
        parts.append(["conditions that differ:", *_aligned(rows, len(sessions))])
    if lines := notes(sessions, same):
        parts.append(lines)
    return [line for number, part in enumerate(parts) for line in ([""] * bool(number) + part)]


def _aligned(rows: Sequence[Difference], count: int) -> list[str]:
    """Return a column for each session, with its change to the first."""
    head = ["", *LETTERS[:count]]
    figures = any(row.name in FIGURES for row in rows)
    cells = [
        [
            row.label,
            *(
                f"{cell}  {change:>8}" if figures and any(row.changes) and number else cell
                for number, (cell, change) in enumerate(zip(row.cells, row.changes, strict=True))
            ),
        ]
        for row in rows
    ]
    widths = [max(len(line[column]) for line in [head, *cells]) for column in range(count + 1)]
    return [
        "   ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in [head, *cells]
    ]


def table(runs: Sequence[tuple[str, ComparedTraining]]) -> list[str]:
    """Return the lines: a head and one line for each training."""
    head = ("", "training", "iterations", "accuracy", "loss", "iteration", "peak above start", "against", "in")
    first = runs[0][1]
    rows = [(*head[:-2], f"against {runs[0][0]}", head[-1])]
    for letter, run in runs:
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
                change_text(run, first) or "-",
                run.segment + (" alone" if run.one_segment and run.segment else ""),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
