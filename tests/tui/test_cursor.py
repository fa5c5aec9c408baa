"""One cursor in time and address for all panels, what is under it, looking closer, and looking at one range."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from memtui.core.units import clock
from memtui.session.session import Session
from memtui.tui.presenters import Presenter, Room
from memtui.tui.presenters.series import POINTS, Series, range_wss
from memtui.tui.presenters.time_budget import TimeBudget
from memtui.widgets.views.memory import State
from tests.support.screen_driver import held, running
from tests.support.screen_fakes import MIB, FakeSession
from tests.support.sessions import DATA, HEAP, messages, touched, write_session


def opened(tmp_path: Path, count: int = 40) -> Presenter:
    presenter = Presenter(Session(write_session(tmp_path / "x.memtui", messages(count))), follow=False)
    presenter.room = Room(60, 16)
    return settled(presenter)


def settled(presenter: Presenter) -> Presenter:
    deadline = time.monotonic() + 20
    while not (presenter.view(1.0) and presenter.complete):
        assert time.monotonic() < deadline
    return presenter


async def test_a_click_moves_time_and_address_of_all_panels():
    async with running(held(live=False)) as d:
        row, column = next(
            (y, line.index("anon 64M")) for y, line in enumerate(d.text.splitlines()) if "anon 64M" in line
        )
        await d.pilot.click(offset=(column + 30, row))
        await d.until(lambda: d.view.heat.cursor is not None)
        heat, graph = d.view.heat, d.view.graph
        assert d.view.header.state is State.PAUSED
        assert heat.axis == graph.axis
        assert heat.cursor.name == "anon 64M"
        columns = heat.share.shape[1]
        assert abs(heat.axis.column(heat.axis.cursor_ns, columns) - 14) <= 1  # 15 cells of names and a space before
        assert d.view.header.position_s == pytest.approx(heat.cursor.t_s)
        assert f"anon 64M · {clock(heat.cursor.t_s, tenths=True)} · " in d.text
        assert "▸" in d.text.splitlines()[row]
        await d.pilot.click(offset=(40, 4))  # the graph
        await d.until(lambda: d.view.header.position_s != pytest.approx(heat.cursor.t_s))
        assert d.view.heat.cursor.t_s == pytest.approx(d.view.header.position_s)


async def test_keys_move_the_cursor_in_memory():
    async with running(held(live=False)) as d:
        await d.press("shift+down")
        await d.until(lambda: d.view.heat.cursor is not None)
        assert d.view.heat.cursor.name == "anon 64M"  # it begins at the hottest
        first = d.view.heat.cursor.row
        await d.press("shift+up")
        await d.until(lambda: d.view.heat.cursor.name == "[heap]")
        assert d.view.heat.cursor.row == first - 2  # a gap has no addresses
        for _ in range(30):
            await d.press("shift+down")
        bottom = d.view.heat.cursor
        assert bottom.name == "torch_4242_1"
        await d.press("1", "up")  # chosen, the panel takes the plain arrows
        await d.until(lambda: d.view.heat.cursor.start < bottom.start)
        assert d.screen.panels.table.selected is None


async def test_zoom_and_back():
    async with running(held(live=False)) as d:
        await d.press("z")
        await d.until(lambda: d.view.heat.zoom == "64.0 MiB")
        assert "zoomed to 64.0 MiB (Z back)" in d.text
        assert {band.label for band in d.view.heat.bands} == {"anon 64M"}
        assert d.view.graph.axis.span_ns == 15 * 10**9
        await d.press("z")
        await d.until(lambda: d.view.heat.zoom == "16.0 MiB")
        before = d.view.heat.cursor.start
        await d.press("J")
        await d.until(lambda: d.view.heat.cursor.start == before + 8 * MIB)
        assert d.view.heat.zoom == "16.0 MiB"
        end = d.view.graph.axis.end_ns
        await d.press("H")
        await d.until(lambda: d.view.graph.axis.end_ns < end)
        await d.press("Z", "Z")
        await d.until(lambda: not d.view.heat.zoom)
        assert d.view.graph.axis.start_ns == d.view.graph.axis.origin_ns
        await d.press("Z")  # there is nothing further out
        assert d.app.is_running


async def test_a_chosen_range_is_looked_at_by_all_panels():
    async with running(held(live=False)) as d:
        await d.press("down")
        await d.until(lambda: d.view.graph.focus and d.screen.feed is not None)
        row = d.view.table.rows[0]
        assert d.view.graph.focus == row.name
        await d.until(lambda: np.isfinite(d.view.graph.focus_bytes).all())
        assert d.view.graph.focus_bytes[-1] == row.wss_bytes == d.view.graph.focus_now_bytes
        assert d.view.heat.focus == row.key
        assert d.view.heat.cursor.name == "anon 64M"
        assert f"working set  {row.name} 47.0 MiB" in d.text
        await d.until(lambda: d.view.reuse.whose == "of anon 64M", 25)
        assert d.view.reuse.touches
        assert "of anon 64M" in d.text
        await d.press("escape")
        await d.until(lambda: not d.view.graph.focus)
        assert d.view.graph.focus_bytes is None
        assert d.screen.panels.table.selected is None
        await d.until(lambda: not d.view.reuse.whose)


async def test_escape_goes_back_one_thing_at_a_time():
    async with running(held(live=False)) as d:
        await d.press("slash", *"anon", "enter", "down")
        await d.until(lambda: d.view.graph.focus)
        await d.press("escape")
        await d.until(lambda: not d.view.graph.focus)
        assert d.view.table.filter_text == "anon"
        await d.press("escape")
        await d.until(lambda: not d.view.table.filter_text)


async def test_escape_forgets_the_cursor_of_the_heat_map():
    async with running(held(live=False)) as d:
        assert "hottest" in d.text
        await d.press("shift+down")
        await d.until(lambda: "hottest" not in d.text)
        await d.press("escape")
        await d.until(lambda: "hottest" in d.text)


def test_touches_under_the_cursor_are_those_of_the_pages(tmp_path):
    replay = opened(tmp_path)
    replay.playhead.home()
    replay.playhead.step(9)
    settled(replay)
    replay.heat.point(0)
    seen = settled(replay).view().heat.cursor
    assert seen.start == HEAP
    cell = np.arange(HEAP >> 12, (HEAP + seen.cell_bytes) >> 12)
    assert seen.touched_bytes == 4096 * np.isin(cell, touched(9).pages()).sum()
    assert 0 < seen.touched_bytes <= seen.cell_bytes


def test_every_row_of_a_zoom_adds_up_to_the_range(tmp_path):
    """Zoomed on a range, its rows together hold all its touches, whatever part a row shows."""
    replay = opened(tmp_path)
    replay.heat.point(next(b.row for b in replay.view().heat.bands if b.label.startswith("anon")))
    replay.zoom(1)
    settled(replay)
    rows = []
    for row in range(16):
        replay.heat.point(row)
        rows.append(replay.view().heat.cursor)
    assert [r.start for r in rows] == sorted({r.start for r in rows})
    assert sum(r.touched_bytes for r in rows) == 2048 * 4096
    assert rows[0].start == DATA


def test_a_zoom_ends_where_a_pixel_is_a_page(tmp_path):
    replay = opened(tmp_path)
    replay.room = Room(20, 4)
    settled(replay).heat.point(0)
    for _ in range(12):
        replay.zoom(1)
        settled(replay)
    assert replay.view().heat.cursor.cell_bytes <= 2 * 4096
    for _ in range(12):
        replay.zoom(-1)
    assert not settled(replay).view().heat.zoom


@pytest.mark.parametrize("by", [-0.5, 0.5])
def test_panning_ends_at_the_first_and_the_last_range(tmp_path, by):
    replay = opened(tmp_path)
    replay.heat.point(3)
    replay.zoom(1)
    for _ in range(60):
        settled(replay).heat.pan(by)
    seen = settled(replay).view().heat
    assert {band.label for band in seen.bands} & ({"[heap]"} if by < 0 else {"[stack]"})
    assert seen.cursor is not None


def test_a_gap_says_what_is_in_it():
    def gaps(session) -> list[str]:
        replay = Presenter(session, follow=False)
        replay.room = Room(40, 20)
        return [band.label for band in settled(replay).view().heat.bands if band.kind == "gap"]

    session = FakeSession(60)
    assert gaps(session)[:2] == ["41.7 TiB not mapped", "94.9 GiB, 1 range not drawn"]
    between = {"id": 999, "start": 0x6000 << 32, "end": (0x6000 << 32) + MIB}
    session.rows.append(type(session.rows[0])(**(vars(session.rows[0]) | between)))
    assert gaps(session)[0] == "41.7 TiB, 1 range not drawn"


def test_a_line_over_a_long_session_asks_for_few_windows():
    session = FakeSession(9000)
    fetched = []
    fetch = range_wss(1)
    series = Series(lambda reader, first, last: fetched.append(last - first + 1) or fetch(reader, first, last), (0.0,))
    (line,), whole = series.view(session, 0, 9000, 8999, TimeBudget(60.0))
    assert whole
    assert sum(fetched) <= POINTS + 1
    finite = np.isfinite(line)
    assert finite[8999]
    expected = [dict(session._touched(int(n)))[1] for n in np.flatnonzero(finite)]
    assert line[finite].tolist() == expected
    fetched.clear()
    series.view(session, 0, 9000, 8999, TimeBudget(60.0))
    assert not fetched


def test_a_line_stops_at_the_deadline_and_goes_on():
    session, series = FakeSession(400), Series(range_wss(2), (0.0,))
    (line,), whole = series.view(session, 0, 400, 399, TimeBudget(0.0))
    assert not whole
    assert np.isfinite(line[-60:]).all()  # the newest first
    assert not np.isfinite(line[0])
    for _ in range(10):
        (line,), whole = series.view(session, 0, 400, 399, TimeBudget(0.0))
    assert whole
    assert np.isfinite(line).all()
