"""Reuse distances up to the cursor: added up window by window or read at once, and the part of their axis."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from memtui.analysis.reuse_histogram import BIN_EDGES, ReuseHistogram
from memtui.core.fault_latency import FaultLatency
from memtui.session.session import Session
from memtui.tui.presenters.reuse import BATCH_WINDOWS, FEW_SAMPLES, Intervals, ReuseLog, reuse_view
from memtui.tui.presenters.time_budget import TimeBudget
from tests.support import sessions

SAMPLES, MIB = 100, 1 << 20
PLENTY = 60.0


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    path = sessions.write_session(tmp_path_factory.mktemp("session") / "s.memtui", sessions.messages(SAMPLES))
    opened = Session(path)
    yield opened
    opened.close()


def shown(log, reader, sample, seconds=PLENTY):
    view, complete = log.view(reader, sample, TimeBudget(seconds))
    return view, complete


def assert_sum(view, reader, sample):
    stored = reader.reuse.until(sample)
    assert view.touches == stored.touches > 0
    assert view.upper * stored.touches == pytest.approx(stored.upper)
    assert view.lower * stored.touches == pytest.approx(stored.lower)


@pytest.mark.parametrize("keys", [None, frozenset({1})])
def test_the_way_to_a_sample_makes_no_difference(reader, keys):
    log = ReuseLog(keys)
    for sample in (3, 4, 4 + FEW_SAMPLES, 5 + 2 * FEW_SAMPLES, 70, 2, 2, SAMPLES - 1):
        view, complete = shown(log, reader, sample)
        assert complete
        assert_sum(view, reader, sample)
    log.forget()
    assert_sum(shown(log, reader, 50)[0], reader, 50)


def test_of_other_processes_there_is_nothing(reader):
    view, complete = shown(ReuseLog(frozenset({2}), "pid 7"), reader, SAMPLES - 1)
    assert (view.touches, view.whose, complete) == (0, "pid 7", True)


def test_before_the_first_sample_there_is_nothing(reader):
    view, complete = shown(ReuseLog(), reader, -1)
    assert (view.touches, complete) == (0, True)
    view, complete = shown(ReuseLog(), reader, 0)
    # Heap, data and stack; the default filter leaves out code.
    assert (view.touches, view.first_share, complete) == (1024 + 2048 + 8, 1, True)


def test_what_takes_too_long_goes_on_in_the_next_picture(reader):
    log = ReuseLog(frozenset({1}), "pid 7")
    view, complete = shown(log, reader, SAMPLES - 1, 0.0)
    assert (view.whose, complete) == ("pid 7, still adding up", False)
    assert_sum(view, reader, BATCH_WINDOWS - 1)
    view, complete = shown(log, reader, SAMPLES - 1, 0.0)
    assert (view.whose, complete) == ("pid 7", True)
    assert_sum(view, reader, SAMPLES - 1)


def windows(*intervals_ms: int, took_ms: int | None = None, first: int = 0):
    """A session whose windows were asked to take so long, and took as long or ``took_ms``."""
    asked_ns = np.array(intervals_ms, np.int64) * 10**6
    start_ns = np.arange(len(asked_ns)) * 10**10
    return SimpleNamespace(
        hello=SimpleNamespace(options=SimpleNamespace(interval_ns=10**8)),
        samples=SimpleNamespace(
            sample=np.arange(len(asked_ns)) + first,
            start_ns=start_ns,
            end_ns=start_ns + (asked_ns if took_ms is None else took_ms * 10**6),
            intervals_ns=lambda of: asked_ns[of],
        ),
    )


def test_intervals_are_those_of_the_windows_up_to_one():
    intervals, grows = Intervals(), windows(200, 300, 100, 400)
    assert intervals.until(grows, 1) == (0.2, 0.3)
    assert intervals.until(grows, 2) == (0.1, 0.3)
    assert intervals.until(grows, 3) == (0.1, 0.4)
    assert intervals.until(grows, 1) == (0.2, 0.3), "back again"
    assert intervals.until(grows, 0) == (0.2, 0.2)
    assert intervals.until(windows(500, 600, first=4), 4) == (0.5, 0.5), "others are in their place"


def test_windows_that_took_longer_than_a_quarter_more_have_their_true_length():
    assert Intervals().until(windows(100, 200, took_ms=250), 1) == (0.1, 0.2)
    assert Intervals().until(windows(100, 200, took_ms=251), 1) == (0.251, 0.251)


def test_the_time_in_which_touches_were_counted_is_that_of_their_windows():
    intervals = Intervals()
    for sample, milliseconds in ((1, 500), (3, 1000), (0, 200), (2, 600)):
        intervals.until(windows(200, 300, 100, 400), sample)
        assert intervals.total_ns == milliseconds * 10**6


@pytest.mark.parametrize(("keys", "is_known"), [(None, True), (frozenset({1}), False)])
def test_the_time_is_known_of_the_whole_tree(reader, keys, is_known):
    latency = FaultLatency("swap", "/dev/zram0", 1, 2, 3, 20)
    view, _ = shown(ReuseLog(keys, fault_latency=latency), reader, 9)
    lengths = reader.samples.end_ns[:10] - reader.samples.start_ns[:10]
    assert view.seconds == pytest.approx(lengths.sum() / 1e9 if is_known else 0)
    assert view.fault_latency == (latency if is_known else None)


def at(**counts: int) -> ReuseHistogram:
    """Touches that came back at distances in bytes."""
    made = ReuseHistogram()
    for name, count in counts.items():
        index = int(np.searchsorted(BIN_EDGES, int(name.removeprefix("b"))))
        made.upper[index] += count
        made.lower[index] += count
    return made


def test_the_axis_is_an_octave_around_the_drop():
    """64 MiB is edge 112: 8 edges before it, 9 after it."""
    view = reuse_view(at(b67108864=1000), 0.2)
    assert view.size_bytes.tolist() == BIN_EDGES[104:122].tolist()
    assert view.miss_high.tolist() == [1] * 8 + [0] * 10
    assert (view.half_low_bytes, view.half_high_bytes) == view.most_bytes == (15025 * 4096, 64 * MIB)  # above edge 111
    few = reuse_view(at(b4096=10, b67108864=990), 0.2)
    assert few.size_bytes.tolist() == view.size_bytes.tolist(), "a hundredth that came back at once is not the drop"
    assert reuse_view(at(b4096=30, b67108864=970), 0.2).size_bytes[0] == 4096


def test_shares_are_of_all_touches():
    made = at(b4096=1, b8192=2)
    made.first_touches = 1
    view = reuse_view(made, 0.2)
    assert (view.touches, view.first_share) == (4, 0.25)
    assert (view.upper[0], view.upper[8], view.upper.sum()) == (0.25, 0.5, 0.75)
    assert (view.edges_bytes[1], view.edges_bytes[9]) == (4096, 8192)
    nothing = ReuseHistogram()
    assert reuse_view(nothing, 0.2).first_share is None
    nothing.first_touches = 5
    assert (reuse_view(nothing, 0.2).first_share, reuse_view(nothing, 0.2).touches) == (1, 5)


@pytest.mark.parametrize(("longest_s", "text"), [(None, "0.2 s"), (0.2, "0.2 s"), (0.25, "0.2-0.25 s")])
def test_the_interval_is_one_or_from_one_to_another(longest_s, text):
    assert reuse_view(at(b4096=1), 0.2, longest_s).interval == text
