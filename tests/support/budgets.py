"""Windows under a budget."""

from __future__ import annotations

from dataclasses import replace

from memtui.core.samples import Hello, Window
from tests.support.sessions import MS, messages

S = 10**9


def budgeted(cost_ms: int, ppm: int = 10_000, next_s: int = 10):
    """A stream with a budget whose windows are stretched from the third on; ``next_s``: interval after the last."""
    made = list(messages(12, interval_ns=10 * S))
    for message in made:
        if isinstance(message, Hello):
            options = replace(message.options, max_overhead_ppm=ppm, interval_ns=200 * MS)
            message = replace(message, options=options)
        elif isinstance(message, Window):
            part = replace(message.processes[0], paused_ns=cost_ms * MS)
            interval = 200 * MS if message.sample < 2 else 10 * S
            message = replace(message, processes=(part,), asked_ns=200 * MS, budgeted_ns=interval, next_ns=next_s * S)
        yield message


def changed(count: int, first_ns: int, then_ns: int, *, budget: bool = False):
    """A stream whose interval is another one from its middle on; what is touched grows with it."""
    at_ns = 0
    for message in messages(count):
        if not isinstance(message, Window):
            yield message
            continue
        length_ns = first_ns if message.sample < count // 2 else then_ns
        (process,) = message.processes
        process = replace(process, start_ns=at_ns, end_ns=at_ns + length_ns)
        asked_ns = first_ns if budget else length_ns
        how = {"budgeted_ns": length_ns} if budget else {}
        span = {"start_ns": at_ns, "end_ns": at_ns + length_ns, "asked_ns": asked_ns, "processes": (process,)}
        yield replace(message, **span, **how)
        at_ns += length_ns + 3 * MS
