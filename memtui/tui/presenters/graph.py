"""The graph of working set and resident memory over the time in sight: of all processes, or of a chosen one.

A chosen range has a line of its own in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memtui.analysis.alike import like
from memtui.analysis.fast_numpy import median
from memtui.analysis.resident import RSS, resident
from memtui.analysis.working_set import NOTABLE_SHARE
from memtui.core.samples import Hello, Process, Status
from memtui.core.units import duration, size
from memtui.session.session import Session
from memtui.tui.presenters.markers import MarkLog, StepMarks
from memtui.tui.presenters.processes import pss_note
from memtui.tui.presenters.series import Series, process_sizes, range_wss
from memtui.tui.presenters.time_budget import TimeBudget
from memtui.tui.presenters.window_rows import WindowRows
from memtui.widgets.views.memory import Floats, GraphView, TimeAxis

if TYPE_CHECKING:
    from memtui.session.sample_table import SampleTable

ALIKE = "median, max: of windows of about {}"


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Working set and resident memory by window, and in the window at the cursor."""

    wss_bytes: Floats
    resident_bytes: Floats
    wss_now_bytes: float | None
    resident_now_bytes: float | None
    name: str  # of what resident memory is: RSS, PSS or a sum


class MemoryGraph:
    """Makes the view of the graph, of what was chosen last."""

    def __init__(self, reader: Session, rows: WindowRows) -> None:
        self._reader, self._rows = reader, rows
        self._range: Series | None = None
        self._process: Series | None = None
        self._pid: int | None = None
        self._step_marks = StepMarks()

    def focus_range(self, key: int | None) -> None:
        """Draw a line for one range; None: for none."""
        absent = 0.0 if self._reader.hello.wss.ok else np.nan
        self._range = Series(range_wss(key), (absent,)) if key is not None else None

    def focus_process(self, pid: int, keys: frozenset[int]) -> None:
        """Draw the memory of one process, whose generations have the keys."""
        self._pid, self._process = pid, Series(process_sizes(keys), (np.nan, np.nan))

    def focus_all(self) -> None:
        """Draw the memory of all processes."""
        self._pid = self._process = None

    def view(
        self,
        axis: TimeAxis,
        at: int,
        processes: list[Process],
        marks: MarkLog,
        range_name: str | None,
        allowance: TimeBudget,
    ) -> tuple[GraphView, bool]:
        """Return the graph and whether it is complete.

        Args:
            axis: the time in sight.
            at: index of the window at the cursor; -1: before the first.
            processes: those in sight.
            marks: of the session.
            range_name: of the chosen range; None where none is chosen, or it is gone.
            allowance: how long lines may be fetched.
        """
        samples = self._reader.samples
        # Whole extra windows at both ends, so that the picture begins and ends full.
        first = max(0, int(np.searchsorted(samples.end_ns, axis.start_ns)) - 1)
        last = min(len(samples.sample), int(np.searchsorted(samples.end_ns, axis.end_ns, side="right")) + 1)
        here = at - first if first <= at < last else -1
        sizes, sizes_complete = self._sizes(first, last, at, processes, allowance)
        line, line_complete = self._range_line(first, last, at, allowance) if range_name is not None else (None, True)
        inside = samples.end_ns[first:last] <= axis.end_ns
        known, alike_s = _alike(samples, slice(first, last), here, inside, sizes.wss_bytes)
        note = _why_no_wss(self._reader.hello)
        if not note and at >= 0 and not len(known):
            note = samples.reason[at] if samples.status[at] != Status.OK else ""
        view = GraphView(
            axis=axis,
            begin_ns=samples.start_ns[first:last].astype(float),
            end_ns=samples.end_ns[first:last].astype(float),
            wss_bytes=sizes.wss_bytes,
            rss_bytes=sizes.resident_bytes,
            now_bytes=sizes.wss_now_bytes,
            median_bytes=median(known) if len(known) else None,
            max_bytes=float(known.max()) if len(known) else None,
            rss_now_bytes=sizes.resident_now_bytes,
            resident=sizes.name,
            note=note,
            caveats=caveats(samples, at, note) if at >= 0 else (),
            caption=self._caption(at, marks, alike_s) if at >= 0 else (),
            whose="" if self._pid is None else f"of pid {self._pid}",
            focus=range_name if range_name is not None and line is not None else "",
            focus_bytes=line,
            focus_now_bytes=known_at(line, here) if line is not None else None,
            marks=(*marks.between(axis.start_ns, axis.end_ns), *self._step_marks.between(self._reader, axis)),
        )
        return view, sizes_complete and line_complete

    def _sizes(
        self, first: int, last: int, at: int, processes: list[Process], allowance: TimeBudget
    ) -> tuple[_Sizes, bool]:
        """Return the sizes of the windows from ``first`` to before ``last`` and whether they are complete."""
        samples = self._reader.samples
        if self._process is not None:
            (wss, rss), complete = self._process.view(self._reader, first, last, at, allowance)
            here = at - first if first <= at < last else -1
            return _Sizes(wss, rss, known_at(wss, here), known_at(rss, here), RSS), complete
        whole = resident(samples, processes)
        wss, rss = samples.wss_bytes[first:last].astype(float), whole.bytes[first:last].astype(float)
        return _Sizes(wss, rss, known_at(samples.wss_bytes, at), known_at(whole.bytes, at), whole.name), True

    def _range_line(self, first: int, last: int, at: int, allowance: TimeBudget) -> tuple[Floats | None, bool]:
        if self._range is None:
            return None, True
        (line,), complete = self._range.view(self._reader, first, last, at, allowance)
        return line, complete

    def _caption(self, at: int, marks: MarkLog, alike_s: float | None) -> tuple[str, ...]:
        """Return what else is known of one window; ``alike_s``: how long those are that the median is of."""
        pss = pss_note(self._rows.at(at)) if self._process is None else ""
        text = window_notes(self._reader.samples, at, marks, pss)
        return text if alike_s is None else (*text, ALIKE.format(duration(alike_s)))


