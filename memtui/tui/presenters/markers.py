"""Ticks on the timeline: events, windows that are not exact, and training steps.

Steps have ticks where few enough are in sight.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

import numpy as np

from memtui.core.fast_numpy import distinct
from memtui.core.lru_cache import LruCache
from memtui.core.samples import Event, Status
from memtui.core.units import births_text
from memtui.session.session import Session
from memtui.session.tables.training import ProgressRow
from memtui.tui.presenters.playhead import Moments
from memtui.widgets.views.memory import Tick, TimeAxis

MOST_NOTES = 32  # events of a window that are told in words
SLOTS = 1024  # ticks of a timeline at most, more than it has cells
KEEP_TEXTS = 2 * SLOTS  # moments of which the texts of events are kept, more than are ever drawn; others are read again
LATE_NS = 6_000_000_000  # the largest delay of an event of another process on its way into the session
# Of several ticks in one slot the one whose kind comes first here is drawn.
KINDS = ("mark", "exec", "stopped", "warning", "gap", "disturbed", "not paused", "interval", "step")
_MARK = KINDS.index("mark")
_SHORTEST_SLOT = 20  # bits of nanoseconds: a millisecond


class TickLog:
    """All ticks of a session by time. Windows in a row with the same trouble have one tick, at the first of them.

    A program may start twenty programs a second, and each is an event: of a tick thirteen bytes are kept.
    """

    def __init__(self) -> None:
        self._times, self._kinds, self._codes = array("q"), array("B"), array("I")
        self._texts: list[str] = [""]  # by code: of troubles, which are few; 0 is an event
        self._code_of: dict[str, int] = {}
        self._events: LruCache[int, tuple[Event, ...]] = LruCache(KEEP_TEXTS)  # all of a moment
        self._read_events: Callable[[int, int], list[Event]] = lambda first_ns, last_ns: []
        self._slots: dict[int, Tick] = {}  # the most important tick in each slot of the session
        self._slot_bits = _SHORTEST_SLOT
        self._until_ns = self._windows = 0
        self._seen: set[tuple[int, str, str]] = set()  # events that may be read once more
        self._running: set[str] = set()  # troubles of the newest window

    def __len__(self) -> int:
        return len(self._times)

    def update(self, reader: Session, latest_ns: int) -> None:
        """Add the ticks since the last call; page sets are not read."""
        self._read_events = reader.events
        if latest_ns < self._until_ns:
            return
        # Another process may have written an event down after windows that ended later.
        since_ns = max(0, self._until_ns - LATE_NS)
        before, self._seen = self._seen, set()
        for event in reader.events(since_ns, latest_ns + 1):
            key = event.t_ns, event.kind, event.text
            if event.kind in KINDS and key not in self._seen:
                self._seen.add(key)
                if key not in before:
                    self._add_event(event)
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
                "gap": births_text(gaps) if gaps else "",
                "disturbed": samples.disturbed[n],
                "not paused": samples.reason[n] or "?" if samples.status[n] == Status.NOT_PAUSED else "",
            }
            for kind, trouble in there.items():
                if trouble and kind not in self._running:
                    self._add_trouble(Tick(int(samples.end_ns[n]), kind, trouble))
            self._running = {kind for kind, trouble in there.items() if trouble}

    def drawn(self, origin_ns: int, latest_ns: int) -> tuple[Tick, ...]:
        """Return the ticks that a timeline can show: of several in one slot the most important one."""
        if len(self) <= SLOTS:
            return self._downsampled(0, len(self), origin_ns, latest_ns)
        return tuple(self._slots[slot] for slot in sorted(self._slots))

    def between(self, first_ns: int, last_ns: int) -> tuple[Tick, ...]:
        """Return the ticks of a part of the session, both its ends included."""
        first, last = bisect_left(self._times, first_ns), bisect_right(self._times, last_ns)
        return self._downsampled(first, last, first_ns, last_ns)

    def near(self, cursor_ns: int, ends: Moments, by: int) -> int | None:
        """Return the end of the next (1) or previous (-1) window with a tick; None without such a window."""
        if not len(self) or not len(ends):
            return None
        index = np.searchsorted(ends, np.array(self._times), side="left")
        windows = ends[distinct(np.minimum(index, len(ends) - 1))]
        others = windows[windows > cursor_ns] if by > 0 else windows[windows < cursor_ns]
        return int(others[0 if by > 0 else -1]) if len(others) else None

    def within(self, after_ns: int, until_ns: int) -> tuple[tuple[Tick, ...], int]:
        """Return ticks of the first events in one window, without those of trouble with the window itself.

        And how many more there are.
        """
        first, last = bisect_right(self._times, after_ns), bisect_right(self._times, until_ns)
        events = [n for n in range(first, last) if not self._codes[n]]
        return self._ticks(events[:MOST_NOTES]), max(0, len(events) - MOST_NOTES)

    def _add_event(self, event: Event) -> None:
        index = bisect_right(self._times, event.t_ns)
        if event.t_ns in self._events:
            self._events.put(event.t_ns, (*self._events[event.t_ns], event))
        elif not index or self._times[index - 1] != event.t_ns:  # of that moment none was forgotten
            self._events.put(event.t_ns, (event,))
        self._add(index, Tick(event.t_ns, event.kind, event.text), 0)

    def _add_trouble(self, tick: Tick) -> None:
        if tick.text not in self._code_of:
            self._code_of[tick.text] = len(self._texts)
            self._texts.append(tick.text)
        self._add(bisect_right(self._times, tick.t_ns), tick, self._code_of[tick.text])

    def _add(self, index: int, tick: Tick, code: int) -> None:
        self._times.insert(index, tick.t_ns)
        self._kinds.insert(index, KINDS.index(tick.kind))
        self._codes.insert(index, code)
        self._add_to_slot(tick)
        while len(self._slots) > SLOTS:
            ticks = [self._slots[slot] for slot in sorted(self._slots)]
            self._slots = {}
            self._slot_bits += 1
            for added in ticks:
                self._add_to_slot(added)

    def _add_to_slot(self, tick: Tick) -> None:
        slot = tick.t_ns >> self._slot_bits
        if slot not in self._slots or KINDS.index(tick.kind) < KINDS.index(self._slots[slot].kind):
            self._slots[slot] = tick

    def _downsampled(self, first: int, last: int, first_ns: int, last_ns: int) -> tuple[Tick, ...]:
        """Return the ticks from ``first`` to before ``last``; of several in one slot of that time one."""
        if last - first <= SLOTS:
            return self._ticks(range(first, last))
        slots = (np.array(self._times[first:last]) - first_ns) * SLOTS // max(1, last_ns - first_ns)
        order = np.lexsort((np.array(self._kinds[first:last]), slots))
        best = order[np.concatenate(([True], np.diff(slots[order]) > 0))]
        # A timeline names marks; of the other events, which move from slot to slot, no text is read again.
        return tuple(
            self._tick(index)
            if self._codes[index] or self._kinds[index] == _MARK
            else Tick(self._times[index], KINDS[self._kinds[index]])
            for index in (first + best).tolist()
        )

    def _ticks(self, indices: Sequence[int]) -> tuple[Tick, ...]:
        """Return the ticks at some places."""
        return tuple(self._tick(index) for index in indices)

    def _tick(self, index: int) -> Tick:
        t_ns, kind, text = self._times[index], KINDS[self._kinds[index]], self._texts[self._codes[index]]
        if not self._codes[index]:
            if t_ns not in self._events:
                self._events.put(t_ns, tuple(dict.fromkeys(self._read_events(t_ns, t_ns + 1))))
            # Of several at one moment each has its own.
            same = range(bisect_left(self._times, t_ns), index)
            before = sum(KINDS[self._kinds[n]] == kind and not self._codes[n] for n in same)
            texts = [event.text for event in self._events[t_ns] if event.kind == kind]
            text = texts[before] if before < len(texts) else ""
        return Tick(t_ns, kind, text)


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
