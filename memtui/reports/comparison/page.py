"""``memtui compare --html``: a comparison of sessions as one self-contained page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from memtui.analysis.lines import Line
from memtui.analysis.page_raster import Picture
from memtui.core.options import LETTERS
from memtui.core.units import duration
from memtui.reports.charts.model import Chart, ChartLine, HeatChart, Table
from memtui.reports.comparison.differences import (
    Difference,
    condition_rows,
    figure_rows,
    figure_rows_of,
    notes,
    resident_text,
    sentences,
    training_rows,
    window_text,
)
from memtui.reports.comparison.model import CommonWindows, ComparedSession
from memtui.reports.figures.svg import escape
from memtui.reports.html import dim, document, figures, findings_table, section

MIB = 1 << 20
METHOD = (
    "Time counts from the start of each session. WSS and RSS are those of the whole tree of processes; VM is the sum "
    "of the mapped ranges, each with the extent it has over its session.",
    "Reuse: the share of all touches, first ones included, that an LRU memory of a size certainly holds; the order "
    "inside a window is not known, so the curve drawn is that of the upper bounds of the distances. The miss ratio is "
    "what is left of it. A touch is one page in one window, so a curve belongs to the length of its windows.",
    "Knee: where the curve lies highest above the line from its begin to its end; one that bends by less than 0.3 of 1 "
    "has none.",
)
MERGED = (
    "Windows of one length: neighbouring windows are merged, and what was touched in one of them was touched in the "
    "long one. That is known of the stored pages of the process with the most of them, so both sides are of that "
    "process alone, without what a filter kept out."
)


def page(
    sessions: Sequence[ComparedSession],
    same: CommonWindows | None,
    pictures: Sequence[Picture | None],
    draw: Callable[[Chart | HeatChart], str],
) -> str:
    """Return the whole document.

    Args:
        sessions: the sessions.
        same: the sessions in windows of one length, where their windows differ.
        pictures: accesses by address and time, of each session.
        draw: draws a chart as an SVG document.
    """
    title = f"{len(sessions)} sessions over one another"
    labels = [f"{letter} {session.name}" for letter, session in zip(LETTERS, sessions, strict=False)]
    memories = [session.memory for session in sessions]
    charts: list[Chart | HeatChart] = [
        *_trainings(sessions, labels),
        *_memory(sessions, labels),
        *_merged(same, labels),
        *_heat(sessions, labels, pictures),
    ]
    merged = same is not None and not same.reason and same.selected_s is None
    conditions = condition_rows(sessions)
    parts = [
        f"<h1>{escape(title)}</h1>",
        *(dim(f"{label}: {session.program}") for label, session in zip(labels, sessions, strict=True)),
        section("In words", sentences(sessions, same)),
        section("To be known before they are held against one another", notes(sessions, same), "wrong"),
        figures(charts, draw) if charts else "",
        _table("Trainings", labels, training_rows([session.training for session in sessions])),
        _table("Figures, and how much more than in A", labels, figure_rows(memories)),
    ]
    if same is not None and not same.reason:
        parts.append(_table(f"In {same.windows}", labels, figure_rows_of(same)))
    if conditions:
        parts.append(_table("Conditions that differ", labels, conditions))
    parts.append(section("Method", [*METHOD, MERGED] if merged else METHOD))
    return document("memtui compare: " + ", ".join(labels), "\n".join(filter(None, parts)))


def _table(title: str, labels: Sequence[str], rows: Sequence[Difference]) -> str:
    """Return a row for each figure; an unknown figure has its reason in its place."""
    if not rows:
        return ""
    cells = [[row.label, *map(_cell, row.cells, row.changes, row.reasons)] for row in rows]
    return findings_table(Table(title, ("", *labels), cells))


def _cell(cell: str, change: str, reason: str) -> str:
    if reason:
        return f"{cell}: {reason}"
    return f"{cell} ({change})" if change else cell


def _lines(labels: Sequence[str], values: Sequence[Line], scale: float = 1.0) -> list[ChartLine]:
    return [ChartLine(label, line.x, line.y / scale) for label, line in zip(labels, values, strict=True) if len(line.x)]


def _chart(
    name: str, title: str, across: str, up: str, lines: Sequence[ChartLine], *, from_zero: bool = True, note: str = ""
) -> list[Chart]:
    return [Chart(name, title, across, up, lines, from_zero=from_zero, note=note)] if lines else []


def _memory(sessions: Sequence[ComparedSession], labels: Sequence[str]) -> list[Chart]:
    """Return the charts of memory, over time and by size."""
    pairs = zip(labels, sessions, strict=True)
    recorded = [(label, session.memory) for label, session in pairs if session.memory is not None]
    named, memories = [label for label, _ in recorded], [memory for _, memory in recorded]
    window = window_text(memories)
    since = "seconds since the session began"
    wss, rss, mapped = (
        _lines(named, [getattr(memory, name) for memory in memories], MIB) for name in ("wss", "rss", "mapped")
    )
    return [
        *_chart("wss", f"Working set over time, {window}", since, "WSS (MiB)", _with_values(wss)),
        *_chart("rss", "Resident set over time", since, f"{resident_text(memories)} (MiB)", _with_values(rss)),
        *_chart("vm", "Address space over time", since, "VM (MiB)", mapped),
        *_reuse("reuse", window, named, [memory.reuse for memory in memories]),
    ]


def _with_values(lines: Sequence[ChartLine]) -> list[ChartLine]:
    return [line for line in lines if np.isfinite(line.y).any()]


def _reuse(name: str, window: str, labels: Sequence[str], curves: Sequence[Line]) -> list[Chart]:
    hits = [
        ChartLine(label, curve.x / MIB, curve.y / 100)
        for label, curve in zip(labels, curves, strict=True)
        if len(curve.x)
    ]
    misses = [ChartLine(line.name, line.x, 1 - np.asarray(line.y)) for line in hits]
    across = "memory (MiB)"
    return [
        *_chart(name, f"Touches that a memory certainly holds, {window}", across, "share of touches", hits),
        *_chart(f"{name}-misses", f"Miss ratio at most, {window}", across, "share of touches", misses),
    ]


def _merged(same: CommonWindows | None, labels: Sequence[str]) -> list[Chart]:
    if same is None or same.reason or same.selected_s is not None:
        return []
    merged = [(label, memory) for label, memory in zip(labels, same.memories, strict=True) if memory is not None]
    named, memories = [label for label, _ in merged], [memory for _, memory in merged]
    window = f"windows of {duration(same.interval_s)} for all"
    lines = _with_values(_lines(named, [memory.wss for memory in memories], MIB))
    title = f"Working set over time, {window}"
    note = "Of the stored pages of one process; shorter windows are merged."
    return [
        *_chart("wss-merged", title, "seconds since the session began", "WSS (MiB)", lines, note=note),
        *_reuse("reuse-merged", window, named, [memory.reuse for memory in memories]),
    ]


def _trainings(sessions: Sequence[ComparedSession], labels: Sequence[str]) -> list[Chart]:
    """Return loss, accuracy and memory of tensors, of the sessions that have a training."""
    pairs = zip(labels, sessions, strict=True)
    runs = [(label, session.training) for label, session in pairs if session.training is not None]
    named = [label for label, _ in runs]

    def lines(name: str, scale: float = 1.0) -> list[ChartLine]:
        return _lines(named, [getattr(run, name) for _, run in runs], scale)

    steps = "allocations and frees of one iteration, in their order (%)"
    return [
        *_chart("loss", "Loss", "iteration", "loss", lines("loss"), from_zero=False),
        *_chart("accuracy", "Accuracy", "iteration", "accuracy (%)", lines("accuracy")),
        *_chart("tensors", "Memory of tensors at the fullest moments", "iteration", "MiB", lines("memory", MIB)),
        *_chart("step", "Memory above the start of one iteration", steps, "MiB", lines("step", MIB)),
    ]


def _heat(
    sessions: Sequence[ComparedSession], labels: Sequence[str], pictures: Sequence[Picture | None]
) -> list[HeatChart]:
    """Return a picture of accesses by address and time for each session, on one axis of time."""
    memories = [session.memory for session in sessions]
    lengths = [float(memory.figures["duration_s"] or 0.0) if memory is not None else 0.0 for memory in memories]
    charts = []
    for label, session, picture, length in zip(labels, sessions, pictures, lengths, strict=True):
        if picture is None:
            continue
        note = (
            f"{picture.pages:,} pages of the process with the most of them were touched at some time; what never was "
            "is left out, so a row is not an address that another session has, too."
        )
        title = f"{label}: where and when, {window_text([session.memory])}"
        across, down = "seconds since the session began", "pages, by rising address"
        charts.append(
            HeatChart(
                f"heat-{label[0]}", title, across, down, picture.share, note=note, until=length, limit=max(lengths)
            )
        )
    return charts
