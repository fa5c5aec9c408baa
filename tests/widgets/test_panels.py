"""The panels with canned views: what stands where, what gives way, what is refreshed."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from memtui.analysis.memory_sentences import Figures, sentences_of
from memtui.analysis.reuse_histogram import ReuseHistogram, bin_of
from memtui.core.fault_latency import FaultLatency
from memtui.core.units import short_size, size
from memtui.tui.presenters import reuse_view
from memtui.widgets.footer_line import FooterLine
from memtui.widgets.header_line import HeaderLine
from memtui.widgets.heat_map import HeatMap, cursor_text, label_cells, picture_cells
from memtui.widgets.panel import CachedWidget, _neighbours
from memtui.widgets.power_gauge import PowerGauge
from memtui.widgets.power_line import PowerLine, tells_nothing
from memtui.widgets.reuse_histogram import ReuseHistogram as ReuseWidget
from memtui.widgets.reuse_histogram import between, bounds, fold, longer
from memtui.widgets.sentence_lines import DetailLines, SummaryLines, detail_rows
from memtui.widgets.views.memory import (
    DevicePower,
    FooterView,
    GraphView,
    HeaderView,
    HeatBand,
    HeatCursor,
    HeatView,
    PowerView,
    RangeRow,
    ReuseView,
    SentencesView,
    Sort,
    State,
    TableView,
    Tick,
    TimeAxis,
    same,
)
from memtui.widgets.vma_table import VmaTable
from memtui.widgets.wss_graph import WssGraph, own_bounds
from tests.support.screen_driver import running
from tests.support.screen_fakes import FakeSession
from tests.support.screen_text import Stage, drawn, screen_lines

MIB, S = 1 << 20, 1_000_000_000


def graph(*, wss=(100, 50, 75, 100), rss=1024, note="", follow=True) -> GraphView:
    ends = np.arange(1, 5) * 15.0 * S
    values = np.array(wss, float) * MIB
    return GraphView(
        TimeAxis(0, 0, 60 * S, 30 * S, follow),
        ends - 15 * S, ends, values, np.full(4, rss * float(MIB)),
        100 * MIB, 100 * MIB, rss * MIB, note=note,
    )  # fmt: skip


async def test_graph():
    assert await drawn(WssGraph(graph()), 60, 7) == (
        f"┌ working set {'─' * 7} now  100 MiB · max in sight  100 MiB ┐\n"
        f"│    ≈ {'┈' * 19} RSS 1.00 GiB, above the scale ┈┈│\n"
        + "│ 112M ⣶⣶⣶⣶⣶⣶⣶⣶⣶⣶⣶⣶⣶                          ⣶⣶⣶⣶⣶⣶⣶⣶⣶⣶⣶⣶⣶│\n"
        + "│      ⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿             ⣶⣶⣶⣶⣶⣶⣶⣶⣶⣶⣶⣶⣶⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿│\n"
        + "│      ⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿│\n"
        + "│    0 ⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿⣿│\n"
        + "└ -60 s ─────────────────── -30 s ──────────────────── now ┘"
    )  # fmt: skip


async def test_rss_above_the_scale_has_one_of_its_own_and_its_shape_is_seen():
    """It grows from 900 MiB to 1.2 GiB beside a working set of 100 MiB, which stays as high as without it."""
    rising = replace(graph(), rss_bytes=np.array([900.0, 1000, 1100, 1200]) * MIB, rss_now_bytes=1200 * MIB)
    lines = (await drawn(WssGraph(rising), 60, 14)).splitlines()
    low, high = own_bounds(rising.rss_bytes)
    assert low <= 900 * MIB < 1200 * MIB <= high
    assert lines[1][1:6].strip() == short_size(high)
    assert lines[3][1:6].strip() == short_size(low)
    assert [line[7:59].strip()[:1] not in ("", "┈") for line in lines[1:4]] == [True] * 3, "it is on every row"
    first, last = ([row for row in (1, 2, 3) if lines[row][column].strip()] for column in (8, 58))
    assert first[0] > last[0], "it rises"
    assert "≈" in lines[4]
    assert "RSS 1.17 GiB, own scale ┈┈│" in lines[4]
    assert lines[5][1:6].strip() == "112M"
    assert "⣀" in lines[5], "the working set reaches the top of its scale"


@pytest.mark.parametrize("values", [(500.0, 500.0), (0.0, 0.0), (1.0, 900.0), (499.9, 500.1)])
def test_bounds_of_a_line_hold_it_and_are_apart(values):
    low, high = own_bounds(np.array([*values, np.nan]) * MIB)
    assert 0 <= low <= min(values) * MIB
    assert max(values) * MIB <= high
    assert high > low


async def test_graph_draws_rss_on_its_scale_where_it_fits():
    text = await drawn(WssGraph(graph(rss=120)), 80, 8)
    assert "RSS" not in text
    assert "max in sight  100 MiB" in text


async def test_graph_without_wss_shows_rss_and_says_why():
    text = await drawn(WssGraph(graph(wss=(np.nan,) * 4, note="needs root: sudo memtui attach 4242")), 100, 8)
    assert "WSS n/a: needs root: sudo memtui attach 4242" in text
    assert "resident set  1.00 GiB" in text
    assert "⣿" in text


async def test_graph_marks_the_cursor_off_the_live_edge():
    text = await drawn(WssGraph(graph(follow=False)), 60, 7)
    assert text.splitlines()[3][32] == "│"
    assert "00:00:00" in text
    assert "00:01:00" in text


def marked(*ticks: Tick, **how) -> GraphView:
    """Fifty-two columns in sixty seconds; the area reaches the top row in the first and in the last thirteen."""
    return replace(graph(**how), ticks=ticks)


async def top_row(view: GraphView, **how) -> str:
    lines = (await drawn(WssGraph(view), 60, 7, **how)).splitlines()
    assert {cell_len(line) for line in lines} == {60}
    return lines[2][7:-1]


async def test_marks_stand_in_the_graph_with_their_words():
    row = await top_row(marked(Tick(20 * S, "mark", "epoch 1"), Tick(33 * S, "gap", "2 gaps")))
    assert row == "⣶" * 13 + "    ┃epoch 1   ┊gap       " + "⣶" * 13
    bare = await top_row(marked(Tick(20 * S, "mark", "epoch 1"), Tick(61 * S, "mark", "x"), Tick(-S, "mark", "y")))
    assert bare == "⣶" * 13 + "    ┃epoch 1              " + "⣶" * 13


async def test_words_of_marks_never_lie_on_data_or_on_each_other():
    """The first has no room before the next, the third would run into the area, the last two are one column."""
    near = (Tick(20 * S, "mark", "epoch 1"), Tick(25 * S, "mark", "two"), Tick(44 * S, "mark", "three"))
    both = (Tick(32 * S, "gap", "1 gap"), Tick(32 * S + 1, "mark", "all of it"))
    assert await top_row(marked(*near, *both)) == "⣶" * 13 + "    ┃   ┃two  ┃all of it ┃" + "⣶" * 13
    assert await top_row(marked(Tick(17 * S, "mark", "a name that is far too long"))) == (
        "⣶" * 13 + " ┃a name that…ar too long " + "⣶" * 13
    )


async def test_words_of_a_mark_stand_to_its_left_where_there_is_no_room_to_its_right():
    row = await top_row(marked(Tick(40 * S, "mark", "epoch 1")))
    assert row == "⣶" * 13 + " " * 14 + "epoch 1┃    " + "⣶" * 13


async def test_a_mark_over_data_colours_it_and_hides_nothing():
    without_tick, with_mark = (WssGraph(view) for view in (graph(), marked(Tick(6 * S, "mark", "x"))))
    lines = []
    for widget in (without_tick, with_mark):
        app = Stage(widget)
        async with app.run_test(size=(60, 7)) as pilot:
            await pilot.pause()
            lines.append((screen_lines(app)[2], [s.style for s in widget.render_line(2)]))
    assert lines[0][0] == lines[1][0]
    assert lines[0][1] != lines[1][1]


async def test_a_mark_under_a_line_that_runs_along_the_top():
    """RSS is such a line: there are blanks below it, down to the area."""
    lines = (await drawn(WssGraph(marked(Tick(20 * S, "mark", "epoch 1"), rss=120)), 60, 7)).splitlines()
    assert "┃" not in lines[1]
    assert lines[2][7 + 17 :].startswith("┃epoch 1 ")


async def test_the_cursor_goes_before_a_mark():
    """It stands at 30 s, in column 25; words end before it."""
    view = marked(Tick(30 * S, "mark", "here"), Tick(20 * S, "mark", "epoch seven"), follow=False)
    assert await top_row(view) == "⣶" * 13 + "    ┃       │             " + "⣶" * 13


async def test_marks_in_ascii_and_in_wide_letters():
    row = await top_row(marked(Tick(20 * S, "mark", "epoch 1"), Tick(33 * S, "gap", "2 gaps")), ascii_only=True)
    assert row.isascii()
    assert "|epoch 1   :gap" in row
    row = await top_row(marked(Tick(20 * S, "mark", "日\x1b日")))
    assert row == "⣶" * 13 + "    ┃日\\x1b日" + " " * 13 + "⣶" * 13


def refreshed(widget: Widget) -> list[tuple[Region, ...]]:
    """What the widget has drawn anew from now on."""
    regions: list[tuple[Region, ...]] = []
    refresh = widget.refresh
    widget.refresh = lambda *args, **options: regions.append(args) or refresh(*args, **options)
    return regions


async def test_a_new_mark_costs_one_line_and_the_same_ones_none():
    widget = WssGraph(marked(Tick(20 * S, "mark", "epoch 1")))
    app = Stage(widget)
    async with app.run_test(size=(60, 7)) as pilot:
        await pilot.pause()
        regions = refreshed(widget)
        widget.show(marked(Tick(20 * S, "mark", "epoch 1")))
        assert regions == []
        widget.show(marked(Tick(20 * S, "mark", "epoch 1"), Tick(33 * S, "mark", "b")))
        assert [[region.y for region in args] for args in regions] == [[2]]


@pytest.mark.parametrize("width", [120, 100, 80, 60])
async def test_the_working_set_stays_beside_a_chosen_range(width):
    view = replace(graph(), focus="anon 7fc414b85000", focus_now_bytes=80 << 10)
    first = (await drawn(WssGraph(view), width, 7)).splitlines()[0]
    assert "anon 7fc414b85000 80.0 KiB" in first
    assert re.search(r"now +[\d.]+ [KMG]iB", first)
    assert ("max in sight" in first) == (width >= 100)
    assert ("max" in first) == (width >= 80)


async def test_an_edge_without_a_text_is_a_line():
    view = replace(graph(), axis=TimeAxis(0, -40 * S, 20 * S, 20 * S, False))
    last = (await drawn(WssGraph(view), 80, 7)).splitlines()[-1]
    assert last.startswith("└──"), "the time before the session has no label"
    table = VmaTable(TableView((RangeRow(1, 0, 4096, "rw-p", "a"),), filters_on=False))
    assert (await drawn(table, 80, 5)).splitlines()[-1] == f"└{'─' * 78}┘"


@pytest.mark.parametrize("width", [120, 100, 80])
async def test_why_there_is_no_working_set_is_read_from_its_start(width):
    why = "the rss tracker sees what is resident, not what is touched"
    first = (await drawn(WssGraph(replace(graph(), note=why)), width, 7)).splitlines()[0]
    assert (why in first) == (width >= 100)
    assert "WSS n/a: the rss tracker sees what is" in first


async def test_graph_in_ascii():
    assert (await drawn(WssGraph(graph()), 60, 7, ascii_only=True)).isascii()


def heat(width: int, height: int) -> HeatView:
    columns, rows = picture_cells(width, height)
    share = np.zeros((rows * 2, columns), np.float32)
    share[:2] = 1.0
    share[2:4] = np.nan
    bands = (HeatBand(0, 1, "[heap]"), HeatBand(1, 1, "gap of 2.0 TiB", "gap"), HeatBand(2, rows - 2, "anon 64M"))
    return HeatView(TimeAxis(0, 0, 60 * S, 60 * S, True), share, bands, "hottest [heap] 8.00 MiB")


@pytest.mark.parametrize("color", ["256", "16", "none"])
async def test_heat_map(color):
    text = await drawn(HeatMap(heat(60, 6)), 60, 6, color=color)
    lines = text.splitlines()
    assert all(len(line) == 60 for line in lines)
    assert lines[1].startswith("│[heap]")
    assert lines[2].startswith("│  ┄┄ gap of 2.0 TiB ┄┄")
    assert lines[3].startswith("│anon 64M")
    assert "hottest [heap] 8.00 MiB" in lines[5]
    if color == "none":
        assert "█" * 40 in lines[1]


def of_processes(width: int, height: int, pids: tuple[int | str, ...] = (14131, 14147, 14148)) -> HeatView:
    names = ("[heap]", "python3.11", "anon 114M")
    bands = [
        HeatBand(row, 1, f"{pid} {name}", who=str(pid))
        for row, (pid, name) in enumerate((pid, name) for pid in pids for name in names)
    ]
    hottest = HeatBand(0, 0, "14148 anon 114M", who="14148")
    columns, _ = picture_cells(width, height)
    share = np.ones((18, columns), np.float32)
    caption = "hottest 14148 anon 114M 38.7 MiB · 96 small ones not drawn"
    return HeatView(TimeAxis(0, 0, 60 * S, 60 * S, True), share, tuple(bands), caption, hottest=hottest)


@pytest.mark.parametrize("width", [52, 64, 112])  # the panel on screens of 100, 120 and 210 columns
async def test_rows_of_the_heat_map_keep_their_process_and_their_name(width):
    for pids in ((14131, 14147, 14148), (15163, 15214, 15216), (998, 15198, 15298)):
        lines = (await drawn(HeatMap(of_processes(width, 11, pids)), width, 11)).splitlines()[1:10]
        labels = [line[1 : 1 + label_cells(width - 2)].split() for line in lines]
        assert len(set(map(tuple, labels))) == 9, labels
        assert {label[0][-2:] for label in labels} == {str(pid)[-2:] for pid in pids}
        names = {" ".join(label[1:]) for label in labels}
        assert len(names) == 3, "the same memory has the same name in every process"


async def test_what_differs_of_addresses_stays_behind_one_ellipsis():
    view = of_processes(44, 11)
    names = [
        f"{band.who} {name}"
        for band, name in zip(view.bands, ("[heap]", "anon 1M …314", "anon 1M …7fe") * 3, strict=True)
    ]
    view = replace(view, bands=tuple(replace(band, label=name) for band, name in zip(view.bands, names, strict=True)))
    lines = (await drawn(HeatMap(view), 44, 11)).splitlines()[1:10]
    labels = [line[1 : 1 + label_cells(42)] for line in lines]
    assert not any("……" in label or "… …" in label for label in labels)
    assert [label.split()[1] for label in labels] == ["[heap]", "…314", "…7fe"] * 3


async def test_ranks_are_r0_and_r1_where_there_is_little_room():
    lines = (await drawn(HeatMap(of_processes(52, 11, ("rank 0", "rank 1", 998))), 52, 11)).splitlines()[1:10]
    labels = [line[1 : 1 + label_cells(50)] for line in lines]
    assert [label.split()[0] for label in labels] == ["r0"] * 3 + ["r1"] * 3 + ["998"] * 3, labels


@pytest.mark.parametrize("width", [50, 52, 64, 112])
async def test_the_size_of_the_hottest_range_is_never_cut(width):
    view = of_processes(width, 11)
    for axis in (view.axis, replace(view.axis, follow=False)):
        last = (await drawn(HeatMap(replace(view, axis=axis)), width, 11)).splitlines()[-1]
        assert re.search(r" (hot|hottest) (14148|…48) (anon 114M|[^ ]+114M|.*…114M) 38\.7 MiB( ·.*)? ─", last), last


async def test_the_bounds_of_a_zoomed_range_are_told_apart():
    bands = (HeatBand(0, 4, "anon 113M", start=0x7F987877D000, end=0x7F987F82A000),)
    view = HeatView(TimeAxis(0, 0, 60 * S, 60 * S, True), np.ones((8, 41), np.float32), bands, zoom="113 MiB")
    lines = (await drawn(HeatMap(view), 44, 6)).splitlines()
    assert [lines[2][1:11].strip(), lines[4][1:11].strip()] == ["…87877d000", "…87f82a000"]


def test_the_cells_above_each_other_have_different_addresses_at_the_cursor():
    starts = [0x7F987877D000 + n * (4 << 20) for n in range(20)]
    for room in (20, 30, 40, 46, 60):
        forms = {cursor_text(HeatCursor(0, start, "anon 113M", 5.8, 0, 4 << 20), room) for start in starts}
        assert len(forms) == (20 if room >= 30 else 1), (room, forms)


async def test_heat_map_says_why_there_is_none():
    view = HeatView(TimeAxis(0, 0, S, S, True), np.empty((0, 0), np.float32), note="no pages are tracked: needs root")
    assert "no pages are tracked: needs root" in await drawn(HeatMap(view), 60, 8)


def histogram() -> ReuseHistogram:
    return FakeSession(10).reuse.until(9)


async def test_reuse_histogram_and_miss_ratio():
    widget = ReuseWidget(reuse_view(histogram(), 0.2))
    app = Stage(widget)
    async with app.run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        text = "\n".join(screen_lines(app))
        assert "half of all touches come back within 117-128 MiB" in text
        assert "of touches would miss" in text, "what less memory would cost stands there without a key"
        assert "first touch" in text
        assert "per page and 0.2 s" in text
        widget.toggle()
        await pilot.pause()
        text = "\n".join(screen_lines(app))
        assert "miss ratio" in text.splitlines()[0]
        assert "100 %" in text
        assert "would miss" in text


async def test_a_half_whose_bounds_are_far_apart_is_not_spoken_of():
    view = reuse_view(histogram(), 0.2)
    assert view.half_high_bytes is not None
    near = replace(view, half_low_bytes=view.half_high_bytes / 16)
    far = replace(view, half_low_bytes=view.half_high_bytes / 16.1)
    for height in (12, 8):
        assert "half of all touches" in await drawn(ReuseWidget(near), 60, height)
        text = await drawn(ReuseWidget(far), 60, height)
        assert "half of" not in text
        assert "of touches would miss" in text


async def test_a_miss_ratio_whose_bounds_are_far_apart_is_estimated():
    view = reuse_view(histogram(), 0.2)
    sizes = len(view.size_bytes)
    low, high, estimate = (np.full(sizes, share) for share in (0.02, 0.8, 0.31))
    far = replace(view, miss_low=low, miss_high=high, miss_estimate=estimate)
    for width, expected in (
        (110, "about 31 % (2-80 %; in random order) of touches per page and 0.2 s window would miss"),
        (80, "about 31 % (2-80 %; in random order) of touches would miss"),
        (60, "about 31 % (2-80 %) of touches would miss"),
        (40, "2-80 % would miss"),
    ):
        assert expected in await drawn(ReuseWidget(far), width, 12)
    for other in (replace(far, miss_high=low + 0.09), replace(far, miss_estimate=None)):
        assert "about" not in (await drawn(ReuseWidget(other), 110, 12)).split("with ")[-1]


async def test_misses_are_turned_into_time_where_the_latency_of_a_fault_is_known():
    """100,000 touches a second, a fifth of them first ones: a share of 0.3 are 10,000 misses a second, of 50 us."""
    view = reuse_view(histogram(), 0.2)
    low, high = (np.full(len(view.size_bytes), share) for share in (0.3, 0.4))
    latency = FaultLatency("swap", "/dev/zram0", 40_000, 50_000, 90_000, 1000)
    known = replace(
        view, miss_low=low, miss_high=high, first_share=0.2, touches=1_000_000, seconds=10.0, fault_latency=latency
    )
    for width, expected in (
        (100, "it would take about 1.5-2 times as long, at 50.0 us a page from swap"),
        (66, "takes about 1.5-2 times as long, at 50.0 us a page from swap"),
        (52, "it would take about 1.5-2 times as long (swap)"),
    ):
        widget = ReuseWidget(known)
        widget.misses = True
        assert expected in await drawn(widget, width, 12)
        assert "times as long" not in await drawn(ReuseWidget(known), width, 12), "only below the curve"
    for unknown in (replace(known, seconds=0.0), replace(known, fault_latency=None)):
        widget = ReuseWidget(unknown)
        widget.misses = True
        assert "as long" not in await drawn(widget, 100, 12)
    widget = ReuseWidget(replace(known, miss_low=low - 0.1, miss_high=high - 0.2))
    widget.misses = True
    assert "it would take less than 0.5 % longer" in await drawn(widget, 100, 12), "first touches read nothing back"


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (0.0, 0.004, "less than 0.5 % longer"),
        (0.021, 0.04, "about 2.1-4 % longer"),
        (0.1, 0.1, "about 10.0 % longer"),
        (0.2, 0.6, "about 1.2-1.6 times as long"),
        (1.0, 1.0, "about 2 times as long"),
        (9.0, 250.0, "about 10-251 times as long"),
    ],
)
def test_how_much_longer_is_said_in_per_cent_while_it_is_little(low, high, says):
    assert longer(low, high) == says


@pytest.mark.parametrize(
    ("high", "at"),
    [
        ([0.9, 0.5, 0.1, 0.02, 0.0], 2),
        ([0.9, 0.69, 0.63, 0.6, 0.6], 2),  # 60 % are first touches: a tenth of the others is 4 % of all
        ([1.0, 1.0, 1.0, 1.0, 1.0], 0),  # nothing returns
    ],
)
async def test_the_size_that_nobody_chose_is_the_least_that_is_enough(high, at):
    sizes = 2.0 ** np.arange(20, 25)
    curve = {"size_bytes": sizes, "miss_low": np.array(high), "miss_high": np.array(high), "miss_estimate": None}
    view = replace(reuse_view(histogram(), 0.2), **curve)
    widget = ReuseWidget(view)
    widget.misses = True
    assert f"with {size(int(sizes[at]))}, {bounds(high[at], high[at])} of touches" in await drawn(widget, 80, 12)


async def test_a_chosen_memory_size_is_the_one_that_is_spoken_of():
    view = reuse_view(histogram(), 0.2)
    widget = ReuseWidget(view)
    assert widget.choose_size(100 << 20)
    at = int(np.searchsorted(view.size_bytes, 100 << 20, side="right")) - 1
    assert view.size_bytes[at] < 100 << 20 < view.size_bytes[at + 1]
    expected = bounds(float(view.miss_low[at]), float(view.miss_high[at]))
    shown = await drawn(widget, 80, 12)
    assert f"with 100 MiB, {expected} of touches" in shown
    for outside, low, high in ((4096, view.miss_low[0], 1.0), (1 << 40, view.miss_low[-1], view.miss_high[-1])):
        assert widget.choose_size(outside)
        expected = bounds(float(low), float(high))
        assert f"with {size(outside)}, {expected} of touches" in await drawn(widget, 80, 12)
    assert not ReuseWidget(ReuseView()).choose_size(1 << 20)


async def test_an_estimate_is_shown_with_its_bounds_and_its_assumption():
    view = reuse_view(histogram(), 0.2)
    view = replace(view, half_low_bytes=4096, half_high_bytes=128 << 20, half_estimate_bytes=37 << 20)
    for width, text in (
        (120, "about 37.0 MiB (4.00 KiB-128 MiB; if in random order inside each window)"),
        (84, "half of touches return within about 37.0 MiB (4.00 KiB-128 MiB; in random order)"),
        (74, "half of all touches come back within about 37.0 MiB (4.00 KiB-128 MiB)"),
        (50, "half of touches return within about 37.0 MiB"),
    ):
        assert text in await drawn(ReuseWidget(view), width, 12)
    near = replace(view, half_low_bytes=120 << 20)
    assert "come back within 120-128 MiB" in await drawn(ReuseWidget(near), 60, 12)


async def test_what_bursts_tell_comes_first():
    view = replace(reuse_view(histogram(), 0.2), burst_half_bytes=(20 << 20, 38 << 20, float(31 << 20)), probe="10 ms")
    for width, height, text in (
        (96, 12, "of touches in windows of 10 ms, half come back within about 31.0 MiB (20.0-38.0 MiB)"),
        (80, 12, "of windows of 10 ms, half come back within about 31.0 MiB (20.0-38.0 MiB)"),
        (60, 8, "in 10 ms: half within about 31.0 MiB (20.0-38.0 MiB)"),
        (46, 8, "in 10 ms: half within about 31.0 MiB"),
    ):
        shown = await drawn(ReuseWidget(view), width, height)
        assert text in shown
        assert ("half of all touches" in shown) == ("would miss" in shown) == (height == 12)
    close = replace(view, burst_half_bytes=(36 << 20, 38 << 20, float(37 << 20)))
    assert "half come back within 36.0-38.0 MiB" in await drawn(ReuseWidget(close), 80, 12)


async def test_more_first_touches_than_half_are_not_called_half():
    view = replace(reuse_view(histogram(), 0.2), half_low_bytes=None, half_high_bytes=None, first_share=0.682)
    for height in (12, 8):
        text = await drawn(ReuseWidget(view), 48, height)  # the panel on a screen of 100 columns
        assert " half of all touches or more are first touches│" in text
        assert "first touch 68.2 %" in text


async def test_reuse_before_anything_came_back():
    assert "no page was touched twice yet" in await drawn(ReuseWidget(reuse_view(ReuseHistogram(), 0.2)), 60, 10)


def test_between_shares_a_unit():
    assert between(131 * MIB, 139 * MIB) == "131-139 MiB"
    assert between(900 * 1024, 2 * MIB) == "900 KiB-2.00 MiB"
    assert between(MIB, MIB) == "1.00 MiB"


def test_fold_keeps_all_shares_and_fits():
    view = reuse_view(histogram(), 0.2)
    for columns in (10, 37, 200):
        edges, share = fold(view.edges_bytes, view.upper, columns)
        assert len(share) <= columns
        assert len(edges) == len(share) + 1
        assert share.sum() == pytest.approx(view.upper.sum())


async def test_power_gauge():
    view = PowerView(
        (
            DevicePower("GPU 0", 412, 388, 455, 18_400, 700),
            DevicePower("CPU 0", reason="no RAPL zone (/sys/class/powercap is empty)"),
        )
    )
    text = await drawn(PowerGauge(view), 29, 9)
    for part in ("412 W", "avg  388 peak  455", "18.4 kJ · limit 700", "n/a: no RAPL zone"):
        assert part in text
    assert "SM 95 %" not in text


async def test_counters_of_a_gpu_leave_a_row_for_each_reason():
    counters = ("SM 95 % occup. 14 %", "tensor 92 % mem 15 %", "PCIe in 2.5M/s out 1M/s")
    gpu = DevicePower("GPU 0", 412, 388, 455, 18_400, 700, note="board, 2 processes", counters=counters)
    view = PowerView((gpu, DevicePower("CPU 0", reason="no RAPL zone (/sys/class/powercap is empty)")))
    for height in range(4, 14):
        text = await drawn(PowerGauge(view), 29, height)
        shown = [line for line in counters if line in text]
        assert shown == list(counters[: max(0, height - 2 - 4 - 1)]), "four lines of the board, one of the reason"
        assert "n/a: no RAPL zone" in text
        assert ("is empty)" in text) == (height >= 2 + 4 + 3 + 3), "what is left of the panel is the reason's"


async def test_the_gauges_of_eight_gpus():
    eight = PowerView(tuple(DevicePower(f"GPU {n}", 100.0 + n, 1, 1, 1, 700) for n in range(8)))
    text = await drawn(PowerGauge(eight), 40, 10)
    assert all(f"{100 + n} W" in text for n in range(8))
    assert "828 W" in text.splitlines()[0]
    packages = [DevicePower(f"CPU {n}", 100, added=n < 2) for n in range(3)]
    assert "200 W" in (await drawn(PowerGauge(PowerView(tuple(packages))), 40, 10)).splitlines()[0], "psys has both"


def table(count: int = 3, **changes) -> TableView:
    rows = tuple(
        RangeRow(n, n << 24, (n + 1) << 24, "rw-p", f"range {n}", (count - n) * MIB, 16 * MIB, 0.5, (8,) * 12)
        for n in range(count)
    )
    return TableView(rows, left_out=415, **changes)


async def test_table():
    text = await drawn(VmaTable(table()), 120, 8)
    assert "3 shown, 415 left out by filters (f)" in text
    assert "sort: WSS ▼" in text
    lines = text.splitlines()
    assert lines[2].startswith("│ 3.00 MiB   16.0 MiB   50.0 % ▇▇▇▇▇▇▇▇▇▇▇▇ rw-p  range 0")
    narrow = await drawn(VmaTable(table()), 60, 8)
    assert "trend" not in narrow
    assert "range 0" in narrow


async def test_table_greys_what_a_filter_would_leave_out():
    row = RangeRow(1, 0, MIB, "r-xp", "libtorch.so", MIB, MIB, 1.0, left_out="filtered: exec")
    text = await drawn(VmaTable(TableView((row,), filters_on=False)), 100, 6)
    assert "(filtered: exec)" in text
    assert "filters off (f)" in text


async def test_table_scrolls_and_keeps_its_selection():
    widget = VmaTable(table(50))
    app = Stage(widget)
    async with app.run_test(size=(100, 10)) as pilot:
        await pilot.pause()
        widget.move(1)
        assert widget.selected == 0
        widget.page(1)
        widget.page(1)
        assert widget.selected == 12
        assert widget.top > 0
        widget.show(table(50, sort=Sort.NAME))
        assert widget.selected == 12
        widget.move(-100)
        assert (widget.selected, widget.top) == (0, 0)
        widget.scroll_rows(1000)
        await pilot.pause()
        assert "range 49" in "\n".join(screen_lines(app))


async def test_table_header_click_sorts():
    clicked = []

    class Watching(Stage):
        def on_vma_table_sort_clicked(self, message: VmaTable.SortClicked) -> None:
            clicked.append(message.sort)

    app = Watching(VmaTable(table()))
    async with app.run_test(size=(100, 10)) as pilot:
        await pilot.click(offset=(13, 1))
        await pilot.click(offset=(3, 3))
        await pilot.pause()
    assert clicked == [Sort.RSS]
    assert app.widget.selected == 1


HEADER = HeaderView(
    "train.py", 4242, 2, State.LIVE, True, 761, 761, 1.0, "", "pagetable", "cold", 0.2, 0.21, 0.0031, 0.008
)


async def test_header_speaks_of_whom_and_when_and_the_details_of_how():
    for width in (140, 80):
        text = await drawn(HeaderLine(HEADER), width, 1)
        assert "● LIVE 00:12:41" in text
        assert not any(word in text for word in ("pagetable", "flush", "0.20", "0.21", "stopped", "self"))
    assert "pid 4242 +2   ● LIVE" in await drawn(HeaderLine(HEADER), 140, 1)
    assert "next window in 6 s" in await drawn(HeaderLine(replace(HEADER, wait_s=6)), 120, 1)
    costs = "slows it by about 0.8 % · tracing by about 8 % more"
    traced = replace(HEADER, lost=0.008, traced=0.08)
    assert costs in await drawn(HeaderLine(traced), 140, 1)
    narrow = await drawn(HeaderLine(traced), 80, 1)
    assert "slows it by about 9 %" in narrow, "both together, where they do not fit"
    assert "tracing" not in narrow


@pytest.mark.parametrize("width", [210, 120, 100, 80, 60])
async def test_details_say_how_it_is_measured_and_what_that_costs(width):
    """With a budget, which is the most there is to say, in the lines that are kept for it."""
    view = replace(
        HEADER, rearm="working-set", flush="soft-dirty", budget=0.01, spent=0.0083, budgeted_s=1007.4, true_s=1007.43
    )
    text = await drawn(DetailLines(replace(view, given_back_bytes=3 * MIB)), width, detail_rows(width))
    assert not any(len(line.rstrip()) > width for line in text.splitlines())
    for part in (
        "tracker pagetable",
        "flush soft-dirty",
        "rearm working-set",
        "interval asked 0.20 s, budgeted 1007.40 s, true 1007.43 s",
        "stopped  3.1 ms a window in all",
        "self  0.8 % of one core",
        "budget 1 % (recording 3 %), 83 % used",
        "given back up to 3.00 MiB",
    ):
        assert part in text


async def test_a_process_alone_is_stopped_once_a_window():
    text = await drawn(DetailLines(replace(HEADER, others=0)), 120, detail_rows(120))
    assert "stopped  3.1 ms a window" in text
    assert "in all" not in text


async def test_details_that_are_not_known_are_said_to_be():
    text = await drawn(DetailLines(HeaderView()), 120, detail_rows(120))
    assert "interval n/a   stopped n/a   self n/a   budget none   given back n/a" in text


SENTENCES = sentences_of(Figures(0.2, 61 * MIB, 180 * MIB, 482 * MIB, (100 * MIB, 181 * MIB), 0.058, 0.09, 0.127))


async def test_as_many_sentences_as_have_room_are_said_and_none_is_cut():
    part = SummaryLines(SentencesView(tuple(SENTENCES)))
    wide = " ".join((await drawn(part, 210, 2)).split())
    assert wide == " ".join(forms[0] for forms in SENTENCES)
    narrow = (await drawn(SummaryLines(SentencesView(tuple(SENTENCES))), 120, 2)).split()
    assert " ".join(narrow) == f"{SENTENCES[0][0]} {SENTENCES[2][0]}"
    small = (await drawn(SummaryLines(SentencesView(tuple(SENTENCES))), 80, 1)).strip()
    assert small == "In a window of 200 ms the program touches 61.0 MiB in the median."
    assert not (await drawn(SummaryLines(SentencesView(tuple(SENTENCES))), 40, 1)).strip()


async def test_header_warning_comes_before_all_else():
    view = replace(HEADER, warnings=("stopped 24 % of the time: use a longer --interval", "stopped 24 %: --interval"))
    assert view.warnings[0] in await drawn(HeaderLine(view), 120, 1)
    assert view.warnings[1] in await drawn(HeaderLine(view), 80, 1)
    paused = await drawn(HeaderLine(replace(view, state=State.PAUSED)), 120, 1)
    assert view.warnings[1] in paused or view.warnings[0] in paused
    assert "━●" in paused


def test_miss_ratio_axis_is_about_the_drop():
    made = ReuseHistogram()
    drop = 64 * MIB
    counts = {4096: 5, drop: 1000}  # a few touches that came back at once
    for distance, count in counts.items():
        made.upper[bin_of(np.array([distance]))] += count
        made.lower[bin_of(np.array([distance]))] += count
    view = reuse_view(made, 0.2)
    assert drop / 4 <= view.size_bytes[0] <= drop / 2
    assert drop * 2 <= view.size_bytes[-1] <= drop * 4
    assert view.miss_high[0] > 0.98
    assert view.miss_high[-1] == 0


async def test_header_paused_has_a_timeline():
    view = HeaderView(
        "train.py", 4242, 0, State.PAUSED, True, 432, 761, 4.0, tracker="pagetable", ticks=(Tick(100 * S, "mark"),)
    )
    text = await drawn(HeaderLine(view), 120, 1)
    assert "❚❚ 00:07:12 of 00:12:41 x4" in text
    assert "━┃━" in text
    assert "●─" in text


async def test_header_ended_says_why():
    view = HeaderView("train.py", 4242, 0, State.ENDED, False, 9, 9, ended="target exited")
    assert "■ ended 00:00:09 target exited" in await drawn(HeaderLine(view), 120, 1)


async def test_footer_keeps_the_important_keys():
    text = await drawn(FooterLine(FooterView(2 * MIB, "/home/ann/x.memtui", True)), 210, 1)
    assert "rec 2.00 MiB x.memtui" in text
    narrow = await drawn(FooterLine(FooterView(2 * MIB, "/home/ann/x.memtui", True)), 60, 1)
    assert all(part in narrow for part in ("space pause", "? help", "q quit"))
    assert "jump" not in narrow


async def test_footer_of_a_recording_that_goes_on_says_so():
    footer = FooterLine(FooterView(2 * MIB, "/home/ann/x.memtui", True))
    footer.owns_recording = False
    text = await drawn(footer, 180, 1)
    assert "q leave, it goes on" in text
    assert "detach" not in text


async def test_where_the_chosen_range_lies_stands_below_when_there_is_no_column_for_it():
    made = table()
    for width, below in ((120, True), (200, False)):
        widget = VmaTable(made)
        widget.selected = made.rows[0].key
        row = made.rows[0]
        assert (f"{row.start:012x}-{row.end:012x}" in (await drawn(widget, width, 12)).splitlines()[-1]) == below


async def test_the_same_view_again_refreshes_nothing():
    widget = VmaTable(table())
    app = Stage(widget)
    async with app.run_test(size=(100, 10)) as pilot:
        await pilot.pause()
        regions = refreshed(widget)
        widget.show(table())
        assert regions == []
        changed = table()
        widget.show(TableView((*changed.rows[:2], RangeRow(9, 0, 1, "r--p", "new")), 415))
        assert [[region.y for region in args] for args in regions] == [[4]]


async def test_foreign_names_cannot_break_a_line():
    name = "\x1b]52;c;QQ==\x07[bold]</script>\u202e\n日本"
    row = RangeRow(1, 0, MIB, "rw-p", name, MIB, MIB, 1.0)
    app = Stage(VmaTable(TableView((row,))))
    async with app.run_test(size=(100, 6)) as pilot:
        await pilot.pause()
        line = screen_lines(app)[2]
    assert r"\x1b]52;c;QQ==\x07[bold]</script><U+202E>\n日本" in line
    assert line.endswith("│")


def test_same_compares_arrays_by_value():
    assert same(graph(), graph())
    assert not same(graph(), graph(wss=(1, 2, 3, 4)))
    assert same(heat(60, 6), heat(60, 6))
    assert not same(table(3), table(4))


@given(st.sets(st.integers(0, 80)))
def test_neighbouring_rows_are_one_region(rows):
    runs = _neighbours(sorted(rows))
    assert [row for first, count in runs for row in range(first, first + count)] == sorted(rows)
    assert all(a + n < b for (a, n), (b, _) in pairwise(runs))


@pytest.mark.parametrize("color", ["256", "16", "none"])
async def test_lines_are_handed_out_as_textual_would_draw_them(color):
    """The short way around Textual's borders and links changes no cell."""

    def cells(strips: list[Strip]) -> list[list[tuple[str, object]]]:
        return [[(c, s.style) for s in strip for c in s.text] for strip in strips]

    async with running(size=(120, 36), color=color) as d:
        for widget in d.app.query(CachedWidget):
            width, height = widget.size
            if not widget.display or not width or not height:
                continue
            for crop in (Region(0, 0, width, height), Region(1, height // 2, width - 1, 1)):
                mine, theirs = widget.render_lines(crop), Widget.render_lines(widget, crop)
                assert cells(mine) == cells(theirs), widget


NO_POWER = PowerView((DevicePower("GPU", reason="no NVIDIA driver"), DevicePower("CPU", reason="no RAPL zone")))


async def test_power_that_nobody_tells_is_one_line_with_the_reasons():
    assert tells_nothing(NO_POWER)
    assert tells_nothing(PowerView())
    assert not tells_nothing(PowerView((*NO_POWER.devices, DevicePower("GPU 1", 300.0))))
    assert (await drawn(PowerLine(NO_POWER), 80, 1)).rstrip() == (
        " power  n/a  GPU: no NVIDIA driver; CPU: no RAPL zone"
    )
    assert "no reading yet" in await drawn(PowerLine(PowerView()), 80, 1)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (160, "GPU: no NVIDIA driver (libnvidia-ml.so.1 not found); CPU: no RAPL zone: virtual machine or no driver"),
        (90, "GPU: no NVIDIA driver; CPU: no RAPL zone: virtual machine or no driver"),
        (80, "GPU: no NVIDIA driver; CPU: no RAPL zone"),
    ],
)
async def test_the_reasons_for_no_power_are_told_shorter_rather_than_cut(width, expected):
    gpu = DevicePower("GPU", reason="no NVIDIA driver (libnvidia-ml.so.1 not found)")
    cpu = DevicePower("CPU", reason="no RAPL zone: virtual machine or no driver")
    assert (await drawn(PowerLine(PowerView((gpu, cpu))), width, 1)).rstrip() == f" power  n/a  {expected}"


async def test_the_graph_has_the_room_of_a_power_panel_with_nothing_to_show():
    quiet = FakeSession(20)
    seen = quiet.devices.power
    quiet.devices.power = lambda first, last: [
        replace(reading, power_w=None, energy_j=None, status="unsupported", reason="no sensor")
        for reading in seen(first, last)
    ]
    async with running(quiet, size=(120, 36)) as d:
        assert d.screen.panels.graph.size.width == 120
        assert not d.screen.panels.power.display
        assert d.screen.panels.power_line.display
        assert len(d.text.splitlines()) == 36
        await d.press("4")
        assert "▸power  n/a" in d.text
    async with running(FakeSession(20), size=(120, 36)) as d:
        assert d.screen.panels.graph.size.width < 120
        assert d.screen.panels.power.display
        assert not d.screen.panels.power_line.display
