"""The timeline's marks and the sentence about less memory: what they say, where they lead, that they cost little."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memtui.analysis.miss_ratio import MissRatioCurve
from memtui.core.samples import Event
from memtui.tui.presenters import Presenter, markers, reuse_view
from memtui.tui.presenters.markers import SLOTS, TickLog
from memtui.widgets.reuse_histogram import bounds
from memtui.widgets.views.memory import State
from tests.support.screen_driver import held, running
from tests.support.screen_fakes import MIB, ORIGIN_NS, STEP_NS, FakeSession


def troubled(count: int = 120) -> FakeSession:
    """Gaps in windows 30 and 31, a disturbed one at 60, one that was not paused at 90, a mark in the middle of 75."""
    session = held(count, live=False)
    samples = session.samples
    samples.gaps[[30, 31]] = 2
    samples.disturbed = tuple("DAMON" if n == 60 else "" for n in range(count))
    samples.status = tuple("not paused" if n == 90 else "ok" for n in range(count))
    samples.reason = tuple("it waits for a disk" if n == 90 else "" for n in range(count))
    session.events = lambda first, last: [
        e for e in (Event(ORIGIN_NS + 75 * STEP_NS + 1000, "mark", "epoch 7"),) if first <= e.t_ns < last
    ]
    return session


async def test_keys_lead_from_mark_to_mark():
    async with running(troubled()) as d:
        seen = []
        for _ in range(5):
            before = d.view.header.position_s
            await d.press("N")
            if len(seen) < 4:
                await d.until(lambda before=before: d.view.header.position_s < before)
            seen.append(round((d.view.header.position_s * 1e9 - 2e8) / STEP_NS))
        assert seen == [90, 75, 60, 30, 30]
        await d.press("n", "n")
        await d.until(lambda: "mark: epoch 7" in d.text)
        await d.press("n")
        await d.until(lambda: "not paused: it waits for a disk" in d.text)
        assert d.view.header.state is State.PAUSED


async def test_the_timeline_has_a_tick_for_each_and_takes_clicks():
    async with running(troubled(), size=(160, 40)) as d:
        line = d.text.splitlines()[0]
        assert (line.count("┊"), line.count("┃")) == (3, 1)
        start, end = line.index("━"), max(map(line.rfind, "━●─┊┃")) + 1
        assert line.index("┃") == start + int(75 * STEP_NS / 1e9 / d.view.header.duration_s * (end - start))
        await d.pilot.click(offset=((start + end) // 2, 0))
        await d.until(lambda: abs(d.view.header.position_s - d.view.header.duration_s / 2) < 1)


def test_marks_of_a_long_session_are_counted_without_pages_and_thinned():
    session = FakeSession(60_000)
    session.samples.gaps[::2] = 1  # every other window: none is the neighbour of another
    session.events = lambda first, last: [Event(ORIGIN_NS + 10 * STEP_NS, "mark", "here")]
    log = TickLog()
    latest = int(session.samples.end_ns[-1])
    log.update(session, latest)
    drawn = log.drawn(ORIGIN_NS, latest)
    assert len(drawn) <= SLOTS + 1
    assert [m.text for m in drawn if m.kind == "mark"] == ["here"]
    assert log.near(int(session.samples.end_ns[4]), session.samples.end_ns, 1) == session.samples.end_ns[6]
    assert session.asked_pages == 0


def test_marks_of_a_part_of_the_session_are_all_of_that_part():
    session = FakeSession(60_000)
    session.samples.gaps[::2] = 1
    session.events = lambda first, last: []
    log = TickLog()
    log.update(session, int(session.samples.end_ns[-1]))
    ends = session.samples.end_ns
    assert [m.t_ns for m in log.between(int(ends[20]), int(ends[26]))] == ends[[20, 22, 24, 26]].tolist()
    assert len(log.between(int(ends[0]), int(ends[-1]))) <= SLOTS + 1
    assert log.between(0, ORIGIN_NS) == ()


async def test_the_graph_has_those_in_sight():
    async with running(troubled(), size=(210, 60)) as d:
        assert [mark.kind for mark in d.view.graph.ticks] == ["gap", "disturbed", "mark", "not paused"]
        row = next(line for line in d.text.splitlines() if "112M" in line)
        assert "epoch 7" in row
        assert (row.count("┃"), row.count("┊")) == (1, 3)
        await d.press("plus", "plus")
        await d.until(lambda: d.view.graph.axis.span_ns == 5 * 10**9)
        assert d.view.graph.ticks == ()
        await d.press("minus")
        await d.until(lambda: [mark.kind for mark in d.view.graph.ticks] == ["disturbed", "mark", "not paused"])


async def test_where_no_mark_follows_the_key_for_the_next_one_says_so():
    async with running(troubled(), size=(80, 24)) as d:
        await d.press("end", "n")
        await d.until(lambda: "there is no mark after this moment" in d.text)
        await d.press("home", "N")
        await d.until(lambda: "there is no mark before this moment" in d.text)


def test_trouble_that_goes_on_is_one_mark_also_while_the_session_grows():
    session = FakeSession(50)
    session.samples.gaps[:] = 1
    log = TickLog()
    whole = session.samples
    for until in (20, 35, 50):
        session.samples = type(whole)(**{k: v[:until] for k, v in vars(whole).items()})
        log.update(session, int(whole.end_ns[until - 1]))
    assert [m.kind for m in log.drawn(ORIGIN_NS, 1)] == ["gap"]


def test_a_mark_that_is_written_down_late_is_seen():
    session, log = FakeSession(50), TickLog()
    late = Event(int(session.samples.end_ns[40]), "mark", "late")
    session.events = lambda first, last: []
    log.update(session, int(session.samples.end_ns[45]))
    session.events = lambda first, last: [late] if first <= late.t_ns < last else []
    for end in session.samples.end_ns[46:].tolist():
        log.update(session, end)
    assert [m.text for m in log.drawn(0, 1)] == ["late"]


@pytest.mark.parametrize("by", [1, -1])
def test_without_marks_the_view_stays(by):
    presenter = Presenter(FakeSession(20), follow=False)
    presenter.reader.events = lambda first, last: []
    before = presenter.playhead.cursor_ns
    presenter.to_mark(by)
    assert presenter.playhead.cursor_ns == before


async def test_the_sentence_is_about_the_size_under_the_cursor():
    async with running(held(live=False)) as d:
        await d.press("m")
        widget = d.screen.panels.reuse
        curve = MissRatioCurve.of(FakeSession(1).reuse.until(119))
        for _ in range(4):
            await d.press("comma")
        low, high = (float(v) for v in curve.miss_ratio_at(round(widget.size_bytes)))
        size = f"{widget.size_bytes / MIB:.3g} MiB"
        assert f"with {size}, {bounds(low, high)} of touches" in d.text
        less = widget.size_bytes
        await d.press("full_stop")
        assert widget.size_bytes > less
        await d.press("2", "down")  # chosen, the panel takes the plain arrows
        assert widget.size_bytes == less
        for _ in range(99):
            widget.move(-1)
        assert widget.size_bytes == widget.view.size_bytes[0]
        await d.pilot.click("#reuse", offset=(30, 4))
        assert widget.size_bytes > widget.view.size_bytes[0]


async def test_the_sentence_says_page_and_window_where_there_is_room():
    async with running(held(live=False), size=(210, 60)) as d:
        await d.press("m")
        assert "of touches per page and 0.2 s window would miss" in d.text


@given(st.floats(0, 1), st.floats(0, 1))
def test_rounded_bounds_are_still_bounds(a, b):
    low, high = sorted((a, b))
    parts = bounds(low, high).removesuffix(" %").split("-")
    if len(parts) == 2:
        assert float(parts[0]) <= low * 100 + 1e-6
        assert float(parts[1]) >= high * 100 - 1e-6
    else:
        assert float(parts[0]) == pytest.approx(high * 100, abs=0.06)


def test_sizes_spoken_of_are_exact_edges():
    view = reuse_view(FakeSession(1).reuse.until(9), 0.2)
    low, high = MissRatioCurve.of(FakeSession(1).reuse.until(9)).miss_ratio_at(view.size_bytes)
    np.testing.assert_array_equal(view.miss_low, low)
    np.testing.assert_array_equal(view.miss_high, high)


EVENTS = st.lists(
    st.tuples(st.integers(0, 90), st.sampled_from(["mark", "exec", "end"]), st.sampled_from("abc")), max_size=60
)


@given(EVENTS, st.integers(0, 60))
def test_ticks_have_the_texts_of_their_events_also_those_that_were_forgotten(events, first):
    session = FakeSession(60)
    stored: list[Event] = []
    session.events = lambda low, high: sorted(
        (event for event in stored if low <= event.t_ns < high), key=lambda event: event.t_ns
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(markers, "KEEP_TEXTS", 3)
        log = TickLog()
    for n, (t, kind, text) in enumerate(events):
        stored.append(Event(t, kind, text))
        if n % 4 == 0:
            log.update(session, 100 + n)
    log.update(session, 1000)
    shown = sorted({(e.t_ns, e.kind, e.text) for e in stored if e.kind in ("mark", "exec")})
    assert sorted((m.t_ns, m.kind, m.text) for m in log.between(0, 2000)) == shown
    within, more = log.within(first, first + 20)
    assert more == 0
    assert sorted((m.t_ns, m.kind, m.text) for m in within) == [m for m in shown if first < m[0] <= first + 20]


def test_of_a_long_window_some_events_are_told_and_the_others_counted():
    session, log = FakeSession(20), TickLog()
    events = [Event(ORIGIN_NS + n, "exec", f"pid {n}") for n in range(5000)]
    asked: list[int] = []
    session.events = lambda low, high: asked.append(low) or [e for e in events if low <= e.t_ns < high]
    log.update(session, events[-1].t_ns)
    asked.clear()
    told, more = log.within(ORIGIN_NS - 1, ORIGIN_NS + 4999)
    assert [tick.text for tick in told] == [f"pid {n}" for n in range(markers.MOST_NOTES)]
    assert more == 5000 - markers.MOST_NOTES
    assert len(asked) <= markers.MOST_NOTES
    asked.clear()
    log.between(ORIGIN_NS, ORIGIN_NS + 4999)
    assert not asked, "a timeline names marks only"


@pytest.mark.parametrize("count", [5000, 50_000])
def test_of_an_hour_of_programs_that_start_little_is_kept(count):
    session, log = FakeSession(20), TickLog()
    events = [Event(ORIGIN_NS + n * 50_000_000, "exec", f"pid {n} is now /bin/true {n}") for n in range(count)]
    events[1777] = Event(events[1777].t_ns, "mark", "here")
    session.events = lambda low, high: events[
        bisect_left(events, low, key=_t_ns) : bisect_left(events, high, key=_t_ns)
    ]
    for end in range(0, count, 500):
        log.update(session, events[min(end + 500, count) - 1].t_ns)
    assert len(log) == count
    assert len(log._events) <= markers.KEEP_TEXTS
    assert len(log._seen) <= 500 + markers.LATE_NS // 50_000_000 + 1
    drawn = log.drawn(ORIGIN_NS, events[-1].t_ns)
    assert SLOTS // 2 - 1 <= len(drawn) <= SLOTS
    assert [m.text for m in drawn if m.kind == "mark"] == ["here"]
    assert log.between(events[7].t_ns, events[8].t_ns)[1].text == "pid 8 is now /bin/true 8"


def _t_ns(event: Event) -> int:
    return event.t_ns