def caveats(samples: SampleTable, at: int, note: str) -> tuple[str, ...]:
    """Return what makes the working set of one window less than exact; ``note``: what is shown in place of it."""
    status, reason, unknown = samples.status[at], samples.reason[at], samples.unknown_bytes[at]
    parts = [f"disturbed: {samples.disturbed[at]}"] if samples.disturbed[at] else []
    if unknown > NOTABLE_SHARE * samples.wss_bytes[at]:  # nan is not
        parts.append(f"WSS {size(float(samples.wss_bytes[at]))} ({size(float(unknown))} unknown)")
    low, high = samples.wss_low_bytes[at], samples.wss_high_bytes[at]
    if np.isfinite(low):
        parts.append(f"estimated, 95 % interval {size(float(low))} to {size(float(high))}")
    if status != Status.OK and not note:  # the note says it in a better place
        parts.append(f"{status}: {reason}" if reason else str(status))
    return tuple(parts)


def window_notes(samples: SampleTable, at: int, marks: MarkLog, pss: str) -> tuple[str, ...]:
    """Return what happened in one window and what its numbers count; ``pss``: what to say of resident memory."""
    before_ns = int(samples.end_ns[at - 1]) if at else 0
    parts = [f"{mark.kind}: {mark.text}" for mark in marks.within(before_ns, int(samples.end_ns[at]))]
    if gaps := int(samples.gaps[at]):
        parts.append(f"{gaps} gap" + "s" * (gaps > 1))
    if samples.faulted_in_bytes[at] > 0:
        parts.append(f"first mapped {size(float(samples.faulted_in_bytes[at]))}")
    if pss:
        parts.append(pss)
    if np.isnan(samples.shared_bytes[at]) and not np.isnan(samples.wss_bytes[at]):
        parts.append("shared pages count for each process")
    return tuple(parts)


def known_at(values: Floats, index: int) -> float | None:
    """Return the value of a window; None where it is not known, and before the first window (below 0)."""
    return float(values[index]) if index >= 0 and np.isfinite(values[index]) else None


def _alike(
    samples: SampleTable, of: slice, here: int, inside: NDArray[np.bool_], wss_bytes: Floats
) -> tuple[Floats, float | None]:
    """Return the known working sets of windows as long as the one at the cursor, and how long they are.

    The length is None where all windows inside the picture are as long.

    Args:
        samples: all of the session.
        of: the windows in question.
        here: place among them of the one at the cursor; below 0: it is not among them.
        inside: bool[n], those that lie on the picture.
        wss_bytes: f8[n].
    """
    if here < 0:
        return wss_bytes[inside & np.isfinite(wss_bytes)], None
    alike = inside & like(samples.intervals_ns(of), here, exact=not samples.has_budget)
    known = wss_bytes[np.isfinite(wss_bytes) & alike]
    if (alike == inside).all():
        return known, None
    return known, median((samples.end_ns - samples.start_ns)[of][alike]) / 1e9


def _why_no_wss(hello: Hello) -> str:
    if hello.wss.ok:
        return ""
    return hello.wss.reason + (f": {hello.wss.remedy}" if hello.wss.remedy else "")
