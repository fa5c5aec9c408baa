"""Figures of sessions compared with those of the first, different conditions, and why these matter."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from memtui.analysis.resident import PSS, RSS, SUM_OF_RSS
from memtui.core.options import LETTERS
from memtui.core.units import between, duration, energy, percent, power, size
from memtui.reports.comparison.model import (
    OF_BURSTS,
    CommonWindows,
    ComparedSession,
    ComparedTraining,
    RecordedMemory,
    against,
    letters,
)
from memtui.reports.power_summary import PowerSummary

Form = Callable[[float | None], str]
Value = TypeVar("Value", bound=Hashable)


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:,.0f}"


FIGURES: Mapping[str, tuple[str, Form]] = {
    "windows": ("windows", _number),
    "duration_s": ("time in windows", duration),
    "true_interval_s": ("true window, median", duration),
    "wss_median_bytes": ("WSS, median", size),
    "wss_p95_bytes": ("WSS, 95 %", size),
    "rss_median_bytes": ("RSS, median", size),
    "rss_p95_bytes": ("RSS, 95 %", size),
    "pss_median_bytes": ("PSS, median", size),
    "pss_p95_bytes": ("PSS, 95 %", size),
    "mapped_max_bytes": ("VM, most", size),
    "reuse_p50_bytes": ("half return within at most", size),
    "reuse_p95_bytes": ("95 % return within at most", size),
    "reuse_p50_estimate_bytes": ("half, if in random order", size),
    "reuse_p95_estimate_bytes": ("95 %, if in random order", size),
    "burst_p50_estimate_bytes": ("half, of touches in bursts", size),
    "burst_p95_estimate_bytes": ("95 %, of touches in bursts", size),
    "knee_bytes": ("knee of reuse", size),
    "knee_share": ("touches held there", percent),
}
OF_WSS = ("wss_median_bytes", "wss_p95_bytes")
OF_PSS = ("pss_median_bytes", "pss_p95_bytes")
OF_RSS = ("rss_median_bytes", "rss_p95_bytes")
UNCHANGED = ("windows", "duration_s", "true_interval_s", "knee_share")  # how much more of them says nothing
OF_WINDOWS = (
    *OF_WSS,
    *("reuse_p50_bytes", "reuse_p95_bytes"),
    *("reuse_p50_estimate_bytes", "reuse_p95_estimate_bytes", "knee_bytes"),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A line of the table.

    Attributes:
        name: key in JSON.
        label: text for people.
        cells: value of each session, as text.
        values: value of each session, as number or text; None: unknown.
        changes: relative change to the first session, as text; "" where it is meaningless, as with sizes from windows
            of another length.
        reasons: reasons of unknown values.
    """

    name: str
    label: str
    cells: tuple[str, ...]
    values: tuple[float | str | None, ...]
    changes: tuple[str, ...]
    reasons: tuple[str, ...]


def figure_rows(memories: Sequence[RecordedMemory | None]) -> list[Difference]:
    """Return figures in the order of ``FIGURES``, those of bursts where one session has them, then power by source."""
    rows = []
    for name, (label, form) in FIGURES.items():
        values = [None if memory is None else memory.figures.get(name) for memory in memories]
        reasons = ["no window was recorded" if memory is None else memory.reasons.get(name, "") for memory in memories]
        if any(_has_row(memory, name) for memory in memories if memory is not None):
            row = _row(name, label, form, values, reasons)
            if name in OF_WINDOWS:
                row = _without_other_windows(row, memories)
            if name in OF_WSS:
                row = _with_bounds(row, memories)
            rows.append(_of_kinds(row, memories) if name in (*OF_RSS, *OF_PSS) else row)
    sources = dict.fromkeys((source.device, source.scope) for memory in memories if memory for source in memory.power)
    return rows + [row for device, scope in sources for row in _power_rows(memories, device, scope)]


def figure_rows_of(same: CommonWindows) -> list[Difference]:
    """Return the figures of windows of one length, without those that no session has of them."""
    return [row for row in figure_rows(same.memories) if any(value is not None for value in row.values)]


def _has_row(memory: RecordedMemory, name: str) -> bool:
    if name in OF_PSS and memory.resident == RSS:
        return False  # it is the RSS
    return name in memory.figures and (name not in OF_BURSTS or memory.figures[name] is not None)


def _power_rows(memories: Sequence[RecordedMemory | None], device: str, scope: str) -> list[Difference]:
    """Return mean power and energy of a source, as far as at least one session knows them."""
    sources = [_source(memory, device, scope) for memory in memories]
    reasons = ["no such source" if source is None else source.reason for source in sources]
    watts = [None if source is None else source.mean_w for source in sources]
    joules = [None if source is None else source.energy_j for source in sources]
    return [
        _row(f"{device} {scope} {name}", f"{device} {scope}, {label}", form, values, reasons)
        for name, label, form, values in (
            ("mean_w", "mean power", power, watts),
            ("energy_j", "energy", energy, joules),
        )
        if any(value is not None for value in values)
    ]


