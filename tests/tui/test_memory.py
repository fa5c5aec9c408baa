"""The memory screen on an invented session: every key, every size, live and replayed."""

from __future__ import annotations

import time

import numpy as np
import pytest

from memtui.tui.presenters import Presenter, Room
from memtui.tui.presenters.playhead import Playhead, parse_time
from memtui.tui.screens.help import HelpScreen
from memtui.widgets.views.memory import Sort, State
from tests.support.screen_driver import held, running
from tests.support.screen_fakes import MIB, ORIGIN_NS, STEP_NS, FakeSession
from tests.support.screen_text import screen_lines

S = 1_000_000_000


async def test_replay_opens_paused_at_the_end_on_the_whole_picture():
    async with running() as d:
        assert d.view.header.state is State.PAUSED
        assert d.view.graph.axis.start_ns == ORIGIN_NS
        assert len(d.view.graph.end_ns) == 120
        for words in (
            "❚❚ 00:00:25 of 00:00:25",
            "7 shown, 416 left out",
            "half of all touches",
            "41.7 TiB not mapped",
            "[heap]",
        ):
            assert words in d.text


def test_what_is_touched_is_resident_whenever_that_was_looked_at():
    session = FakeSession(60)
    session.vma_rss = lambda sample: {row.id: 1 * MIB for row in session.rows}
    one = Presenter(session, follow=False)
    one.room = Room(60, 12)
    rows = {row.name: row for row in one.view(10.0).table.rows}
    heap = rows["[heap]"]
    assert heap.rss_at_least
    assert heap.rss_bytes == heap.wss_bytes > MIB
    assert not rows["[stack]"].rss_at_least
    assert rows["[stack]"].rss_bytes == MIB


async def test_a_text_is_looked_for_in_whole_paths():
    session = FakeSession(60)
    row = next(row for row in session.rows if "libtorch_cpu" in row.name and row.perms == "rw-p")
    row.name = "/opt/venv/lib/numpy/core.so"
    async with running(session) as d:
        await d.press("slash", *"venv/lib/num", "enter")
        await d.until(lambda: [row.name for row in d.view.table.rows] == ["core.so"])


async def test_step_seek_and_back():
    async with running() as d:
        end = d.view.header.position_s
        await d.press("T")
        await d.until(lambda: d.view.header.position_s == pytest.approx(end - 0.21))
        await d.press("t")
        await d.until(lambda: d.view.header.position_s == end)
        await d.press("left", "left")
        await d.until(lambda: d.view.header.position_s == pytest.approx(end - 0.42))
        await d.press("shift+left")
        await d.until(lambda: d.view.header.position_s == pytest.approx(end - 2.52))
        await d.press("home")
        await d.until(lambda: d.view.header.position_s == pytest.approx(0.2))
        assert d.view.header.state is State.PAUSED
        await d.press("end")
        await d.until(lambda: d.view.header.state is State.ENDED)
        assert "■ ended 00:00:25 target ended" in d.text


async def test_play_speed_and_pause():
    async with running() as d:
        for _ in range(5):
            await d.press("right_square_bracket")
        await d.until(lambda: d.view.header.speed == 32)
        await d.press("left_square_bracket")
        await d.until(lambda: d.view.header.speed == 16)
        await d.press("space")
        await d.until(lambda: d.view.header.state is State.PLAYING)
        assert "space pause" in d.text
        await d.until(lambda: d.view.header.position_s > 4)
        await d.press("space")
        await d.until(lambda: d.view.header.state is State.PAUSED)
        assert "x16" in d.text


async def test_playing_to_the_end_stops_there():
    async with running() as d:
        for _ in range(6):
            await d.press("right_square_bracket")
        await d.press("space")
        await d.until(lambda: d.view.header.state is State.PAUSED and d.view.header.position_s > 25)


