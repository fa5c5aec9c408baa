"""The picture of the heat map: columns, of more windows than columns from stored sums, layouts, zoom and cursor."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from memtui.analysis.heat_map import bin_column
from memtui.core.block_sample import PARTS, BlockSample
from memtui.core.page_set import PageSet
from memtui.core.page_sizes import BLOCK_BYTES, PAGE_BYTES, PAGE_SHIFT
from memtui.core.samples import End, Options, Process, ProcessWindow, VmaTable, Window
from memtui.session.page_reader import PageReader
from memtui.session.session import Session
from memtui.tui.presenters import heat_map
from memtui.tui.presenters.address_cursor import SUBROWS
from memtui.tui.presenters.heat_map import HeatColumns
from memtui.tui.presenters.presenter import Presenter, Room
from tests.conftest import LONG
from tests.support import sessions
from tests.support.screen_fakes import FakeSession

SAMPLES, COLUMNS, ROWS = 700, 10, 12  # 70 samples a column: more than a sum has


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return sessions.write_session(tmp_path_factory.mktemp("hours") / "s.memtui", sessions.messages(SAMPLES))


@pytest.fixture
def decoded(monkeypatch):
    """Samples whose page sets are decoded."""
    read_samples = []
    original = PageReader.page_set

    def page_set(self, sample, process):
        read_samples.append(sample)
        return original(self, sample, process)

    monkeypatch.setattr(PageReader, "page_set", page_set)
    return read_samples


def whole(reader: Session) -> Presenter:
    """The whole session in one picture, complete."""
    presenter = Presenter(reader, follow=False)
    presenter.room = Room(COLUMNS, ROWS)
    for _ in range(20):
        presenter.view(10.0)
        if presenter.complete:
            return presenter
    raise AssertionError("the picture was never complete")


def test_no_page_set_is_decoded_for_it(path, decoded):
    reader = Session(path)
    share = whole(reader).view(10.0).heat.share
    assert set(decoded) <= {SAMPLES - 1}, "the notes on the window at the cursor are about its pages"
    assert share.shape[1] == COLUMNS
    assert np.isfinite(share).any(axis=0).all()
    reader.close()


def test_its_columns_are_means_of_all_windows(path):
    reader = Session(path)
    presenter = whole(reader)
    heat = presenter.view(10.0).heat
    ((process, layout, _),) = presenter.heat._stack.layouts
    # A column has the sums that end in it.
    width, first = heat.axis.bins(COLUMNS)
    edges = heat.axis.origin_ns + (first + np.arange(COLUMNS + 1)) * width
    last = np.append(np.arange(63, SAMPLES, 64), SAMPLES - 1)
    ends = reader.samples.end_ns[last]
    for column in range(COLUMNS):
        inside = last[(ends > edges[column]) & (ends <= edges[column + 1])]
        windows = [n for end in inside for n in range(end // 64 * 64, end + 1)]
        wanted = np.mean([bin_column(reader.pages.page_set(n, process), layout) for n in windows], axis=0)
        # Ranges of the test begin and end at chunks of 64 KiB; bins within a chunk share its touches evenly.
        finite = np.isfinite(wanted)
        assert (np.isfinite(heat.share[: len(finite), column]) == finite).all()
        total = np.where(finite, wanted * layout.bin_bytes, 0).sum()
        drawn = np.where(finite, heat.share[: len(finite), column] * layout.bin_bytes, 0).sum()
        assert drawn == pytest.approx(total, rel=1e-3)
        assert np.abs(heat.share[: len(finite), column] - wanted)[finite].max() < 0.1
    reader.close()


def test_a_recorder_that_was_killed_leaves_a_whole_picture(tmp_path):
    stream = (message for message in sessions.messages(SAMPLES - 30) if not isinstance(message, End))
    reader = Session(sessions.write_session(tmp_path / "s.memtui", stream))
    assert np.isfinite(whole(reader).view(10.0).heat.share).any(axis=0).all()
    reader.close()


def test_a_live_picture_is_laid_out_anew_only_so_often(path, monkeypatch):
    """Where processes come and go, each window would ask for another layout, with all its columns."""
    builds = []
    build = heat_map.Layout.build
    monkeypatch.setattr(heat_map.Layout, "build", lambda *args, **more: builds.append(1) or build(*args, **more))
    reader = Session(path)
    presenter = Presenter(reader, follow=True)
    presenter.room = Room(COLUMNS, ROWS)
    presenter.playhead.recording = presenter.playhead.follow = True
    presenter.view(10.0)
    weights = iter(range(4, 44))
    ranges_to_draw = heat_map.ranges_to_draw
    monkeypatch.setattr(
        heat_map,
        "ranges_to_draw",
        lambda *args: [replace(r, weight_bytes=1 << next(weights)) for r in ranges_to_draw(*args)[:1]],
    )
    monkeypatch.setattr(heat_map, "LAYOUT_SHARE", 1e-9)
    builds.clear()
    for _ in range(5):
        presenter.view(10.0)
    assert builds == []
    assert presenter.complete, "nobody is to ask again at once"
    monkeypatch.setattr(heat_map, "LAYOUT_SHARE", 1e9)
    presenter.view(10.0)
    assert len(builds) == 1
    monkeypatch.setattr(heat_map, "LAYOUT_SHARE", 1e-9)
    presenter.playhead.follow = False  # whoever looks at one moment sees what was there
    presenter.view(10.0)
    assert len(builds) == 2
    reader.close()


def test_processes_that_are_not_in_a_window_cost_no_question(path, decoded):
    reader = Session(path)
    heat = heat_map.HeatColumns()
    (process, *_) = reader.processes.all()
    assert heat.page_set(reader, 3, process.key) is not None
    assert heat.page_set(reader, 3, process.key + 1000) is None
    assert decoded == [3]
    reader.close()


def test_heat_columns_move_on_unchanged():
    session = FakeSession(400, growing=True, clock=lambda: 0.0)
    replay = Presenter(session, follow=True)
    replay.room = Room(60, 12)
    before = replay.view(10.0).heat
    session.first = 405  # a second later: one column further
    replay.refresh()
    after = replay.view(10.0).heat
    moved = after.axis.bins(60)[1] - before.axis.bins(60)[1]
    assert moved in (1, 2)
    np.testing.assert_array_equal(before.share[:, moved:-1], after.share[:, : -moved - 1])


def test_what_has_left_a_live_picture_is_not_kept(monkeypatch):
    monkeypatch.setattr(heat_map, "KEEP_PAST", 20)
    session = FakeSession(400, growing=True, clock=lambda: 0.0)
    live = Presenter(session, follow=True)
    live.room = Room(60, 12)
    kept = []
    for _ in range(120 if LONG else 50):
        session.first += 25
        live.refresh()
        live.view(10.0)
        kept.append((len(live.heat._with_pages), len(live.heat._sets), len(live.heat._columns)))
    assert max(max(counts) for counts in kept) <= 2 * 2 * 61 + 2 * 20  # two windows a column, twice, and some
    asked = session.asked_pages
    live.view(10.0)
    assert session.asked_pages == asked, "what is in sight is still there"


@pytest.fixture
def heat() -> HeatColumns:
    """The picture of a session, complete."""
    presenter = Presenter(FakeSession(60), follow=False)
    presenter.room = Room(20, 12)
    for _ in range(200):
        presenter.view(10.0)
        if presenter.complete:
            return presenter.heat
    raise AssertionError("the picture was never complete")


def test_the_first_move_puts_the_cursor_on_the_hottest_range(heat):
    hottest = heat._hottest
    assert heat.cursor is None
    heat.move_cursor(3)
    assert heat.cursor == hottest
    row = heat._stack.row_of(hottest)
    heat.move_cursor(1)
    assert heat._stack.row_of(heat.cursor) == heat._stack.row_after(row, 1) > row
    heat.unpoint()
    assert heat.cursor is None


def test_the_cursor_goes_to_the_row_that_is_pointed_at(heat):
    for row in range(heat._stack.rows):
        heat.point(row)
        assert heat._stack.row_of(heat.cursor) == heat._stack.row_after(row, 0)


def test_a_zoom_shows_less_memory_around_the_cursor(heat):
    heat.point(5)
    assert heat.zoom_in()
    (zoom,) = heat.zooms
    assert zoom.process == heat.cursor.process
    assert zoom.start <= heat.cursor.address < zoom.end
    assert zoom.end - zoom.start < heat._stack.bytes_shown
    heat.point_to_range(999, zoom.process, zoom.start, zoom.end)
    assert heat.zooms, "it is in sight"
    heat.point_to_range(999, zoom.process, zoom.end, zoom.end + 4096)
    assert heat.zooms == [], "the zoom is of other memory"


def test_panning_moves_the_zoom_and_the_cursor_by_a_share_of_it(heat):
    heat.point(3)
    heat.zoom_in()
    before, address = heat.zooms[-1], heat.cursor.address
    own = [r for r in heat._ranges if r.process == before.process]
    heat.pan(1e9)
    assert heat.zooms[-1].end == max(r.end for r in own), "not beyond the last range"
    heat.pan(-1e9)
    assert heat.zooms[-1].start == min(r.start for r in own), "not before the first one"
    assert heat.zooms[-1].end - heat.zooms[-1].start == before.end - before.start
    assert heat.cursor.address - heat.zooms[-1].start == address - before.start


def test_panning_without_a_zoom_moves_the_cursor(heat):
    heat.point(0)
    heat.pan(0.5)
    row = heat._stack.row_of(heat.cursor)
    assert row == heat._stack.row_after(0, heat._stack.rows // 2)
    heat.pan(-0.001)
    assert heat._stack.row_of(heat.cursor) == heat._stack.row_after(row, -1)


def test_a_sampled_heat_map_is_an_estimate_of_the_whole_one(tmp_path):
    """Half of each block is accessed: so says the mean of windows that read a tenth of the blocks each."""
    block_pages, blocks = BLOCK_BYTES // PAGE_BYTES, 32
    pages = (sessions.DATA >> PAGE_SHIFT) + np.arange(blocks * block_pages, dtype=np.uint64)
    accessed, sample = PageSet.from_pages(pages[pages % 2 == 0]), BlockSample(7)

    def stream():
        yield sessions.hello(options=Options(200 * sessions.MS, pages="sampled"))
        yield Process(1, 4242, 1, 777, 0, "python train.py", "target")
        yield VmaTable(1, 0, sessions.VMAS)
        for n in range(4 * PARTS):
            seen, start_ns = sample.select(accessed, n % PARTS), n * 200 * sessions.MS
            # The truth in place of an estimate: of how large a share a window is depends on the hash.
            scale = accessed.size_bytes / seen.size_bytes if seen.size_bytes else 1.0
            window = ProcessWindow(
                1, start_ns, start_ns + 200 * sessions.MS, pages=seen, scale=scale, rss_bytes=blocks * BLOCK_BYTES
            )
            yield Window(n, start_ns, window.end_ns, 200 * sessions.MS, 0, (window,))
        yield End(4 * PARTS * 200 * sessions.MS, "target exited")

    with closing(Session(sessions.write_session(tmp_path / "s.memtui", stream()))) as reader:
        presenter = Presenter(reader, follow=False)
        presenter.room = Room(1, 16)
        heat = presenter.view(10.0).heat
    assert heat.caption.startswith("estimated ")
    (band,) = heat.bands
    share = heat.share[: band.rows * SUBROWS, 0]
    assert (share > 0.2).all(), "no bin looks cold because its block was not read in the last window"
    assert (share <= 1).all()  # a bin is one block here, and parts have one to five blocks
    assert float(share.mean()) == pytest.approx(0.5, rel=0.1)
