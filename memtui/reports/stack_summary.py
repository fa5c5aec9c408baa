"""The part of a report on call stacks: what they allocated, and what of that was touched and resident."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from memtui.analysis.stack_capture import call_text
from memtui.analysis.stack_groups import Groups
from memtui.core.call_stacks import CallStacks
from memtui.core.units import size
from memtui.reports.source import ReportSource
from memtui.reports.stack_sums import Columns, StackSums, Windows, stack_sums
from memtui.reports.window_means import COLD_SHARE, LISTED

CALLED_BY = " < "  # between a call and the one that made it
NAMED_CALLS = 100  # in the name of a stack
MOST_STACKS, MOST_CALLS = 4, 3  # in a report for people


@dataclass(frozen=True, slots=True)
class StackRow:
    """Bytes of a stack, or of all stacks in which a function or a file is.

    Attributes:
        name: the stack with its innermost call first, the function, or the file.
        peak_bytes: allocated when the process had allocated most.
        left_bytes: allocated at the end of the capture.
        allocations: how often it allocated.
        windows: in how many windows there was a block all the time; None: not known, or of several stacks.
        there_bytes: of blocks that were there in the whole window, a mean over all windows, as those below.
        touched_bytes: of these, what was touched.
        resident_bytes: of these, what was resident.
        passing_bytes: touched where blocks of this stack alone came or went.
    """

    name: str
    peak_bytes: int
    left_bytes: int
    allocations: int
    windows: int | None
    there_bytes: float | None
    touched_bytes: float | None
    resident_bytes: float | None
    passing_bytes: float | None


@dataclass(frozen=True, slots=True)
class StackSummary:
    """Bytes by call stack of one process.

    Attributes:
        pid: the process.
        peak_bytes: the most that was allocated at once.
        windows: count of windows that touched and resident bytes are means of.
        shared_bytes: touched in a window where blocks of several stacks came or went.
        outside_bytes: touched in a window where no captured block was: the interpreter, libraries, other allocators.
        reason: why there is no such window.
        resident_reason: why resident bytes are not known.
        stacks: the largest ones, by what was touched of them, then by what was allocated at the peak.
        coldest: those with the most untouched bytes that were there all the time, of those at most half touched.
        functions, files: the largest ones, each with all that they call.
    """

    pid: int
    peak_bytes: int
    windows: int
    shared_bytes: float | None
    outside_bytes: float | None
    reason: str
    resident_reason: str
    stacks: tuple[StackRow, ...]
    coldest: tuple[StackRow, ...]
    functions: tuple[StackRow, ...]
    files: tuple[StackRow, ...]


def stack_summaries(reader: ReportSource) -> tuple[StackSummary, ...]:
    """Return the summary of every captured process. Raises SessionError."""
    return tuple(map(summary_of, stack_sums(reader)))


def summary_of(sums: StackSums) -> StackSummary:
    """Return the summary of one process."""
    capture = sums.capture
    rows = stack_rows(sums)

    def name(number: int) -> str:
        return stack_name(capture.stacks, number) if number < len(capture.stacks) else ""

    functions, files = (Groups(capture.stacks, by) for by in ("function", "file"))
    return StackSummary(
        pid=capture.pid,
        peak_bytes=sums.most_bytes,
        windows=sums.windows,
        shared_bytes=sums.shared_bytes,
        outside_bytes=sums.outside_bytes,
        reason=sums.reason,
        resident_reason=sums.reason or sums.resident_reason,
        stacks=_largest(name, rows, sums.there_windows),
        coldest=_coldest(name, rows, sums.there_windows),
        functions=_largest(functions.names.__getitem__, functions.columns(rows)),
        files=_largest(files.names.__getitem__, files.columns(rows)),
    )


def stack_rows(sums: StackSums) -> Columns:
    """Return the columns of a ``StackRow`` after its name, one number for each stack."""
    return [
        sums.peak_bytes,
        sums.left_bytes,
        sums.allocations,
        sums.there_bytes,
        sums.touched_bytes,
        sums.resident_bytes,
        sums.passing_bytes,
    ]


def stack_name(stacks: CallStacks, number: int) -> str:
    """Return a stack as text, the innermost call first; of a deep one it says how many calls it leaves out."""
    calls = [call_text(frame) for frame in stacks.stack(number, NAMED_CALLS)]
    more = stacks.depth[number] - len(calls)
    return CALLED_BY.join([*calls, f"{more:,} more"] if more else calls)


def _largest(name: Callable[[int], str], columns: Columns, windows: Windows = None) -> tuple[StackRow, ...]:
    peak, touched, passing = columns[0], columns[4], columns[6]
    assert peak is not None
    used = np.zeros(len(peak)) if touched is None or passing is None else touched + passing
    order = np.lexsort((-peak, -used))[:LISTED]
    return tuple(
        row_of(name(number), columns, number, windows) for number in order.tolist() if peak[number] or used[number]
    )


def _coldest(name: Callable[[int], str], columns: Columns, windows: Windows) -> tuple[StackRow, ...]:
    there, touched = columns[3:5]
    if there is None or touched is None:
        return ()
    cold = np.flatnonzero((touched <= COLD_SHARE * there) & (there > 0))
    coldest = cold[np.argsort((touched - there)[cold], kind="stable")][:LISTED].tolist()
    return tuple(row_of(name(number), columns, number, windows) for number in coldest)


def row_of(name: str, columns: Columns, number: int, windows: Windows) -> StackRow:
    """Return one number of each column."""
    values = [None if column is None else float(column[number]) for column in columns]
    peak, left, count = (int(value or 0) for value in values[:3])
    return StackRow(name, peak, left, count, None if windows is None else int(windows[number]), *values[3:])


def stack_lines(summaries: Sequence[StackSummary]) -> list[str]:
    """Return the lines of the report."""
    several = len(summaries) > 1
    return [line for summary in summaries for line in _lines(summary, f"of pid {summary.pid}, " if several else "")]


def _lines(summary: StackSummary, whose: str) -> list[str]:
    if summary.reason:
        listed = "; ".join(f"{_short(row.name)} {size(row.peak_bytes)}" for row in summary.stacks[:MOST_STACKS])
        return [
            f"by stack     {whose}allocated at the peak of {size(summary.peak_bytes)}: {listed}",
            f"not known    what of it was touched or resident: {summary.reason}",
        ]
    listed = "; ".join(_use(row, summary.windows) for row in summary.stacks[:MOST_STACKS])
    lines = [
        f"by stack     {whose}touched in a window, of what was there all the time: {listed}; where blocks of several "
        f"stacks came and went {size(summary.shared_bytes)}, outside of all blocks {size(summary.outside_bytes)}; "
        f"mean of {summary.windows} windows"
    ]
    if summary.coldest:
        lines.append(
            f"cold stacks  {whose}{'; '.join(_use(row, summary.windows) for row in summary.coldest[:MOST_STACKS])}"
        )
    if summary.resident_reason:
        lines.append(f"not known    what of the blocks was resident: {summary.resident_reason}")
    return lines


def _use(row: StackRow, windows: int) -> str:
    """Return the use of a stack: of what was there, means of the windows in which anything of it was."""
    some = windows / (row.windows or windows)
    touched, there = (some * (value or 0) for value in (row.touched_bytes, row.there_bytes))
    resident = "" if row.resident_bytes is None else f", resident {size(some * row.resident_bytes)}"
    steady = f" {size(touched)} of {size(there)}{resident}" if there else ""
    late = f" (in {row.windows} windows)" if there and row.windows != windows else ""
    passing = f" {size(row.passing_bytes)} that came and went" if row.passing_bytes else ""
    passing += " in a mean window" * bool(passing and late)
    return f"{_short(row.name)}{steady}{late}{' and' * bool(steady and passing)}{passing}"


def _short(name: str) -> str:
    calls = name.split(CALLED_BY)
    return CALLED_BY.join(calls[:MOST_CALLS]) if name else "(stack not known)"
