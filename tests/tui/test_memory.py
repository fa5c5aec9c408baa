"""The memory screen on an invented session: every key, every size, live and replayed."""

from __future__ import annotations

import pytest

from memtui.tui.screens.help import HelpScreen
from memtui.widgets.views.memory import Sort, State
from tests.support.screen_driver import held, running
from tests.support.screen_fakes import MIB, ORIGIN_NS, FakeSession
from tests.support.screen_text import screen_lines

S = 1_000_000_000


async def test_replay_opens_paused_at_the_end_on_the_whole_picture():
    async with running() as d:
        assert d.view.header.state is State.PAUSED
        assert d.view.graph.axis.start_ns == ORIGIN_NS
        assert len(d.view.graph.end_ns) == 120
        for text in (
            "❚❚ 00:00:25 of 00:00:25",
            "7 shown, 416 left out",
            "half of all touches",
            "41.7 TiB not mapped",
            "[heap]",
        ):
            assert text in d.text


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
        for text in (
            "WSS 77.1 MiB, 1.20 MiB of it perhaps untouched",
            "disturbed: DAMON on this machine",
            "approximate: 2 of 9 ranges could not be read",
            "at least 2 births or ends",
            "first mapped 3.10 MiB",
        ):
            assert text in d.text
        await d.press("T")  # the window before was exact
        await d.until(lambda: d.view.header.state is State.PAUSED and not d.view.graph.caveats)
        assert not any(
            text in d.text for text in ("perhaps untouched", "disturbed:", "approximate:", "births", "first mapped")
        )


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

        session.reuse.until = broken
        await d.press("home")
        await d.until(lambda: "damaged page set" in d.text.splitlines()[0])
        del session.reuse.until
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
        await d.pilot.click(offset=(line.index("h how"), 35))
        await d.until(lambda: "tracker pagetable" in d.text)


async def test_svg():
    async with running() as d:
        svg = d.app.export_svg()
    assert svg.startswith("<svg")
    assert "train.py" in svg


# The parts below the screen


async def test_the_words_follow_the_cursor():
    async with running(held(live=False)) as d:
        whole = " ".join(forms[0] for forms in d.view.sentences.sentences)
        await d.press("home")
        await d.until(lambda: " ".join(forms[0] for forms in d.view.sentences.sentences) != whole)
        first = d.view.sentences.sentences[0][0]
        assert first.split(",")[0] in " ".join(d.text.split())