def training_rows(runs: Sequence[ComparedTraining | None]) -> list[Difference]:
    """Return the figures of trainings, where at least one session has one."""
    if not any(runs):
        return []
    return [
        _row(
            name,
            label,
            form,
            [None if run is None else getattr(run, name) for run in runs],
            ["no training" if run is None else "not told" for run in runs],
            compared=compared,
        )
        for name, label, form, compared in _OF_TRAINING
    ]


_OF_TRAINING: Sequence[tuple[str, str, Form, bool]] = (
    ("iterations", "iterations", _number, False),
    ("last_accuracy", "accuracy", lambda value: "n/a" if value is None else f"{value:.2f} %", False),
    ("last_loss", "loss", lambda value: "n/a" if value is None else f"{value:.4g}", False),
    ("step_ms", "iteration, median", lambda value: duration(None if value is None else value / 1e3), True),
    ("peak_above_start_bytes", "peak above start", size, True),
    ("peak_bytes", "peak", size, True),
)


def _without_other_windows(row: Difference, memories: Sequence[RecordedMemory | None]) -> Difference:
    """Return a row that depends on the length of windows, compared with windows of the same length only."""
    lengths = [None if memory is None else memory.interval_s for memory in memories]
    changes = zip(row.changes, lengths, strict=True)
    return replace(row, changes=tuple(change if length == lengths[0] else "" for change, length in changes))


def _with_bounds(row: Difference, memories: Sequence[RecordedMemory | None]) -> Difference:
    """Return a row of the working set: where more may have been touched, it is at least so much."""
    cells = (
        f"≥{cell}" if memory is not None and memory.lower_bound and value is not None else cell
        for cell, value, memory in zip(row.cells, row.values, memories, strict=True)
    )
    return replace(row, cells=tuple(cells))


def _of_kinds(row: Difference, memories: Sequence[RecordedMemory | None]) -> Difference:
    """Return a row of resident memory: a sum of RSS, and a PSS, are not compared with the RSS of one process."""
    alone = [memory is None or memory.resident == RSS for memory in memories]
    if all(alone):
        return row
    changes = zip(row.changes, alone, strict=True)
    return replace(
        row,
        label=row.label.replace(RSS, SUM_OF_RSS).replace(PSS, f"{PSS}, of one its RSS" if any(alone) else PSS),
        changes=tuple(change if is_alone == alone[0] else "" for change, is_alone in changes),
    )


def condition_rows(sessions: Sequence[ComparedSession]) -> list[Difference]:
    """Return the conditions that differ between sessions."""
    rows = []
    for name in sessions[0].conditions:
        values = tuple(session.conditions.get(name, "") for session in sessions)
        if len(set(values)) > 1:
            rows.append(Difference(name, name, values, values, ("",) * len(values), ("",) * len(values)))
    return rows


def notes(sessions: Sequence[ComparedSession], same: CommonWindows | None) -> list[str]:
    """Return the notes for a comparison of the figures, most important first."""
    lines = []
    by_length = _indices_by(
        (session.memory.interval_s, index) for index, session in enumerate(sessions) if session.memory is not None
    )
    if len(by_length) > 1:
        lengths = ", ".join(
            f"{letters(indices)} {between(*map(duration, length))}" for length, indices in by_length.items()
        )
        lines.append(
            f"windows differ ({lengths}): working sets and reuse of different windows are not directly comparable"
            + _merging_clause(same)
        )
    for name, text in _MATTERS.items():
        groups = _indices_by((session.conditions.get(name, ""), index) for index, session in enumerate(sessions))
        if len(groups) > 1:
            values = ", ".join(f"{letters(indices)} {value}" for value, indices in groups.items())
            lines.append(f"{name} differs ({values}): {text}")
    doubts = _indices_by((text, index) for index, session in enumerate(sessions) for text in session.doubts)
    return lines + [f"{letters(indices)}: {text}" for text, indices in doubts.items()]


def _indices_by(pairs: Iterable[tuple[Value, int]]) -> dict[Value, list[int]]:
    """Return the indices of each value, values in the order in which they come first."""
    indices: dict[Value, list[int]] = {}
    for value, index in pairs:
        indices.setdefault(value, []).append(index)
    return indices


_MATTERS = {
    "tracker": "trackers do not see the same touches",
    "pause": "without a pause touches are missed while pages are read",
    "filter": "reuse is that of what filters kept; the WSS counts all",
    "children": "the figures are of a tree here and of one process there",
    "machine": "a window holds more on a faster machine, and power is that of other devices",
}


