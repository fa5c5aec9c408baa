"""Ticks on the timeline: events, windows that are not exact, and training steps.

Steps have ticks where few enough are in sight.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

import numpy as np

from memtui.core.samples import Status
from memtui.session.records.training import ProgressRow
from memtui.session.session import Session
from memtui.tui.presenters.lru_cache import LruCache
from memtui.tui.presenters.playhead import Moments
from memtui.widgets.views.memory import Tick, TimeAxis

SLOTS = 512  # ticks of a timeline at most, more than it has cells
LATE_NS = 6_000_000_000  # the largest delay of an event of another process on its way into the session
# Of several ticks in one slot the one whose kind comes first here is drawn.
KINDS = ("mark", "exec", "stopped", "warning", "gap", "disturbed", "not paused", "interval", "step")


class TickLog:
    """All ticks of a session by time. Windows in a row with the same trouble have one tick, at the first of them."""

    def __init__(self) -> None:
        self._ticks: list[Tick] = []
        self._until_ns = self._windows = 0
        self._seen: set[tuple[int, str, str]] = set()
        self._running: set[str] = set()  # troubles of the newest window

    def update(self, reader: Session, latest_ns: int) -> None:
        """Add the ticks since the last call; page sets are not read."""
        if latest_ns < self._until_ns:
            return
        # Another process may have written an event down after windows that ended later.
        for event in reader.events(max(0, self._until_ns - LATE_NS), latest_ns + 1):
            if event.kind in KINDS and (event.t_ns, event.kind, event.text) not in self._seen:
                self._seen.add((event.t_ns, event.kind, event.text))
                insort(self._ticks, Tick(event.t_ns, event.kind, event.text), key=_time)
        self._until_ns = latest_ns + 1
        samples, first = reader.samples, self._windows
        self._windows = len(samples.sample)
        if (
            not samples.gaps[first:].any()
            and not any(samples.disturbed[first:])
            and Status.NOT_PAUSED not in samples.status[first:]
        ):
            self._running = self._running if first == self._windows else set()
            return
        for n in range(first, self._windows):
            gaps = int(samples.gaps[n])
            there = {
                "gap": f"{gaps} gap{'s' * (gaps > 1)}" if gaps else "",
                "disturbed": samples.disturbed[n],
                "not paused": samples.reason[n] or "?" if samples.status[n] == Status.NOT_PAUSED else "",
            }
            for kind, trouble in there.items():
                if trouble and kind not in self._running:
                    insort(self._ticks, Tick(int(samples.end_ns[n]), kind, trouble), key=_time)
            self._running = {kind for kind, trouble in there.items() if trouble}

    def drawn(self, origin_ns: int, latest_ns: int) -> tuple[Tick, ...]:
        """Return the ticks that a timeline can show: of several in one slot the most important one."""
        return _downsampled(self._ticks, origin_ns, latest_ns)

    def between(self, first_ns: int, last_ns: int) -> tuple[Tick, ...]:
        """Return the ticks of a part of the session, both its ends included."""
        first = bisect_left(self._ticks, first_ns, key=_time)
        last = bisect_right(self._ticks, last_ns, key=_time)
        return _downsampled(self._ticks[first:last], first_ns, last_ns)

    def near(self, cursor_ns: int, ends: Moments, by: int) -> int | None:
        """Return the end of the next (1) or previous (-1) window with a tick; None without such a window."""
        if not self._ticks or not len(ends):
            return None
        index = np.searchsorted(ends, [tick.t_ns for tick in self._ticks], side="left")
        windows = ends[np.unique(np.minimum(index, len(ends) - 1))]
        others = windows[windows > cursor_ns] if by > 0 else windows[windows < cursor_ns]
        return int(others[0 if by > 0 else -1]) if len(others) else None

    def within(self, after_ns: int, until_ns: int) -> tuple[Tick, ...]:
        """Return the ticks of events in one window, without those of trouble with the window itself."""
        first = bisect_right(self._ticks, after_ns, key=_time)
        last = bisect_right(self._ticks, until_ns, key=_time)
        return tuple(m for m in self._ticks[first:last] if (m.t_ns, m.kind, m.text) in self._seen)


def _downsampled(ticks: Sequence[Tick], first_ns: int, last_ns: int) -> tuple[Tick, ...]:
    if len(ticks) <= SLOTS:
        return tuple(ticks)
    by_slot: dict[int, Tick] = {}
    for tick in ticks:
        slot = (tick.t_ns - first_ns) * SLOTS // max(1, last_ns - first_ns)
        if slot not in by_slot or KINDS.index(tick.kind) < KINDS.index(by_slot[slot].kind):
            by_slot[slot] = tick
    return tuple(by_slot.values())


def _time(tick: Tick) -> int:
    return tick.t_ns


KIND = "each step"
MOST = 48  # in sight: more would fill the picture
_KEEP_MESSAGES = 256  # messages


class StepTicks:
    """Ends of steps, decoded once."""

    def __init__(self) -> None:
        self._ends: LruCache[int, list[int]] = LruCache(_KEEP_MESSAGES)  # by row

    def between(self, reader: Session, axis: TimeAxis) -> tuple[Tick, ...]:
        """Return ticks at the ends of steps on an axis; empty where there are too many."""
        rows = reader.training.progress(axis.start_ns, axis.end_ns)
        if sum(row.steps for row in rows) > MOST + 2 * max((row.steps for row in rows), default=0):
            return ()
        ends = [end_ns for row in rows for end_ns in self._of(reader, row) if axis.start_ns <= end_ns <= axis.end_ns]
        return tuple(Tick(end_ns, KIND) for end_ns in ends) if len(ends) <= MOST else ()

    def _of(self, reader: Session, row: ProgressRow) -> list[int]:
        if row.id not in self._ends:
            self._ends.put(row.id, reader.training.details(row).ends_ns.tolist())
        return self._ends[row.id]