async def test_live_pause_and_return():
    session = FakeSession(100, growing=True)
    async with running(session, live=True) as d:
        assert d.view.header.state is State.LIVE
        assert "● LIVE" in d.text
        first = d.view.header.position_s
        await d.until(lambda: d.view.header.position_s > first)
        await d.press("space")
        await d.until(lambda: d.view.header.state is State.PAUSED)
        stopped, whole = d.view.header.position_s, d.view.header.duration_s
        await d.until(lambda: d.view.header.duration_s > whole)
        assert d.view.header.position_s == stopped
        await d.press("l")
        await d.until(lambda: d.view.header.state is State.LIVE)
        assert session.gave_way > 0


async def test_live_ends_when_the_target_does():
    session = FakeSession(100, growing=True)
    async with running(session, live=True) as d:
        session.stop()
        await d.until(lambda: d.view.header.state is State.ENDED)
        assert "target ended" in d.text


async def test_a_recorder_that_is_gone_is_said():
    session = FakeSession(100, growing=True)
    async with running(session, live=True) as d:
        session.growing = False
        await d.until(lambda: d.view.header.state is State.ENDED)
        assert "recorder gone" in d.text


async def test_filters_and_sort():
    async with running() as d:
        await d.press("f")
        await d.until(lambda: not d.view.table.filters_on)
        assert len(d.view.table.rows) == 423
        assert "(filtered: exec)" in d.text
        await d.press("s")
        await d.until(lambda: d.view.table.sort is Sort.RSS)
        sizes = [row.rss_bytes or 0 for row in d.view.table.rows]
        assert sizes == sorted(sizes, reverse=True)
        await d.press("S")
        await d.until(lambda: not d.view.table.descending)
        await d.press("f")
        await d.until(lambda: d.view.table.filters_on)


async def test_help_and_back():
    async with running() as d:
        await d.press("slash", "escape", "question_mark")
        assert isinstance(d.app.screen, HelpScreen)
        assert "back to live" in d.text
        await d.press("question_mark")
        assert d.app.screen is d.screen
        await d.press("q")
        await d.until(lambda: d.app._exit)


async def test_miss_ratio_and_span():
    async with running() as d:
        await d.press("m")
        assert "would miss" in d.text
        await d.press("plus")
        await d.until(lambda: d.view.graph.axis.span_ns == 15 * S)
        await d.press("minus")
        await d.until(lambda: d.view.graph.axis.start_ns == ORIGIN_NS)


async def test_without_a_working_set_the_screen_says_why():
    async with running(FakeSession(60, tracker="rss"), size=(120, 36)) as d:
        assert "WSS n/a: needs root: sudo memtui attach 4242" in d.text
        assert d.text.count("no pages are tracked: needs root") == 2


def at_end(values: tuple[str, ...], word: str) -> tuple[str, ...]:
    return (*values[:-1], word)


@pytest.mark.parametrize("live", [True, False])
async def test_what_makes_a_window_less_than_exact_is_said(live):
    session = held(live=live)
    samples = session.samples
    samples.unknown_bytes[-1], samples.faulted_in_bytes[-1], samples.gaps[-1] = 1.2 * MIB, 3.1 * MIB, 2
    samples.disturbed = at_end(samples.disturbed, "DAMON on this machine")
    samples.status = at_end(samples.status, "approximate")
    samples.reason = at_end(samples.reason, "2 of 9 ranges could not be read")
    async with running(session, live=live, size=(250, 60)) as d:
        for words in (
            "WSS 77.1 MiB (1.20 MiB unknown)",
            "disturbed: DAMON on this machine",
            "approximate: 2 of 9 ranges could not be read",
            "2 gaps",
            "first mapped 3.10 MiB",
        ):
            assert words in d.text
        await d.press("T")  # the window before was exact
        await d.until(lambda: d.view.header.state is State.PAUSED and not d.view.graph.caveats)
        assert not any(words in d.text for words in ("unknown)", "disturbed:", "approximate:", "gaps", "first mapped"))


