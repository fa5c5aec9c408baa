"""Bytes by call stack in the window at the cursor, by stack, function or file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from memtui.analysis.stack_capture import StackCapture
from memtui.analysis.stack_groups import Groups
from memtui.analysis.stack_use import StackUse, covers, has_places, stack_use
from memtui.core.call_stacks import Frame
from memtui.core.lru_cache import LruCache
from memtui.reports.stack_summary import stack_name
from memtui.reports.stack_sums import NO_PLACES, NOT_JOINED, NOT_RESIDENT, Columns, allocated_by
from memtui.session.session import Session
from memtui.tui.presenters.playhead import Playhead
from memtui.widgets.views.stacks import GROUPS, SORTS, StacksView, StackUseRow

SHARED = "where blocks of several stacks came and went"
OUTSIDE = "outside of all blocks: libraries, the interpreter"
NO_STACK = "blocks whose call stack is not known"
NOTHING = "no capture of memray: memtui import CAPTURE --join SESSION"
_UNCOVERED = "the capture has nothing of this window"
_NO_PAGES = "no pages of this window are stored"
_KEPT_WINDOWS = 32
MOST_ROWS = 1000  # more are one row, and in the exports
_NO_STACK, _SHARED, _OUTSIDE, _MORE = -1, -2, -3, -4  # keys of rows
_SORTED_OTHERWISE = "at peak"  # where a column is not known
Order = tuple[str, str, bool]
"""Of ``GROUPS``, of ``SORTS``, and whether the largest comes first."""


class StackLog:
    """Reads the captures once, and caches the windows that were looked at."""

    def __init__(self) -> None:
        self._captures: list[_Captured] | None = None
        self._number = 0
        self.by, self.sort, self.descending = GROUPS[0], SORTS[0], True

    def next_group(self) -> None:
        """Add up by the next key."""
        self.by = GROUPS[(GROUPS.index(self.by) + 1) % len(GROUPS)]

    def next_sort(self) -> None:
        """Sort by the next column, the largest first."""
        self.sort, self.descending = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)], True

    def reverse(self) -> None:
        """Turn the order round."""
        self.descending = not self.descending

    def next_process(self, by: int) -> None:
        """Show another captured process."""
        self._number += by

    def view(self, reader: Session, head: Playhead) -> StacksView:
        """Return the view at the cursor. Raises SessionError."""
        if self._captures is None:
            self._captures = [_Captured(capture) for capture in reader.captures.all()]
        if not self._captures:
            return StacksView(self.by, note=NOTHING)
        captured = self._captures[self._number % len(self._captures)]
        order = self.by, self.sort, self.descending
        return captured.view(reader, head, order, several=len(self._captures) > 1)

    def calls(self, number: int) -> tuple[Frame, ...]:
        """Return the calls of a stack of the shown process, the innermost first."""
        if not self._captures:
            return ()
        return self._captures[self._number % len(self._captures)].capture.stacks.stack(number)


class _Captured:
    """One captured process."""

    def __init__(self, capture: StackCapture) -> None:
        self.capture = capture
        self._allocated = allocated_by(capture)
        self._groups: dict[str, Groups] = {}
        self._uses: LruCache[tuple[int, int], StackUse | None] = LruCache(_KEPT_WINDOWS)
        self._joinable = has_places(capture)
        self._shown: tuple[object, StacksView] = None, StacksView(GROUPS[0])

    def view(self, reader: Session, head: Playhead, order: Order, *, several: bool) -> StacksView:
        """Return the view at the cursor; the same object where nothing changed. Raises SessionError."""
        use, time_s, note, resident = self._window(reader, head)
        state = (use, time_s, note, resident, order, several)
        if state != self._shown[0]:
            view = self._view(use, order)
            self._shown = state, replace(view, several=several, time_s=time_s, note=note, resident=resident)
        return self._shown[1]

    def _view(self, use: StackUse | None, order: Order) -> StacksView:
        by, sort, descending = order
        touched = there = still = None
        if use is not None:
            touched, there = (use.touched_bytes + use.passing_bytes).astype(float), use.steady_bytes.astype(float)
            still = None if use.resident_bytes is None else use.resident_bytes.astype(float)
        columns: Columns = [touched, still, there, self._allocated.peak_bytes, self._allocated.allocations]
        unknown = _row(_NO_STACK, NO_STACK, columns, -1)
        others = [unknown] if unknown.peak_bytes or unknown.touched_bytes else []
        if use is not None:
            sums = (_SHARED, SHARED, use.shared_bytes), (_OUTSIDE, OUTSIDE, use.outside_bytes)
            others += [StackUseRow(key, name, size, None, None, None, None) for key, name, size in sums if size]
        if by != "stack":
            columns = self._group(by).columns(columns)
        else:
            columns = [None if column is None else column[:-1] for column in columns]
        peak, count = columns[SORTS.index(_SORTED_OTHERWISE)], columns[-1]
        chosen = columns[SORTS.index(sort)]
        if chosen is None:
            sort, chosen = _SORTED_OTHERWISE, peak
        assert chosen is not None
        assert peak is not None
        assert count is not None
        used = np.flatnonzero(count)  # others are the callers of these
        ranked = used[np.lexsort((peak[used], chosen[used]))]
        ranked = ranked[::-1] if descending else ranked
        rows = [_row(number, self._name(by, number), columns, number) for number in ranked[:MOST_ROWS].tolist()]
        if more := len(ranked[MOST_ROWS:]):
            # A block is in several functions and files: these add up to nothing.
            left = [None if column is None or by != "stack" else column[ranked[MOST_ROWS:]] for column in columns]
            rows.append(_row(_MORE, f"{more:,} more", [None if c is None else c.sum(keepdims=True) for c in left], 0))
        return StacksView(
            by, sort, descending, len(ranked), (*rows, *others), self.capture.pid, peak_bytes=self._allocated.most_bytes
        )  # fmt: skip

    def _name(self, by: str, number: int) -> str:
        return stack_name(self.capture.stacks, number) if by == "stack" else self._group(by).names[number]

    def _group(self, by: str) -> Groups:
        if by not in self._groups:
            self._groups[by] = Groups(self.capture.stacks, by)
        return self._groups[by]

    def _window(self, reader: Session, head: Playhead) -> tuple[StackUse | None, float | None, str, str]:
        """Return (use, time, why there is none, when resident pages are from or why they are not known)."""
        if not self._joinable:
            return None, None, NO_PLACES, ""
        if not len(reader.samples):
            return None, None, NOT_JOINED, ""
        sample = int(reader.samples.sample[head.index])
        time_s = (int(reader.samples.end_ns[head.index]) - reader.hello.clock.monotonic_ns) / 1e9
        keys = {process.key for process in reader.processes.all() if process.pid == self.capture.pid}
        rows = [row for row in reader.processes.samples(sample, sample) if row["process"] in keys]
        if not keys:
            return None, time_s, NOT_JOINED, ""
        if not rows or not covers(self.capture, rows[-1]["start_ns"], rows[-1]["end_ns"]):
            return None, time_s, _UNCOVERED, ""
        row = rows[-1]
        before = [number for number in reader.pages.resident_samples(row["process"]) if number <= sample]
        resident_sample = before[-1] if before else -1
        key = (sample, resident_sample)
        if key not in self._uses:
            pages = reader.pages.page_set(sample, row["process"])
            still = reader.pages.resident_set(resident_sample, row["process"]) if before else None
            use = stack_use(self.capture, row["start_ns"], row["end_ns"], pages, still) if pages is not None else None
            self._uses.put(key, use)
        use = self._uses[key]
        if use is None:
            return None, time_s, _NO_PAGES, ""
        ago = sample - resident_sample
        when = "of this window" if not ago else f"of {ago} window{'s' * (ago > 1)} before"
        return use, time_s, "", f"resident: {when}" if before else f"resident: {NOT_RESIDENT}"


def _row(key: int, name: str, columns: Columns, number: int) -> StackUseRow:
    touched, resident, there, peak, count = (None if c is None else float(c[number]) for c in columns)
    return StackUseRow(key, name, touched, resident, there, peak, None if count is None else int(count))
