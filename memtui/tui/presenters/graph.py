"""The graph of working set and resident memory over the time in sight: of all processes, or of a chosen one.

The working set of a chosen range is a separate line in the graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memtui.analysis.resident import RSS, ResidentKind, resident_bytes
from memtui.core.samples import Hello, Process, Status
from memtui.session.packed_column import Column
from memtui.session.session import Session
from memtui.tui.presenters.markers import StepTicks, TickLog
from memtui.tui.presenters.missing_pages import why_no_window
from memtui.tui.presenters.series import Series, process_sizes, range_wss
from memtui.tui.presenters.time_budget import TimeBudget
from memtui.tui.presenters.window_notes import WindowNotes, caveats
from memtui.tui.presenters.window_rows import WindowRows
from memtui.widgets.views.memory import Floats, GraphView, TimeAxis


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Working set and resident memory by window, and in the window at the cursor."""

    wss_bytes: Floats
    resident_bytes: Floats
    wss_now_bytes: float | None
    resident_now_bytes: float | None
    name: str  # of what resident memory is: RSS, PSS or a sum


class MemoryGraph:
    """Creates the view of the graph: of all processes, of a chosen process, and of a chosen range."""

    def __init__(self, reader: Session, rows: WindowRows) -> None:
        self._reader, self._rows = reader, rows
        self._range: Series | None = None
        self._process: Series | None = None
        self._pid: int | None = None
        self._step_ticks, self._resident = StepTicks(), ResidentKind()
        self._notes = WindowNotes(reader, rows)

    def focus_range(self, key: int | None) -> None:
        """Draw a line for one range; None: no line."""
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
        index: int,
        processes: list[Process],
        ticks: TickLog,
        range_name: str | None,
        budget: TimeBudget,
    ) -> tuple[GraphView, bool]:
        """Return the graph and whether it is complete.

        Args:
            axis: the time in sight.
            index: of the window at the cursor; -1: before the first.
            processes: those in sight.
            ticks: of the session.
            range_name: of the chosen range; None where none is chosen, or it is gone.
            budget: of the time for fetching lines.
        """
        samples = self._reader.samples
        # Whole extra windows at both ends, so that the picture begins and ends full.
        first = max(0, int(np.searchsorted(samples.end_ns, axis.start_ns)) - 1)
        last = min(len(samples.sample), int(np.searchsorted(samples.end_ns, axis.end_ns, side="right")) + 1)
        here = index - first if first <= index < last else -1
        sizes, sizes_complete = self._sizes(first, last, index, processes, budget)
        line, line_complete = self._range_line(first, last, index, budget) if range_name is not None else (None, True)
        inside = samples.end_ns[first:last] <= axis.end_ns
        in_sight = sizes.wss_bytes[inside & np.isfinite(sizes.wss_bytes)]
        note = _why_no_wss(self._reader.hello) or why_no_window(self._reader)
        if not note and index >= 0 and not len(in_sight):
            note = samples.reason[index] if samples.status[index] != Status.OK else ""
        view = GraphView(
            axis=axis,
            start_ns=samples.start_ns[first:last].astype(float),
            end_ns=samples.end_ns[first:last].astype(float),
            wss_bytes=sizes.wss_bytes,
            rss_bytes=sizes.resident_bytes,
            now_bytes=sizes.wss_now_bytes,
            max_bytes=float(in_sight.max()) if len(in_sight) else None,
            rss_now_bytes=sizes.resident_now_bytes,
            resident=sizes.name,
            note=note,
            caveats=caveats(samples, index, note) if index >= 0 else (),
            caption=self._notes.of_window(index, ticks, whole_tree=self._process is None) if index >= 0 else (),
            whose="" if self._pid is None else f"of pid {self._pid}",
            focus=range_name if range_name is not None and line is not None else "",
            focus_bytes=line,
            focus_now_bytes=finite_value(line, here) if line is not None else None,
            ticks=(*ticks.between(axis.start_ns, axis.end_ns), *self._step_ticks.between(self._reader, axis)),
        )
        return view, sizes_complete and line_complete

    def _sizes(
        self, first: int, last: int, index: int, processes: list[Process], budget: TimeBudget
    ) -> tuple[_Sizes, bool]:
        """Return the sizes of the windows from ``first`` to before ``last`` and whether they are complete."""
        samples = self._reader.samples
        if self._process is not None:
            (wss, rss), complete = self._process.view(self._reader, first, last, index, budget)
            here = index - first if first <= index < last else -1
            return _Sizes(wss, rss, finite_value(wss, here), finite_value(rss, here), RSS), complete
        kind = self._resident.of(samples, processes)
        now = finite_value(resident_bytes(samples, kind, slice(index, index + 1)), 0) if index >= 0 else None
        wss, rss = (
            sizes.astype(float)
            for sizes in (samples.wss_bytes[first:last], resident_bytes(samples, kind, slice(first, last)))
        )
        return _Sizes(wss, rss, finite_value(samples.wss_bytes, index), now, kind), True

    def _range_line(self, first: int, last: int, index: int, budget: TimeBudget) -> tuple[Floats | None, bool]:
        if self._range is None:
            return None, True
        (line,), complete = self._range.view(self._reader, first, last, index, budget)
        return line, complete


def finite_value(values: Floats | Column[np.float64], index: int) -> float | None:
    """Return the value of a window; None where it is not finite, and before the first window (index below 0)."""
    return float(values[index]) if index >= 0 and np.isfinite(values[index]) else None


def _why_no_wss(hello: Hello) -> str:
    if hello.wss.ok:
        return ""
    return hello.wss.reason + (f": {hello.wss.remedy}" if hello.wss.remedy else "")