@pytest.mark.parametrize("size", [(120, 36), (80, 24)])
async def test_the_gravest_of_them_is_said_where_room_is_short(size):
    session = held(live=False)
    session.samples.gaps[-1] = 1
    session.samples.disturbed = at_end(session.samples.disturbed, "page idle tracking on this machine " * 4)
    async with running(session, size=size) as d:
        assert "disturbed: page idle" in d.text
        assert {len(line) for line in screen_lines(d.app)} == {size[0]}


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize("size", [(120, 36), (80, 24)])
async def test_a_target_that_stands_still_too_long_is_warned_of(live, size):
    session = held(live=live)
    session.samples.paused_ns[-10:] = 50_000_000
    async with running(session, live=live, size=size) as d:
        first = d.text.splitlines()[0]
        assert "stopped 24 %" in first
        assert ("interval" in first) == live  # nothing can be asked of a recording that ended
        for _ in range(3):
            await d.press("shift+left")  # well before
        await d.until(lambda: not d.view.header.warnings)
        assert "raise interval" not in d.text


def test_a_pause_that_is_short_enough_is_no_warning():
    session = held(live=False)
    session.samples.paused_ns[:] = 20_000_000  # 9.5 %
    assert Presenter(session, follow=False).view().header.warnings == ()


@pytest.mark.parametrize("live", [True, False])
async def test_the_hottest_range_is_that_of_the_cursor(live):
    """Opening a replay, End on the same sample, and coming back to it say the same."""
    async with running(held(live=live), live=live) as d:
        caption, row = d.view.heat.caption, d.view.table.rows[0]
        assert caption.startswith("hottest anon 64M 47.0 MiB")
        assert row.wss_bytes == 47 * MIB
        await d.press("home")
        await d.until(lambda: d.view.heat.caption.startswith("hottest anon 64M 40.0 MiB"))
        await d.press("end")
        await d.until(lambda: d.view.header.state in (State.LIVE, State.ENDED))
        assert d.view.heat.caption == caption


async def test_the_typed_filter_narrows_the_heat_map():
    async with running() as d:
        assert "[heap]" in {band.label for band in d.view.heat.bands}
        await d.press("slash", *"torch_4242", "enter")
        await d.until(lambda: {b.label for b in d.view.heat.bands if b.kind == "range"} == {"torch_4242_1"})
        await d.press("slash", "escape")
        await d.until(lambda: "[heap]" in {band.label for band in d.view.heat.bands})


async def test_help_in_ascii():
    async with running(ascii_only=True) as d:
        await d.press("question_mark")
        assert isinstance(d.app.screen, HelpScreen)
        assert "back to live" in d.text
        assert d.text.isascii()


@pytest.mark.parametrize("live", [True, False])
async def test_a_short_session_has_no_times_before_it_began(live):
    async with running(held(3, live=live), live=live) as d:
        await d.press("T")
        await d.until(lambda: d.view.header.state is State.PAUSED)
        start_ns = d.view.graph.axis.start_ns
        assert start_ns < ORIGIN_NS if live else start_ns == ORIGIN_NS  # the axis of what has ended fits it
        assert "-00:" not in d.text


async def test_a_session_that_breaks_is_said_and_the_screen_stays():
    session = FakeSession(60)
    async with running(session) as d:

        def broken(sample: int):
            raise ValueError("sample 7: damaged page set")

        session.reuse_until = broken
        await d.press("home")
        await d.until(lambda: "damaged page set" in d.text.splitlines()[0])
        del session.reuse_until
        await d.press("t")
        await d.until(lambda: "damaged" not in d.text)


async def test_a_click_on_quit_leaves():
    async with running() as d:
        line = screen_lines(d.app)[35]
        await d.pilot.click(offset=(line.index("q quit"), 35))
        await d.until(lambda: not d.app.is_running)


async def test_footer_click():
    async with running() as d:
        line = screen_lines(d.app)[-1]
        assert "flush" not in d.text
        await d.pilot.click(offset=(line.index("details"), 35))
        await d.until(lambda: "tracker pagetable" in d.text)


