"""What the user is told of processes that are not paused, each once, and which options change it."""

from __future__ import annotations

import os

import pytest

from memtui.recording.sampler.pause_warnings import PauseWarnings
from tests.support.sampler_parts import Outbox, Reader
from tests.support.streams import order_for

FILTER = (
    "process 7 runs under a seccomp filter (containers do): after a pause the kernel goes on with a sleep or wait by "
    "restart_syscall, and a filter that forbids this call fails it or kills; "
)


@pytest.mark.parametrize(
    ("hold_filtered", "consequence"),
    [
        (
            False,
            "so it is not paused, and its numbers are approximate (--pause holds it all the same, --no-pause holds "
            "nobody)",
        ),
        (True, "it is paused all the same (--pause; --no-pause holds nobody)"),
    ],
)
def test_of_a_filter_both_ways_out_are_named_once(hold_filtered, consequence):
    outbox, reader = Outbox(), Reader()
    warnings = PauseWarnings(order_for(os.getpid(), hold_filtered=hold_filtered), outbox, reader)
    warnings.start()
    warnings.update()
    assert outbox.events() == []
    reader.filtered = 7
    warnings.update()
    assert outbox.events() == [("warning", FILTER + consequence)]
    reader.filtered = 8
    warnings.update()
    assert outbox.events() == []


def test_a_process_that_would_be_held_too_long_and_a_sampler_without_a_timer_are_named():
    outbox, reader = Outbox(), Reader()
    reader.unwatched, reader.long = "no such timer", 9
    warnings = PauseWarnings(order_for(os.getpid(), max_pause_ns=50_000_000), outbox, reader)
    warnings.start()
    warnings.update()
    warnings.update()
    (_, unwatched), (_, long) = outbox.events()
    assert "(no such timer)" in unwatched
    assert long.startswith("process 9 is not held where that would take longer than 50.0 ms (--max-pause)")