def _merging_clause(same: CommonWindows | None) -> str:
    if same is None:
        return ""
    if same.reason:
        return f"; they cannot be merged to one length: {same.reason}"
    if same.selected_s is not None:
        return f"; those of {same.windows} are"
    left = "".join(f"; not {letters([index])}: {why}" for index, why in same.reasons.items())
    return f"; merged to {duration(same.interval_s)} they are{left}"


def window_text(memories: Sequence[RecordedMemory | None]) -> str:
    """Return ``windows of 200 ms``, or of the shortest to the longest."""
    intervals_s = [memory.interval_s for memory in memories if memory is not None]
    if not intervals_s:
        return ""
    shortest, longest = min(low for low, _ in intervals_s), max(high for _, high in intervals_s)
    return f"windows of {between(duration(shortest), duration(longest))}"


def resident_text(memories: Sequence[RecordedMemory | None]) -> str:
    """Return the name of the line of resident memory: ``RSS``, or ``PSS or RSS`` where sessions differ."""
    return " or ".join(sorted({memory.resident for memory in memories if memory is not None})) or RSS


def _source(memory: RecordedMemory | None, device: str, scope: str) -> PowerSummary | None:
    sources = memory.power if memory is not None else ()
    return next((source for source in sources if (source.device, source.scope) == (device, scope)), None)


def _row(
    name: str,
    label: str,
    form: Form,
    values: Sequence[float | None],
    reasons: Sequence[str],
    *,
    compared: bool = True,
) -> Difference:
    """Return a row of the table. ``compared``: whether it has changes to the first session."""
    why = tuple(reason if value is None else "" for value, reason in zip(values, reasons, strict=True))
    if name in UNCHANGED or not compared:
        changes = ("",) * len(values)
    else:
        changes = ("", *(against(value, values[0]) for value in values[1:]))
    return Difference(name, label, tuple(map(form, values)), tuple(values), changes, why)


def sentences(sessions: Sequence[ComparedSession], same: CommonWindows | None) -> list[str]:
    """Return sentences on the change of the other sessions to the first, of comparable figures only."""
    recorded = [session.memory for session in sessions]
    lines = []
    for index, session in enumerate(sessions[1:], 1):
        clauses = _of_memory(index, recorded, same) + _of_training(session.training, sessions[0].training)
        if clauses:
            lines.append(f"{LETTERS[index]} against A: {'; '.join(clauses)}.")
    return lines


def _of_memory(index: int, recorded: Sequence[RecordedMemory | None], same: CommonWindows | None) -> list[str]:
    memory, first = recorded[index], recorded[0]
    if memory is None or first is None:
        return []
    if memory.interval_s == first.interval_s:
        clauses = _of_windows(memory, first, window_text([memory]))
    else:
        pair = (same.memories[index], same.memories[0]) if same is not None and not same.reason else (None, None)
        clauses = _of_windows(*pair, same.windows if same is not None else "")
    if {memory.resident, first.resident} == {RSS}:
        return clauses + _compared(memory, first, "rss_median_bytes", "median RSS")
    # A sum of RSS cannot be compared with the RSS of one process.
    return clauses + _compared(memory, first, "pss_median_bytes", "median PSS")


def _of_windows(memory: RecordedMemory | None, first: RecordedMemory | None, windows: str) -> list[str]:
    """Return sentences on figures that depend on the length of windows; ``windows``: which these are."""
    if memory is None or first is None:
        return ["windows of different lengths, so that working sets and reuse are not held against each other"]
    clauses = _compared(memory, first, "wss_median_bytes", "median WSS")
    clauses += _compared(memory, first, "reuse_p95_bytes", "95 % of returning touches come back within at most")
    if not clauses:
        return []
    return [*clauses[:-1], f"{clauses[-1]} ({windows})"]


def _compared(memory: RecordedMemory, first: RecordedMemory, name: str, label: str) -> list[str]:
    value, of_first = memory.figures.get(name), first.figures.get(name)
    if value is None or not of_first:
        return []
    least, least_of_first = ("at least " if name in OF_WSS and of.lower_bound else "" for of in (memory, first))
    return [f"{label} {least}{size(value)} instead of {least_of_first}{size(of_first)}, {_more(value / of_first - 1)}"]


def _of_training(run: ComparedTraining | None, first: ComparedTraining | None) -> list[str]:
    if run is None or first is None:
        return []
    clauses = []
    if run.last_accuracy is not None and first.last_accuracy is not None:
        clauses.append(f"accuracy {run.last_accuracy:.1f} % instead of {first.last_accuracy:.1f} %")
    if run.peak_above_start_bytes and first.peak_above_start_bytes:
        share = run.peak_above_start_bytes / first.peak_above_start_bytes - 1
        clauses.append(f"peak of an iteration {size(run.peak_above_start_bytes)} above its start, {_more(share)}")
    return clauses


def _more(share: float) -> str:
    if abs(share) < 0.0005:
        return "the same"
    return f"{abs(share) * 100:.1f} % {'more' if share > 0 else 'less'}"