async def test_svg():
    async with running() as d:
        svg = d.app.export_svg()
    assert svg.startswith("<svg")
    assert "train.py" in svg


# The parts below the screen


def presenter(count: int = 300, **options) -> Presenter:
    made = Presenter(FakeSession(count, **options), follow=False)
    made.room = Room(60, 12)
    return made


def test_presenter_is_complete_after_some_views():
    one = presenter()
    seen = 0
    while not (one.view(0.01) and one.complete):
        seen += 1
        assert seen < 200
    view = one.view()
    assert view.heat.share.shape == (24, 60)
    assert np.isfinite(view.heat.share[0]).all()
    asked = one.reader.asked_pages
    one.view()
    assert one.reader.asked_pages == asked


def test_heat_columns_move_on_unchanged():
    session = FakeSession(400, growing=True, clock=lambda: 0.0)
    one = Presenter(session, follow=True)
    one.room = Room(60, 12)
    before = one.view(10.0).heat
    session.first = 405  # a second later: one column further
    one.refresh()
    after = one.view(10.0).heat
    moved = after.axis.bins(60)[1] - before.axis.bins(60)[1]
    assert moved in (1, 2)
    np.testing.assert_array_equal(before.share[:, moved:-1], after.share[:, : -moved - 1])


def test_seek_costs_little_on_a_long_session():
    one = presenter(18_000)
    one.view()
    began = time.process_time()
    for percent in range(0, 100, 10):
        one.playhead.jump(f"{percent}%")
        one.view(0.0)
    assert (time.process_time() - began) / 10 < 0.5  # the figure is in the benchmarks; this catches a slip


def test_several_processes_are_told_apart():
    session = FakeSession(60)
    second = type(session.rows[0])(**(vars(session.rows[1]) | {"id": 900, "process": 2, "pid": 4243}))
    session.rows.append(second)
    first = session.processes()
    session.processes = lambda: [*first, type(first[0])(2, 4243, 4242, 100, 0, "worker", "child")]
    one = Presenter(session, follow=False)
    one.room = Room(60, 20)
    view = one.view(10.0)
    assert view.header.others == 1
    assert {row.pid for row in view.table.rows} == {4242, 4243}
    assert sum(band.label.startswith("4242 ") for band in view.heat.bands) >= 6


def test_processes_that_ended_are_not_counted():
    session = FakeSession(60)
    first = session.processes()
    children = [type(first[0])(key, 4241 + key, 4242, 100, 0, "worker", "child") for key in (2, 3)]
    session.processes = lambda: [*first, *children]
    session.ended_at = {2: 20}
    one = Presenter(session, follow=False)
    seen = []
    for sample in (10, 20, 59):
        one.playhead.home()
        one.playhead.step(sample)
        seen.append(one.view().header.others)
    assert seen == [2, 1, 1]


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
    ("words", "seconds"),
    [
        ("7:12", 432), ("1:02:03.5", 3723.5), ("90", 90), ("5m", 300), ("1h2m3s", 3723), ("50%", 500), ("+30", 130),
        ("-1:30", 10), ("-9:00", 0), (" 2 m ", 120), (".5", 0.5), ("10s", 10),
    ],
)  # fmt: skip
def test_times_that_can_be_typed(words, seconds):
    assert parse_time(words, 100.0, 1000.0) == pytest.approx(seconds)


@pytest.mark.parametrize("words", ["", "x", "1:2:3:4", "5 apples", "--3", "%", "1e9", "nan", "9:99x"])
def test_times_that_cannot(words):
    with pytest.raises(ValueError, match="7:12"):
        parse_time(words, 0.0, 10.0)


async def test_the_words_follow_the_cursor():
    async with running(held(live=False)) as d:
        whole = " ".join(forms[0] for forms in d.view.words.sentences)
        await d.press("home")
        await d.until(lambda: " ".join(forms[0] for forms in d.view.words.sentences) != whole)
        first = d.view.words.sentences[0][0]
        assert first.split(",")[0] in " ".join(d.text.split())
