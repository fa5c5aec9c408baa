"""A timeline as a Chrome trace (the JSON of chrome://tracing, which Perfetto reads, too), written as a stream.

The format is Google's "Trace Event Format". Slices are complete events (``X``), so they need no order. Times are
microseconds since the start, as fractions: no nanosecond is lost.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

from memtui.formats.timeline import MICROSECOND_NS, Counter, Group, Instant, Item, Slice, Track

SUFFIX = ".trace.json"
NO_PROCESS = 1 << 22  # numbers from here on are not pids: the kernel's are below (PID_MAX_LIMIT)


def trace(attributes: Mapping[str, int | str], clock: tuple[int, int | None], items: Iterable[Item]) -> Iterator[str]:
    """Yield a trace in parts.

    Args:
        attributes: what is said of the trace as a whole.
        clock: when times begin, on CLOCK_MONOTONIC, and in nanoseconds since 1970 where that is known.
        items: in any order.
    """
    start_ns, wall_ns = clock
    base = {} if wall_ns is None else {"baseTimeNanoseconds": wall_ns}
    head = {"displayTimeUnit": "ms", **base, "otherData": attributes}
    yield json.dumps(head)[:-1] + ', "traceEvents": ['
    comma = "\n"
    tracks = _Tracks(start_ns)
    for item in items:
        for event in tracks.events(item):
            yield f"{comma}{json.dumps(event)}"
            comma = ",\n"
    yield "\n]}\n"


class _Tracks:
    """The groups and tracks named so far, by the numbers that stand for them: of a process its pid."""

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._pids: dict[Group, int] = {}
        self._tids: dict[Track, int] = {}

    def events(self, item: Item) -> Iterator[dict[str, Any]]:
        """Yield the event of an item, and before it those that name what is new."""
        track = item.track
        pid = yield from self._pid(track.group)
        match item:
            case Counter(_, t_ns, values):
                args = dict(zip(track.series or (track.unit,), values, strict=True))
                yield {"ph": "C", "name": track.name, "pid": pid, "ts": self._us(t_ns), "args": args}
            case Slice(_, start_ns, end_ns, name, args):
                tid = yield from self._tid(track, pid)
                times = {"ts": self._us(start_ns), "dur": max(end_ns - start_ns, 0) / MICROSECOND_NS}
                yield {"ph": "X", "name": name, "cat": track.name, "pid": pid, "tid": tid, **times, "args": args}
            case Instant(_, t_ns, name, args, everywhere):
                tid = yield from self._tid(track, pid)
                where = {"s": "g" if everywhere else "t", "pid": pid, "tid": tid}
                yield {"ph": "i", "name": name, "cat": track.name, **where, "ts": self._us(t_ns), "args": args}

    def _us(self, t_ns: int) -> float:
        return (t_ns - self._start_ns) / MICROSECOND_NS

    def _pid(self, group: Group) -> Generator[dict[str, Any], None, int]:
        if group not in self._pids:
            pid = self._pids[group] = NO_PROCESS + len(self._pids) + 1 if group.pid is None else group.pid
            yield _named("process_name", pid, name=group.name)
            yield _named("process_sort_index", pid, sort_index=len(self._pids))
            if group.command:
                yield _named("process_labels", pid, labels=group.command)
        return self._pids[group]

    def _tid(self, track: Track, pid: int) -> Generator[dict[str, Any], None, int]:
        if track not in self._tids:
            self._tids[track] = NO_PROCESS + len(self._tids) + 1
            yield {**_named("thread_name", pid, name=track.name), "tid": self._tids[track]}
        return self._tids[track]


def _named(what: str, pid: int, **args: int | str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "args": args}
