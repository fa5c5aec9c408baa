"""What is said of the window at the cursor, beside its numbers: events, what is not exact, and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memtui.analysis.lower_bound import NOT_WATCHED
from memtui.analysis.working_set import NOTABLE_HUGE_SHARE, NOTABLE_SHARE, huge_page_share
from memtui.core.samples import LONG_GAP_S, MORE_TOUCHED, Status, is_lower_bound
from memtui.core.units import births_text, duration, percent, size
from memtui.session.session import Session
from memtui.tui.presenters.markers import TickLog
from memtui.tui.presenters.processes import pss_note
from memtui.tui.presenters.window_rows import WindowRows

if TYPE_CHECKING:
    from memtui.session.sample_arrays import SampleArrays

FREED_BYTES, FREED_SHARE = 4 << 20, 0.25  # and of the working set: what was given back within a window, if it is told
MOST_PROCESSES = 8  # whose pages are read for the share of huge pages


class WindowNotes:
    """Reads what the notes on a window need once while the cursor stays on it."""

    def __init__(self, reader: Session, rows: WindowRows) -> None:
        self._reader, self._rows = reader, rows
        self._cached: tuple[int, list[str]] = -1, []  # a sample, and notes on it

    def of_window(self, index: int, ticks: TickLog, *, whole_tree: bool) -> tuple[str, ...]:
        """Return the notes on a window; ``whole_tree``: on the memory of all processes, too."""
        if not whole_tree:
            return window_notes(self._reader.samples, index, ticks, "")
        notes = window_notes(self._reader.samples, index, ticks, pss_note(self._rows.of_window(index)))
        sample = int(self._reader.samples.sample[index])
        if self._cached[0] != sample:
            self._cached = sample, [freed_note(self._reader, index), self._huge_note(index, sample)]
        return (*notes, *filter(None, (end_note(self._reader, index), *self._cached[1])))

    def _huge_note(self, index: int, sample: int) -> str:
        """Return a note on the share of huge pages in the working set; empty where it is small, or not known."""
        keys = [row["process"] for row in self._rows.of_window(index)]
        if len(keys) > MOST_PROCESSES:
            return ""
        share = huge_page_share(self._reader.pages.page_set(sample, key) for key in keys)
        if share is None or share < NOTABLE_HUGE_SHARE:
            return ""
        return f"{percent(share)} in huge pages, which count whole"


def caveats(samples: SampleArrays, index: int, note: str) -> tuple[str, ...]:
    """Return why the working set of one window is not exact; ``note``: the text shown in place of the working set."""
    status, reason, unknown = samples.status[index], samples.reason[index], samples.unknown_bytes[index]
    parts = [f"disturbed: {samples.disturbed[index]}"] if samples.disturbed[index] else []
    if unknown > NOTABLE_SHARE * samples.wss_bytes[index]:  # nan is not
        parts.append(f"WSS {size(float(samples.wss_bytes[index]))}, {size(float(unknown))} of it perhaps untouched")
    low, high = samples.wss_low_bytes[index], samples.wss_high_bytes[index]
    if np.isfinite(low):
        parts.append(f"estimated, 95 % interval {size(float(low))} to {size(float(high))}")
    if samples.gaps[index] > 0 and is_lower_bound(reason):  # which has a bound, and what these touched has none
        parts.append(NOT_WATCHED)
    if status != Status.OK and not note:  # the note shows the reason already
        parts.append(f"{status}: {_number_first(reason)}" if reason else str(status))
    return tuple(parts)


def _number_first(reason: str) -> str:
    """Return the reason with how much a working set may lack before its cause: a narrow screen cuts the end."""
    parts = []
    for part in reason.split("; "):
        cause, colon, bound = part.rpartition(": ")
        parts.append(f"{bound}: {cause}" if colon and MORE_TOUCHED in bound else part)
    return "; ".join(parts)


def window_notes(samples: SampleArrays, index: int, ticks: TickLog, pss: str) -> tuple[str, ...]:
    """Return the events of one window and notes on its numbers; ``pss``: the note on resident memory."""
    before_ns = int(samples.end_ns[index - 1]) if index else 0
    events, more = ticks.within(before_ns, int(samples.end_ns[index]))
    parts = [tick.text if tick.text.startswith(f"{tick.kind} ") else f"{tick.kind}: {tick.text}" for tick in events]
    if more:
        parts.append(f"and {more:,} more events")
    if gaps := int(samples.gaps[index]):
        parts.append(births_text(gaps))
    if samples.faulted_in_bytes[index] > 0:
        parts.append(f"first mapped {size(float(samples.faulted_in_bytes[index]))}")
    if pss:
        parts.append(pss)
    if np.isnan(samples.shared_bytes[index]) and not np.isnan(samples.wss_bytes[index]):
        parts.append("shared pages count for each process")
    return tuple(parts)


def freed_note(reader: Session, index: int) -> str:
    """Return a note on memory that was resident within a window and not at its end; empty where it is little."""
    samples = reader.samples
    uses = reader.devices.memory_use(int(samples.start_ns[index]), int(samples.end_ns[index]))
    freed_bytes = max((use.rss_bytes for use in uses), default=0) - float(samples.rss_bytes[index])
    if samples.gaps[index] or not freed_bytes > max(FREED_BYTES, FREED_SHARE * float(samples.wss_bytes[index])):
        return ""  # nan is not
    return f"{size(freed_bytes)} were given back before its end, and are in no working set"


def end_note(reader: Session, index: int) -> str:
    """Return a note on the time after the last window of a session that ended; empty at other windows."""
    if reader.end is None or index != len(reader.samples) - 1:
        return ""
    after_s = (reader.end.t_ns - int(reader.samples.end_ns[index])) / 1e9
    return f"the last {duration(after_s)} are in no window" if after_s > LONG_GAP_S else ""
