"""Where in time the screen is, and the times that can be typed."""

from __future__ import annotations

import numpy as np
import pytest

from memtui.tui.presenters.playhead import Playhead, parse_time
from memtui.widgets.views.memory import State
from tests.support.screen_fakes import STEP_NS

S = 1_000_000_000


def grown(count: int = 100, **options) -> Playhead:
    head = Playhead(**options)
    head.grow(0, np.arange(1, count + 1) * STEP_NS, recording=options.get("recording", True))
    return head


def test_playhead_follows_until_told_otherwise():
    head = grown()
    assert head.state is State.LIVE
    assert head.axis().follow
    head.step(-1)
    assert (head.state, head.index) == (State.PAUSED, 98)
    head.grow(0, np.arange(1, 201) * STEP_NS, recording=True)
    assert head.index == 98
    head.toggle_pause()
    head.tick(1.0)
    assert head.state is State.PLAYING
    head.tick(1000.0)
    assert head.state is State.LIVE  # caught up


def test_playhead_window_stays_while_the_cursor_moves_inside():
    head = grown(1000)
    head.axis()
    head.step(-10)
    here = head.axis()
    head.step(-10)
    assert head.axis().start_ns == here.start_ns
    head.home()
    first = head.axis()
    assert first.start_ns <= head.cursor_ns <= first.end_ns
    head.step(1)
    assert head.axis().start_ns == first.start_ns


def test_playhead_at_the_ends():
    head = grown(3, recording=False)
    head.step(100)
    assert head.index == 2
    head.step(-100)
    assert head.index == 0
    empty = Playhead()
    empty.step(1)
    empty.home()
    assert empty.index == -1
    assert empty.jump("0") == ""
    assert empty.axis().span_ns > 0


def test_all_of_a_growing_session_is_cut_anew_seldom():
    """Another length of the axis cuts the heat map's columns anew, and the page sets of all of them are decoded."""
    head = grown(5000, span_ns=None)
    spans = set()
    for count in range(5000, 6000, 5):
        head.grow(0, np.arange(1, count + 1) * STEP_NS, recording=True)
        axis = head.axis()
        assert axis.end_ns == head.latest_ns
        assert head.latest_ns <= axis.span_ns <= head.latest_ns * 33 / 32
        spans.add(axis.span_ns)
    assert len(spans) <= 13
    head.grow(0, np.arange(1, 6001) * STEP_NS, recording=False)
    assert head.axis().span_ns == head.latest_ns, "nothing grows any more"


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [
        ("7:12", 432), ("1:02:03.5", 3723.5), ("90", 90), ("5m", 300), ("1h2m3s", 3723), ("50%", 500), ("+30", 130),
        ("-1:30", 10), ("-9:00", 0), (" 2 m ", 120), (".5", 0.5), ("10s", 10),
    ],
)  # fmt: skip
def test_times_that_can_be_typed(typed, seconds):
    assert parse_time(typed, 100.0, 1000.0) == pytest.approx(seconds)


@pytest.mark.parametrize("typed", ["", "x", "1:2:3:4", "5 apples", "--3", "%", "1e9", "nan", "9:99x"])
def test_times_that_cannot(typed):
    with pytest.raises(ValueError, match="7:12"):
        parse_time(typed, 0.0, 10.0)
